"""Quotas at the facade: messages and bytes that a principal writes, and messages that it holds.

`Metering.wrap` wraps the methods of the guarded broker that a configured limit concerns; the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock import limits
from penstock.broker.outstanding import OutstandingLeases
from penstock.broker.types import DeliveredRun, LeaseReply, PublishPart, TransactReply
from penstock.pending import PendingReply
from penstock.security.principal import Principal
from penstock.security.quotas import Quotas, WrittenAmount, principal_name
from penstock.wire.delivery import Settled

if TYPE_CHECKING:
    from penstock.broker.service import Broker

Method: TypeAlias = Callable[..., Any]

PUBLISHES = {"messages.publish": 0, "messages.transact": 1}
"""Methods that write messages, with the position of the parts among their arguments."""
WRITES = frozenset(
    {
        "scheduled.cancel", "scheduled.reschedule", "queues.put", "queues.patch", "queues.delete", "queues.purge",
        "groups.create", "groups.seek", "groups.delete", "dead_letters.delete", "redrives.start", "redrives.stop",
    }
)  # fmt: skip
"""Methods that change a queue, which is their first argument."""
LEASES = frozenset({"messages.lease", "messages.lease_scope"})
SETTLES = frozenset({"messages.ack", "messages.nack", "messages.reject", "messages.release", "messages.extend"})


class HeldMessages:
    """The messages in flight of each principal, and the room that its waiting leases may fill."""

    def __init__(self) -> None:
        self._leases: dict[str, OutstandingLeases] = {}
        self._promised: dict[str, dict[PendingReply[LeaseReply], int]] = {}
        self._forget_above = limits.ADDRESSES_TRACKED_MAX
        """With more names than this, those whose leases have expired are forgotten."""

    def of(self, name: str, now_ms: int) -> int:
        leases = self._leases.get(name)
        if leases is not None:
            leases.drop_expired(now_ms)
        return (len(leases) if leases is not None else 0) + self._promises(name)

    def _promises(self, name: str) -> int:
        """The room of leases that wait. One that was cancelled has none, at whatever moment that was."""
        waiting = {pending: count for pending, count in self._promised.get(name, {}).items() if not pending.done()}
        if waiting:
            self._promised[name] = waiting
        else:
            self._promised.pop(name, None)
        return sum(waiting.values())

    def promise(self, pending: PendingReply[LeaseReply], count: int, *names: str) -> None:
        """Take room for a lease, until it ends or `end_promise` is called."""
        for name in names:
            self._promised.setdefault(name, {})[pending] = count

    def end_promise(self, pending: PendingReply[LeaseReply], *names: str) -> None:
        for name in names:
            waiting = self._promised.get(name, {})
            waiting.pop(pending, None)
            if not waiting:
                self._promised.pop(name, None)

    def add(self, name: str, runs: Sequence[DeliveredRun], now_ms: int) -> None:
        if not runs:
            return
        self._leases.setdefault(name, OutstandingLeases()).add(runs, now_ms)
        if len(self._leases) > self._forget_above:
            for each in list(self._leases):
                self._leases[each].drop_expired(now_ms)
                if not self._leases[each]:
                    del self._leases[each]
            self._forget_above = max(limits.ADDRESSES_TRACKED_MAX, 2 * len(self._leases))

    def settled(self, name: str, results: Sequence[Settled], now_ms: int) -> None:
        leases = self._leases.get(name)
        if leases is not None:
            leases.settle(results, now_ms)
            if not leases:
                del self._leases[name]


class Metering:
    """The quotas of a server, applied to calls of the facade."""

    def __init__(self, broker: Broker, quotas: Quotas, now_ms: Callable[[], int]):
        self._broker = broker
        self._quotas = quotas
        self._now_ms = now_ms
        self._held = HeldMessages()

    def wrap(self, path: str, method: Method, principal: Principal) -> Method:
        """The method with the limits that concern it, or the method itself."""
        bounds = self._quotas.bounds
        if path in PUBLISHES and self._quotas.meters_writes:
            method = self._publishing(method, PUBLISHES[path], principal)
        elif path in WRITES and bounds.namespace_requests is not None:
            method = self._writing(method, principal)
        if path in LEASES and (bounds.key_in_flight or bounds.queue_in_flight):
            return self._leasing(path, method, principal)
        if bounds.key_in_flight and (path in SETTLES or path == "messages.transact"):
            return self._settling(method, principal)
        return method

    def _publishing(self, method: Method, position: int, principal: Principal) -> Method:
        def call(*arguments: Any, **options: Any) -> Any:
            self._quotas.demand_write(principal, _written(arguments[position]))
            return method(*arguments, **options)

        return call

    def _writing(self, method: Method, principal: Principal) -> Method:
        def call(*arguments: Any, **options: Any) -> Any:
            self._quotas.demand_write(principal, {arguments[0].partition("/")[0]: WrittenAmount(0, 0)})
            return method(*arguments, **options)

        return call

    def _leasing(self, path: str, method: Method, principal: Principal) -> Method:
        """A lease of at most as many messages as there is room for. While it waits, that room is taken."""
        name, held = principal_name(principal), self._held

        def call(*arguments: Any, **options: Any) -> PendingReply[LeaseReply]:
            queue = "" if path == "messages.lease_scope" else arguments[0]
            most = self._room(name, queue, options.get("max", 1))
            pending: PendingReply[LeaseReply] = method(*arguments, **{**options, "max": most})
            names = name, f"queue {queue}"
            held.promise(pending, most, *names)

            def granted(reply: LeaseReply) -> LeaseReply:
                held.end_promise(pending, *names)
                if self._quotas.bounds.key_in_flight:
                    held.settled(name, reply.results, self._now_ms())
                    held.add(name, reply.runs, self._now_ms())
                return reply

            return pending.then(granted)

        return call

    def _room(self, name: str, queue: str, wanted: int) -> int:
        bounds, now_ms = self._quotas.bounds, self._now_ms()
        if bounds.key_in_flight:
            used = self._held.of(name, now_ms)
            wanted = min(wanted, self._quotas.room("key_in_flight", bounds.key_in_flight, used))
        if bounds.queue_in_flight and queue:
            used = self._broker.in_flight.count(queue) + self._held.of(f"queue {queue}", now_ms)
            wanted = min(wanted, self._quotas.room("queue_in_flight", bounds.queue_in_flight, used))
        return wanted

    def _settling(self, method: Method, principal: Principal) -> Method:
        name = principal_name(principal)

        def settled(reply: Any) -> Any:
            acked = isinstance(reply, TransactReply)
            results = [Settled(receipt, "acked") for receipt in reply.acked] if acked else reply
            self._held.settled(name, results, self._now_ms())
            return reply

        return lambda *arguments, **options: method(*arguments, **options).then(settled)


def _written(parts: Sequence[PublishPart]) -> dict[str, WrittenAmount]:
    found: dict[str, WrittenAmount] = {}
    for part in parts:
        namespace = part.queue.partition("/")[0]
        known = found.get(namespace, WrittenAmount(0, 0))
        size = known.size + part.batch.payload_bytes()
        found[namespace] = WrittenAmount(known.messages + part.batch.count, size)
    return found
