"""The ledger's model of delivery order: one message of a key at a time and in order, the best of a heap, shares of
lanes and tenants.

Each delivery is compared with the messages that were ready at that time, over all partitions of the queue. The records
of one lease are adjacent in the journal, so a decision is checked as a whole when another record follows.
"""

from __future__ import annotations

from collections import Counter

from penstock.core import records
from penstock.core.records import Record
from sim.entries import Fate, LedgerQueue, Message
from sim.violation import Violation

ROUNDS_APART_MAX = 4
"""Two lanes with ready messages are never this many rounds apart. One would suffice, but rounds begin anew when the
state is read again, and no record says so."""
BOOST_EVERY_MS = 30_000


class Decision:
    """One lease, as far as its records were read."""

    def __init__(self, queue: LedgerQueue, record: records.Leased):
        self.queue = queue
        self.group = record.group
        self.nonce = record.nonce
        self.at = record.at
        self.ready = [fate.message for fate in _open(queue, record.group) if _is_ready(fate, record.at)]
        self.given: list[Message] = []
        self.first: list[Message] = []
        """Messages of the lease that were never delivered before and never waited for a due time."""


class DeliveryOrder:
    def __init__(self) -> None:
        self._decision: Decision | None = None
        self._last: dict[tuple[int, int, bytes], int] = {}
        """(queue, group, key) -> the id of the last undelayed message that was delivered for the first time."""
        self._served: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        """(queue, group) -> lane -> (the time since which it always had ready messages, its deliveries since then)."""

    def begin_again(self, queue: int | None = None) -> None:
        """A restart or a change of the queue resets the turns."""
        self._served = {name: lanes for name, lanes in self._served.items() if queue not in (None, name[0])}

    def follows(self, record: Record | None) -> None:
        """Before another record, or at the end of a frame: check the completed lease (I17)."""
        decision = self._decision
        if decision is None or (
            isinstance(record, records.Leased)
            and (record.queue, record.nonce) == (decision.queue.number, decision.nonce)
        ):
            return
        self._decision = None
        config = decision.queue.config
        if config.ordered_keys or any(message.expires and message.expires <= decision.at for message in decision.given):
            return
        if config.fair_share.enabled:
            if config.fair_share.max_in_flight is None:
                _check_turns(decision)
        elif config.order == "heap":
            _check_heap(decision)
        elif config.order == "lanes":
            self._check_lanes(decision)

    def delivers(self, queue: LedgerQueue, record: records.Leased, fate: Fate) -> None:
        """Before the message is marked as taken. Raises Violation (I17)."""
        config = queue.config
        if config.indexed:
            if self._decision is None:
                self._decision = Decision(queue, record)
            self._decision.given.append(fate.message)
            if fate.message.plain and not fate.delivered:
                self._decision.first.append(fate.message)
        if config.ordered_keys and fate.message.sent.key:
            _check_key(queue, record, fate)
        cap = config.fair_share.max_in_flight
        if config.fair_share.enabled and cap is not None and config.delivery == "at_least_once":
            tenant = fate.message.sent.tenant
            held = sum(other.lease > 0 and other.message.sent.tenant == tenant for other in _open(queue, record.group))
            if held >= cap:
                raise Violation("I17", f"{fate.message}: tenant {tenant!r} has {held} messages in flight, {cap} may be")
        if config.order == "fifo" and not config.fair_share.enabled:
            self._check_first(queue, record.group, fate)

    def _check_first(self, queue: LedgerQueue, group: int, fate: Fate) -> None:
        """First deliveries keep the order of their key, also if it has moved to another partition."""
        message = fate.message
        if message.plain and not fate.delivered and message.sent.key:
            name = (queue.number, group, message.sent.key)
            if message.id < self._last.get(name, 0):
                raise Violation("I17", f"{message} came after a later one of its key")
            self._last[name] = message.id

    def _check_lanes(self, decision: Decision) -> None:
        weights = decision.queue.config.lane_weights
        given = Counter(message.sent.priority for message in decision.given)
        left = {message.sent.priority for message in decision.ready if message not in decision.given}
        before = self._served.get((decision.queue.number, decision.group), {})
        now = {}
        for lane in left:
            since, count = before.get(lane, (decision.at, 0))
            now[lane] = (since, count + given[lane])
        self._served[decision.queue.number, decision.group] = now
        for ahead, (since, count) in now.items():
            for behind, (other_since, other_count) in now.items():
                # Only deliveries since both lanes have ready messages can be compared.
                if since == other_since:
                    apart = count / weights[ahead] - other_count / weights[behind]
                    if apart > ROUNDS_APART_MAX + (decision.at - since) / BOOST_EVERY_MS:
                        raise Violation(
                            "I17",
                            f"{decision.queue.path}: since both have something, lane {ahead} was given {count} and "
                            f"lane {behind} {other_count}, with weights {weights}",
                        )
        for lane in _lanes_out_of_order(decision):
            raise Violation("I17", f"{decision.queue.path}: lane {lane} gave {decision.given} out of order")


def _open(queue: LedgerQueue, group: int) -> list[Fate]:
    return [fate for partition in queue.partitions for fate in partition.open.get(group, {}).values()]


def _is_ready(fate: Fate, at: int) -> bool:
    message = fate.message
    return not fate.lease and max(message.due, fate.due) <= at and not 0 < message.expires <= at


def _check_key(queue: LedgerQueue, record: records.Leased, fate: Fate) -> None:
    """One message of a key at a time, and no undelayed message before an earlier one."""
    message = fate.message
    for other in _open(queue, record.group):
        if other is fate or other.message.sent.key != message.sent.key:
            continue
        if other.lease or other.attempt:
            raise Violation("I17", f"{message} is delivered while {other.message}, with the same key, is not done")
        waits = other.message.plain and not other.message.redriven and not 0 < other.message.expires <= record.at
        if waits and other.message.id < message.id:
            raise Violation("I17", f"{message} is delivered before {other.message}, which has the same key")


def _check_heap(decision: Decision) -> None:
    queue = decision.queue
    flip = 0 if queue.config.heap_mode == "min" else -1

    def rank(message: Message) -> tuple[int, int, int, int]:
        return message.sent.priority ^ flip, queue.age_of(message), message.offset, message.partition

    best = sorted(decision.ready, key=rank)[: len(decision.given)]
    if set(best) != set(decision.given):
        passed = [message for message in best if message not in decision.given]
        raise Violation("I17", f"{decision.given} were taken from the heap before {passed}")


def _check_turns(decision: Decision) -> None:
    """Tenants with ready messages have had the same number of turns, except for the current one."""
    weights = decision.queue.config.fair_share.weights
    left = {message.sent.tenant for message in decision.ready if message not in decision.given}
    given = Counter(message.sent.tenant for message in decision.given)
    turns = {tenant: given[tenant] / weights.get(tenant.decode(), 1) for tenant in left}
    if turns and max(turns.values()) - min(turns.values()) >= 2:
        raise Violation("I17", f"{decision.queue.path}: tenants were given {dict(given)}, with weights {weights}")


def _lanes_out_of_order(decision: Decision) -> list[int]:
    """Lanes in which a ready message was passed over by a later one of its partition, at its first delivery."""
    found = []
    for passed in decision.ready:
        if passed.plain and passed not in decision.given:
            for message in decision.first:
                same = (message.sent.priority, message.partition) == (passed.sent.priority, passed.partition)
                if same and message.offset > passed.offset:
                    found.append(message.sent.priority)
    return found
