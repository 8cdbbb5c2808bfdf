"""The state of a shard: queues, their partitions, and how far each group is.

A fifo backlog is not a collection of messages but a cursor over the log and a few exceptions to it. For one group in
one partition every offset is in exactly one place:

    below `floor`                      done, and forgotten
    in `done`                          done out of order (acked, dead, expired, cancelled)
    in `leased`                        held by a lease
    in `retries`, not leased           failed before, waiting for `due` or ready again
    at or above `cursor`, not `skip`   never delivered, ready
    the rest (below cursor, or skip)   published with a delay: scheduled, or ready since it came due; or given back

Fields are *hard* (the sum of the records, equal on every replay) or *soft* (caches for finding the next message
fast, rebuilt from the hard ones). Each class says which are which; `snapshot.py` writes the hard ones only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappush

import msgspec

from penstock.core.agenda import Agenda
from penstock.core.bits import OffsetBits
from penstock.core.config import QueueConfig
from penstock.core.deadletters import DeadLetters, Redrive
from penstock.core.dedup import Dedup
from penstock.core.ranges import RangeSet
from penstock.core.records import Transacted

NEVER_MS = 2**62


class Retry(msgspec.Struct, gc=False, omit_defaults=True):
    """What is remembered about a message that failed, until it is done."""

    attempt: int
    """The delivery that failed last; 0 for a dead letter that was redriven."""
    due: int
    first_at: int
    last_at: int
    error: str
    consumer: str
    budget: int = -1
    """Of a redriven message with a `max_retries` of its own: the partition may have forgotten it."""
    redriven: int = 0
    """How often it was redriven."""


class Held(msgspec.Struct, gc=False):
    """A run of offsets under a lease."""

    first: int
    stop: int
    attempt: int
    deadline: int


class Lease(msgspec.Struct):
    """An exclusive, time-bounded hold by one consumer. Hard, all of it."""

    id: int
    nonce: int
    queue: int
    partition: int
    group: int
    consumer: str
    lease_ms: int
    at: int
    held: list[Held]

    def parts(self, first: int, stop: int) -> list[Held]:
        """What of `[first, stop)` this lease still holds, run by run."""
        low, high = self._overlapping(first, stop)
        return [
            Held(max(first, run.first), min(stop, run.stop), run.attempt, run.deadline) for run in self.held[low:high]
        ]

    def release(self, first: int, stop: int) -> None:
        """Let go of `[first, stop)`."""
        self._put(first, stop, [])

    def extend(self, first: int, stop: int, deadline: int) -> None:
        self._put(
            first, stop, [Held(part.first, part.stop, part.attempt, deadline) for part in self.parts(first, stop)]
        )

    def _put(self, first: int, stop: int, inside: list[Held]) -> None:
        """These runs, and nothing else, in `[first, stop)`; what reaches over its ends stays."""
        low, high = self._overlapping(first, stop)
        if low < high:
            left, right = self.held[low], self.held[high - 1]
            if left.first < first:
                inside = [Held(left.first, first, left.attempt, left.deadline), *inside]
            if stop < right.stop:
                inside = [*inside, Held(stop, right.stop, right.attempt, right.deadline)]
            self.held[low:high] = inside

    def _overlapping(self, first: int, stop: int) -> tuple[int, int]:
        """Which of the runs, that are in order: a lease of thousands of scattered messages is settled one by one."""
        return bisect_right(self.held, first, key=_stop_of), bisect_left(self.held, stop, key=_first_of)


def _first_of(run: Held) -> int:
    return run.first


def _stop_of(run: Held) -> int:
    return run.stop


class Progress:
    """How far one group is in one partition."""

    __slots__ = ("armed", "cursor", "done", "floor", "leased", "ready", "retries", "skip", "waiting")

    def __init__(self, start: int):
        # Hard.
        self.floor = start
        self.cursor = start
        self.done = RangeSet()
        self.leased = RangeSet()
        self.skip = RangeSet()
        """At or above the cursor, but not the cursor's business: published with a delay."""
        self.retries: dict[int, Retry] = {}
        # Soft.
        self.ready: list[int] = []
        """Heap of offsets off the cursor's path whose time has come; may hold stale entries."""
        self.waiting: list[tuple[int, int]] = []
        """Heap of (due, offset) of retries; may hold stale entries."""
        self.armed = NEVER_MS

    def mark_done(self, first: int, stop: int) -> None:
        self.done.add(first, stop)
        if self.retries:
            forget(self.retries, first, stop)
        if first <= self.floor:
            self.floor = self.done.past(self.floor)
            self.done.remove_below(self.floor)
            if self.cursor < self.floor:
                self.cursor = self.floor
                self.skip.remove_below(self.floor)

    def mark_undone(self, offset: int) -> None:
        """It was done, and is to be delivered again. Everything else stays as it is."""
        if offset < self.floor:
            self.done.add(offset + 1, self.floor)
            self.floor = offset
        else:
            self.done.remove(offset, offset + 1)

    def is_done(self, offset: int) -> bool:
        return offset < self.floor or offset in self.done

    def undone(self, end: int) -> int:
        return end - self.floor - self.done.count

    def waiting_for_retry(self, now_ms: int) -> list[int]:
        return [offset for offset, retry in self.retries.items() if retry.due > now_ms and offset not in self.leased]

    def push_ready(self, first: int, stop: int) -> None:
        """`[first, stop)` came due; what of it is still undelivered in this group becomes ready."""
        for gap_first, gap_stop in self.done.gaps(max(first, self.floor), stop):
            for free_first, free_stop in self.leased.gaps(gap_first, gap_stop):
                for offset in range(free_first, free_stop):
                    if (offset < self.cursor or offset in self.skip) and offset not in self.retries:
                        heappush(self.ready, offset)

    def rebuild(self, scheduled: RangeSet, end: int) -> None:
        """The soft fields from the hard ones. `scheduled` are the offsets whose delay is not over."""
        self.waiting = [(retry.due, offset) for offset, retry in self.retries.items() if offset not in self.leased]
        heapify(self.waiting)
        self.ready = []
        self.armed = NEVER_MS
        candidates = RangeSet([(self.floor, min(self.cursor, end))])
        for first, stop in self.skip:
            candidates.add(first, stop)
        for first, stop in candidates:
            for gap_first, gap_stop in scheduled.gaps(first, stop):
                self.push_ready(gap_first, gap_stop)


class Partition:
    """One ordered part of a queue."""

    __slots__ = (
        "armed", "dead", "end", "expiries", "gone", "max_retries", "moved", "overdue", "progress",
        "schedule", "scheduled", "start", "timeless",
    )  # fmt: skip

    def __init__(self) -> None:
        # Hard.
        self.start = 0
        self.end = 0
        self.progress: dict[int, Progress] = {}
        """By group number."""
        self.gone = RangeSet()
        """Ended for every group, also those to come: expired, cancelled, purged."""
        self.schedule = Agenda()
        """Delays that are not over. Entries of messages that were moved or ended since are void."""
        self.moved: dict[int, int] = {}
        """Offset -> due time, where it is not what the schedule's first entry says."""
        self.expiries = Agenda()
        self.max_retries: dict[int, int] = {}
        """Messages with a retry budget of their own."""
        self.dead = DeadLetters()
        self.timeless = RangeSet()
        """Redriven: somebody wants them handled, however old they are. Neither time to live nor retention ends them.
        Without those that lie before `start`, which nothing ends but being finished."""
        # Soft.
        self.scheduled = OffsetBits()
        """Offsets with a valid entry in the schedule."""
        self.overdue: list[tuple[int, int]] = []
        """Ranges past their time to live, to be expired at the next tick."""
        self.armed = NEVER_MS

    def is_scheduled(self, offset: int, due: int) -> bool:
        """True if an entry of the schedule with this due time still speaks for this message."""
        return offset in self.scheduled and self.moved.get(offset, due) == due

    def finished(self, first: int, stop: int) -> list[tuple[int, int]]:
        """What of `[first, stop)` every group is done with; nothing as long as there is no group."""
        done = [(first, stop)] if self.progress else []
        for progress in self.progress.values():
            done = [
                piece
                for inside, after in done
                for piece in [
                    *([(inside, min(after, progress.floor))] if inside < progress.floor else []),
                    *progress.done.within(max(inside, progress.floor), after),
                ]
            ]
        return done

    def live(self, *, keeps: bool) -> RangeSet:
        """Offsets whose bytes somebody may still ask for: retained, undone in a group, or a dead letter."""
        alive = RangeSet()
        if keeps or not self.progress:
            alive.add(self.start, self.end)
        for first, stop in self.gone:
            alive.remove(first, stop)
        # Only now: what is gone for all who come later may have been redriven for one who had given it up before.
        for progress in self.progress.values():
            for first, stop in progress.done.gaps(progress.floor, self.end):
                alive.add(first, stop)
        for offset in sorted(self.dead.offsets()):
            alive.add(offset, offset + 1)
        return alive


class Queue:
    __slots__ = ("config", "dedup", "group_names", "groups", "number", "partitions", "path", "redrives", "turn")

    def __init__(self, number: int, path: str, config: QueueConfig):
        # Hard.
        self.number = number
        self.path = path
        self.config = config
        self.partitions = [Partition() for _ in range(config.partitions)]
        self.groups: dict[str, int] = {}
        self.group_names: dict[int, str] = {}
        self.dedup = Dedup()
        self.redrives: dict[str, Redrive] = {}
        """By id, oldest first: those that run, and the latest that ended."""
        # Soft.
        self.turn = 0
        """Partition to look at first, so that none is always last."""

    def depth(self) -> int:
        """Messages that somebody still has to finish."""
        return sum(self.partition_depth(partition) for partition in self.partitions)

    def partition_depth(self, partition: Partition) -> int:
        if not partition.progress:
            return partition.end - partition.start - partition.gone.count
        return max(progress.undone(partition.end) for progress in partition.progress.values())


class Shard:
    """Everything one journal adds up to."""

    __slots__ = (
        "advanced_ms", "deadlines", "last_id", "leases", "next_lease", "next_queue", "now_ms", "overdue",
        "overdue_partitions", "paths", "queues", "term", "timers", "transactions",
    )  # fmt: skip

    def __init__(self) -> None:
        # Hard.
        self.now_ms = 0
        """Time of the latest record."""
        self.term = 0
        self.queues: dict[int, Queue] = {}
        self.paths: dict[str, int] = {}
        self.next_queue = 1
        self.leases: dict[int, Lease] = {}
        self.next_lease = 1
        self.last_id = 0
        self.transactions: dict[bytes, Transacted] = {}
        """By the digest of the request, oldest first: what can be answered again."""
        # Soft.
        self.advanced_ms = 0
        """How far `advance` has brought the caches."""
        self.deadlines: list[tuple[int, int]] = []
        """Heap of (deadline, lease); stale entries are dropped when they come up."""
        self.timers: list[tuple[int, int, int, int]] = []
        """Heap of (due, queue, partition, group or -1): whose agenda to look at, and when."""
        self.overdue: list[int] = []
        """Leases whose deadline has passed, to be ended at the next tick."""
        self.overdue_partitions: dict[tuple[int, int], None] = {}
        """(queue, partition) with messages past their time to live, to be expired at the next tick."""

    def next_deadline_ms(self) -> int:
        """When time itself will next change something."""
        if self.needs_tick():
            return 0
        return min(
            self.deadlines[0][0] if self.deadlines else NEVER_MS,
            self.timers[0][0] if self.timers else NEVER_MS,
        )

    def needs_tick(self) -> bool:
        """True if time has made something true that is not a fact yet."""
        return bool(self.overdue or self.overdue_partitions)

    def arm(self, due: int, queue: int, partition: int, group: int = -1) -> None:
        """See to it that this partition (or group of it) is looked at when `due` has come."""
        owner: Partition | Progress = self.queues[queue].partitions[partition]
        if group >= 0:
            owner = self.queues[queue].partitions[partition].progress[group]
        if due < owner.armed:
            owner.armed = due
            heappush(self.timers, (due, queue, partition, group))


def forget(table: dict[int, Retry] | dict[int, int], first: int, stop: int) -> None:
    """Remove the keys in `[first, stop)`, by whichever of the two is shorter."""
    if stop - first <= len(table):
        for offset in range(first, stop):
            table.pop(offset, None)
    else:
        for offset in [offset for offset in table if first <= offset < stop]:
            del table[offset]
