"""Quotas at the facade: messages and bytes that a principal writes, and messages that it holds.

`Metering.wrap` wraps the methods of the guarded broker that a configured limit concerns; the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock import limits
from penstock.broker.joint import lease_after
from penstock.broker.types import DeliveredRun, LeaseReply, PublishPart
from penstock.pending import PendingReply
from penstock.security.principal import Principal
from penstock.security.quotas import Quotas, WrittenAmount, principal_name

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


class HeldMessages:
    """The messages in flight of each principal, and the room that its waiting leases may fill.

    `count_held` tells how many messages leases hold now, by the prefix of their receipts. It is asked where the sum of
    what was leased reaches the limit: whatever ended a delivery since then, it is in flight no more.
    """

    def __init__(self, count_held: Callable[[Sequence[str]], Sequence[int]]) -> None:
        self._count_held = count_held
        self._leases: dict[str, dict[str, int]] = {}
        """Principal -> prefix of receipts -> the messages that this lease had when it was looked at last."""
        self._look_above = limits.ADDRESSES_TRACKED_MAX
        """With more principals than this, those that hold nothing any more are forgotten."""
        self._promised: dict[str, dict[PendingReply[LeaseReply], int]] = {}

    def room(self, name: str, most: int, wanted: int) -> int:
        """How many of the wanted messages there is room for."""
        promised = self.promised(name)
        if promised + sum(self._leases.get(name, {}).values()) + wanted > most:
            self._look_again(name)
        return min(wanted, most - promised - sum(self._leases.get(name, {}).values()))

    def _look_again(self, name: str) -> None:
        receipts = list(self._leases.pop(name, {}))
        held = {receipt: count for receipt, count in zip(receipts, self._count_held(receipts), strict=True) if count}
        if held:
            self._leases[name] = held

    def promised(self, name: str) -> int:
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

    def add(self, name: str, runs: Sequence[DeliveredRun]) -> None:
        for run in runs:
            if run.receipt is not None:  # an at-most-once delivery has no receipt
                leases = self._leases.setdefault(name, {})
                leases[run.receipt] = leases.get(run.receipt, 0) + run.count
        if len(self._leases) > self._look_above:
            for each in list(self._leases):
                self._look_again(each)
            self._look_above = max(limits.ADDRESSES_TRACKED_MAX, 2 * len(self._leases))


class Metering:
    """The quotas of a server, applied to calls of the facade."""

    def __init__(self, broker: Broker, quotas: Quotas):
        self._broker = broker
        self._quotas = quotas
        self._held = HeldMessages(broker.in_flight.held)

    def wrap(self, path: str, method: Method, principal: Principal) -> Method:
        """The method with the limits that concern it, or the method itself."""
        bounds = self._quotas.bounds
        if path in PUBLISHES and self._quotas.meters_writes:
            method = self._publishing(method, PUBLISHES[path], principal)
        elif path in WRITES and bounds.namespace_requests is not None:
            method = self._writing(method, principal)
        if path in LEASES and (bounds.key_in_flight or bounds.queue_in_flight):
            return self._leasing(path, method, principal)
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
        """A lease of at most as many messages as there is room for. While it waits, that room is taken.

        Receipts that it acks make room, and are acked also where there is none.
        """
        name, held = principal_name(principal), self._held

        def call(*arguments: Any, **options: Any) -> PendingReply[LeaseReply]:
            queue = "" if path == "messages.lease_scope" else arguments[0]
            wanted, ack = options.get("max", 1), options.get("ack", ())
            limit, room = self._room(name, queue, wanted)
            if ack and room < wanted:
                without = {name: value for name, value in options.items() if name != "ack"}
                return lease_after(lambda: self._broker.messages.ack(ack), lambda: call(*arguments, **without))
            if room <= 0:
                raise self._quotas.refusal(limit)
            pending: PendingReply[LeaseReply] = method(*arguments, **{**options, "max": room})
            names = name, f"queue {queue}"
            held.promise(pending, room, *names)

            def granted(reply: LeaseReply) -> LeaseReply:
                held.end_promise(pending, *names)
                if self._quotas.bounds.key_in_flight:
                    held.add(name, reply.runs)
                return reply

            return pending.then(granted)

        return call

    def _room(self, name: str, queue: str, wanted: int) -> tuple[str, int]:
        """The limit that bounds a lease most, and how many messages there is room for."""
        bounds, found = self._quotas.bounds, ("", wanted)
        if bounds.key_in_flight:
            found = "key_in_flight", self._held.room(name, bounds.key_in_flight, wanted)
        if bounds.queue_in_flight and queue:
            used = self._broker.in_flight.count(queue) + self._held.promised(f"queue {queue}")
            found = min(found, ("queue_in_flight", bounds.queue_in_flight - used), key=lambda each: each[1])
        return found


def _written(parts: Sequence[PublishPart]) -> dict[str, WrittenAmount]:
    found: dict[str, WrittenAmount] = {}
    for part in parts:
        namespace = part.queue.partition("/")[0]
        known = found.get(namespace, WrittenAmount(0, 0))
        size = known.size + part.batch.payload_bytes()
        found[namespace] = WrittenAmount(known.messages + part.batch.count, size)
    return found
