"""Why a message is not being delivered now, in one group. Looks only, and at a bounded number of things.

The questions are those of a lease, put to the same objects: `Progress` (is it done, held, not due), `leasing.py` (do
older partitions come first), the dispatcher's own gate, shares and orders. The order is not computed a second time.

Reasons are of two kinds. A reason that *blocks* has to change before a lease of any size can hold the message. The
others name the messages that come before it. A message without a blocking reason is *deliverable*: a lease that is
large enough delivers it now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, Literal

import msgspec

from penstock.core.decide.leasing import partitions_before
from penstock.core.lifecycle import State
from penstock.core.order import exclusive
from penstock.core.order.fifo import partition_and_offset
from penstock.core.state import Partition, Progress, Queue, Shard, windows
from penstock.core.state.leases import Lease
from penstock.core.state.letter_chunks import DeadLetter

SCAN_MAX = 2_000
"""Entries of an index that one explanation looks at; what lies behind them is reported as "at least"."""


class Reason(msgspec.Struct, frozen=True, tag_field="kind"):
    blocks: ClassVar[bool] = True


def due_times(partition: Partition, offsets: Sequence[int]) -> dict[int, int]:
    """Due times of these scheduled messages, in ascending order of offsets, as far as the state knows them.

    The schedule has no index by offset, so only its first entries are searched. For the others the caller computes the
    time from the message, which is wrong if the delay of the queue has changed since the publish.
    """
    found = {offset: partition.moved[offset] for offset in offsets if offset in partition.moved}
    for due, first, count in islice(partition.schedule.in_memory(), SCAN_MAX):
        for offset in offsets[bisect_left(offsets, first) : bisect_left(offsets, first + count)]:
            found.setdefault(offset, due)
    return found


class NotDue(Reason, frozen=True, tag="not_due"):
    """Published with a delay, or moved to a later time."""

    due_at_ms: int | None
    """None if it is not known without a long search."""


class WaitingForRetry(Reason, frozen=True, tag="waiting_for_retry"):
    due_at_ms: int
    attempt: int
    """The delivery that failed last; 0 for a dead letter that was redriven."""
    error: str
    consumer: str


class LeasedTo(Reason, frozen=True, tag="leased"):
    consumer: str
    lease: int
    since_at_ms: int
    deadline_at_ms: int
    attempt: int


class Finished(Reason, frozen=True, tag="finished"):
    """Over in this group. How is known for what was kept; the history of the message may tell the rest."""

    outcome: Literal["done", "expired_or_cancelled", "dead", "trimmed"]
    at_ms: int | None = None
    reason: str = ""
    error: str = ""
    consumer: str = ""


class GroupNotBegun(Reason, frozen=True, tag="group_not_begun"):
    """The group begins with its first lease."""


class OlderPartitions(Reason, frozen=True, tag="older_partitions_first"):
    """The queue has grown: what was published before must have been delivered once before this partition begins."""

    partitions: list[int]


class WindowClosed(Reason, frozen=True, tag="window_closed"):
    """The queue delivers when it has been left alone for a while, or when its oldest message has waited long enough."""

    opens_at_ms: int
    """If nothing more is published until then."""


class Occupied(Reason, frozen=True, tag="occupied"):
    """The queue is exclusive, and its group is not done with the last lease."""

    in_flight: int
    retry_at_ms: int | None
    """When what failed comes again; None if nothing did."""


class HandedOver(Reason, frozen=True, tag="handed_over"):
    """Its partition moves to another member, and the former owner still holds leases."""

    member: str
    """The new owner."""
    giver: str
    """The former owner that still holds leases; empty if it has left the group."""
    until_at_ms: int


class KeyBlocked(Reason, frozen=True, tag="key_blocked"):
    """A message with the same key comes first."""

    partition: int
    offset: int
    state: str
    """Of that message: leased, waiting, ready, or dead (then its key is parked)."""
    consumer: str = ""
    """The consumer that holds it, or held it last."""
    deadline_at_ms: int | None = None
    due_at_ms: int | None = None
    error: str = ""
    ahead: int = 0
    """Others with this key that also come before it, counted up to a bound."""


class TenantAtCap(Reason, frozen=True, tag="tenant_at_cap"):
    in_flight: int
    max_in_flight: int
    ahead: int
    """Messages of its tenant that come first and fill the cap up."""


class Behind(Reason, frozen=True, tag="behind"):
    blocks: ClassVar[bool] = False
    count: int
    exact: bool
    """False: at least so many."""
    within: Literal["partition", "queue", "tenant"]


class Assigned(Reason, frozen=True, tag="assigned"):
    """Its partition is assigned to one member, and only that member leases it."""

    blocks: ClassVar[bool] = False
    member: str


class LaneShareSpent(Reason, frozen=True, tag="lane_share_spent"):
    blocks: ClassVar[bool] = False
    lane: int
    before: list[int]
    """Lanes that have messages and a share left in this round."""


class PastTtl(Reason, frozen=True, tag="past_ttl"):
    """Its time to live is over; it expires as soon as no lease holds it, and is not leased again until then."""


class Explanation(msgspec.Struct, frozen=True):
    partition: int
    offset: int
    state: str
    """A word of `lifecycle.State`, or `done`, or `trimmed`."""
    attempts: int | None
    """Deliveries so far; None where the count is not kept."""
    reasons: list[Reason]


class Explainer:
    """Explains messages of one queue to one group, at one moment; `advance` has been there before."""

    def __init__(self, shard: Shard, queue: Queue, group: str, now_ms: int):
        self._shard = shard
        self._queue = queue
        self._group = queue.groups.get(group)
        self._now_ms = now_ms
        self._leases: list[Lease] | None = None

    def head(self, number: int) -> int | None:
        """The first offset of a partition that the group has not finished and no lease holds; None if there is none."""
        partition = self._queue.partitions[number]
        progress = self._progress(partition)
        if progress is None:
            offset = partition.gone.past(partition.start)
            return offset if offset < partition.end else None
        offset = progress.floor
        for _ in range(SCAN_MAX):
            past = progress.leased.past(progress.done.past(offset))
            if past == offset:
                return offset if offset < partition.end else None
            offset = past
        return None

    def explain(self, number: int, offset: int, own_due_ms: int | None = None) -> Explanation:
        """`own_due_ms` is when the message itself said that it wants to be delivered."""
        partition = self._queue.partitions[number]
        progress = self._progress(partition)
        if progress is None:
            return self._without_group(partition, number, offset, own_due_ms)
        state = self._state(partition, progress, offset)
        retry = progress.retries.get(offset)
        attempts = retry.attempt if retry is not None else 0
        reasons: list[Reason] = []
        if state == State.LEASED:
            held = self._held(number, offset)
            reasons.append(held)
            attempts = held.attempt
        elif state == State.WAITING:
            assert retry is not None
            reasons.append(WaitingForRetry(retry.due, retry.attempt, retry.error, retry.consumer))
        elif state == State.SCHEDULED:
            reasons.append(NotDue(self._due(partition, offset, own_due_ms)))
        elif state == State.READY and offset not in partition.overdue:
            reasons += self._of_ready(partition, progress, number, offset)
        elif state != State.READY:
            finished, known = self._finished(partition, offset)
            return Explanation(number, offset, state, known, [finished])
        if offset in partition.overdue:
            reasons.append(PastTtl())
        return Explanation(number, offset, state, attempts, reasons)

    # -- where it is --------------------------------------------------------------------------------------------------

    def _progress(self, partition: Partition) -> Progress | None:
        return partition.progress.get(self._group) if self._group is not None else None

    def _letter(self, partition: Partition, offset: int) -> DeadLetter | None:
        return partition.dead.get(self._group, offset) if self._group is not None else None

    def _state(self, partition: Partition, progress: Progress, offset: int) -> str:
        if offset in progress.leased:
            return State.LEASED
        if progress.is_done(offset):
            if self._letter(partition, offset) is not None:
                return State.DEAD
            return "trimmed" if offset < partition.start and self._keeps else "done"
        retry = progress.retries.get(offset)
        later = offset in partition.scheduled
        if retry is not None and (later or retry.due > self._now_ms):
            return State.WAITING
        return State.SCHEDULED if later else State.READY

    @property
    def _keeps(self) -> bool:
        return self._queue.config.retention.mode == "keep"

    def _without_group(
        self, partition: Partition, number: int, offset: int, own_due_ms: int | None
    ) -> Explanation:  # fmt: skip
        over = offset < partition.start or offset in partition.gone
        if over or (not self._keeps and partition.finished(offset, offset + 1)):
            finished, _ = self._finished(partition, offset)
            state = "trimmed" if finished.outcome == "trimmed" else "done"
            return Explanation(number, offset, state, None, [finished])
        if offset in partition.scheduled:
            due = self._due(partition, offset, own_due_ms)
            return Explanation(number, offset, State.SCHEDULED, 0, [NotDue(due), GroupNotBegun()])
        overdue = [PastTtl()] if offset in partition.overdue else []
        return Explanation(number, offset, State.READY, 0, [*overdue, GroupNotBegun()])

    def _finished(self, partition: Partition, offset: int) -> tuple[Finished, int | None]:
        """How it ended, and after how many deliveries, as far as the state remembers."""
        letter = self._letter(partition, offset)
        if letter is not None:
            return Finished("dead", letter.dead_at, letter.reason, letter.error, letter.consumer), letter.attempts
        if offset in partition.gone:
            return Finished("expired_or_cancelled"), None
        return Finished("trimmed" if offset < partition.start and self._keeps else "done"), None

    # -- what holds it back -------------------------------------------------------------------------------------------

    def _due(self, partition: Partition, offset: int, own_due_ms: int | None) -> int | None:
        return due_times(partition, [offset]).get(offset, own_due_ms)

    def _held(self, number: int, offset: int) -> LeasedTo:
        if self._leases is None:
            place = (self._queue.number, self._group)
            self._leases = [lease for lease in self._shard.leases.values() if (lease.queue, lease.group) == place]
        for lease in self._leases:
            if lease.partition == number:
                for part in lease.parts(offset, offset + 1):
                    return LeasedTo(lease.consumer, lease.id, lease.at, part.deadline, part.attempt)
        raise AssertionError("what is leased is held by a lease")

    def _of_ready(self, partition: Partition, progress: Progress, number: int, offset: int) -> list[Reason]:
        assert self._group is not None
        reasons: list[Reason] = []
        if self._queue.config.window_ms:
            opens_ms = windows.opens_for(self._queue, self._group, self._now_ms)
            if opens_ms is not None:
                reasons.append(WindowClosed(opens_ms))
        if self._queue.config.exclusive and exclusive.is_occupied(self._queue, self._group, self._now_ms):
            held = exclusive.in_flight(self._queue, self._group)
            reasons.append(Occupied(held, exclusive.retry_due_ms(self._queue, self._group, self._now_ms)))
        if progress.adapter is None:
            reasons += self._of_partition(number, progress)
            older = set(partitions_before(self._queue, self._group, number))
            if older:
                reasons.append(OlderPartitions(sorted(older)))
            ahead, exact = _ready_before(partition, progress, offset, self._now_ms)
            if ahead:
                reasons.append(Behind(ahead, exact, "partition"))
            return reasons
        return reasons + self._in_order(partition, offset, progress.adapter.place(offset))

    def _of_partition(self, number: int, progress: Progress) -> list[Reason]:
        """Whose the partition is, where the group's partitions are assigned to its members."""
        assert self._group is not None
        membership = self._queue.memberships.get(self._group)
        if membership is None or not membership.members:
            return []
        slot = membership.slots[number]
        if slot.until and progress.leased:
            return [HandedOver(slot.owner, slot.giver, slot.until)]
        return [Assigned(slot.owner)]

    def _in_order(self, partition: Partition, offset: int, place: int) -> list[Reason]:
        """The checks of the dispatcher, in its order."""
        assert self._group is not None
        dispatcher = self._queue.dispatchers[self._group]
        traits = partition.traits
        key = traits.key[offset] if traits.key is not None else 0
        if dispatcher.gate is not None and not dispatcher.gate.lets(key, place):
            return [self._key_blocked(key, place)]
        reasons: list[Reason] = []
        ahead, exact = dispatcher.ahead_of(place, self._now_ms, SCAN_MAX)
        shares = dispatcher.shares
        if shares is not None and shares.cap is not None:
            in_flight = shares.in_flight.get(traits.tenant[offset] if traits.tenant is not None else 0, 0)
            if in_flight + ahead >= shares.cap:
                reasons.append(TenantAtCap(in_flight, shares.cap, ahead))
        if ahead:
            reasons.append(Behind(ahead, exact, "queue" if shares is None else "tenant"))
        lane = traits.priority[offset] if traits.priority is not None else 0
        before = dispatcher.lanes_before(place)
        if before:
            reasons.append(LaneShareSpent(lane, before))
        return reasons

    def _key_blocked(self, key: int, place: int) -> KeyBlocked:
        assert self._group is not None
        gate = self._queue.dispatchers[self._group].gate
        assert gate is not None
        parked = gate.parked_for(key)
        holder = gate.holder(key)
        number, offset = partition_and_offset(parked[0] if parked and holder is None else holder or 0)
        partition = self._queue.partitions[number]
        ahead = sum(other < place for other in islice(gate.waiting(key), SCAN_MAX))
        if holder is None:
            letter = self._letter(partition, offset)
            assert letter is not None, "a key is parked for a dead letter"
            return KeyBlocked(number, offset, State.DEAD, letter.consumer, error=letter.error, ahead=ahead)
        progress = partition.progress[self._group]
        state = self._state(partition, progress, offset)
        if state == State.LEASED:
            held = self._held(number, offset)
            return KeyBlocked(number, offset, state, held.consumer, held.deadline_at_ms, ahead=ahead)
        retry = progress.retries.get(offset)
        if state == State.WAITING and retry is not None:
            return KeyBlocked(number, offset, state, retry.consumer, None, retry.due, retry.error, ahead)
        return KeyBlocked(number, offset, state, ahead=ahead)


def _ready_before(partition: Partition, progress: Progress, offset: int, now_ms: int) -> tuple[int, bool]:
    """How many messages of a line come before this one, by ranges; False if it may be more."""
    floor = progress.floor
    count = offset - floor - progress.done.count_in(floor, offset) - progress.leased.count_in(floor, offset)
    count -= partition.scheduled.count_in(floor, offset)
    count -= sum(
        free_stop - free_first
        for first, stop in islice(partition.overdue.within(floor, offset), SCAN_MAX)
        for gap_first, gap_stop in progress.done.gaps(first, stop)
        for free_first, free_stop in progress.leased.gaps(gap_first, gap_stop)
    )
    if len(progress.retries) > SCAN_MAX:
        return max(0, count - len(progress.retries)), False
    return count - sum(
        floor <= other < offset
        and retry.due > now_ms
        and other not in progress.leased
        and other not in partition.scheduled
        and other not in partition.overdue
        for other, retry in progress.retries.items()
    ), True
