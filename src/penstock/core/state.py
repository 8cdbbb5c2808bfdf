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

Where the order depends on more than offsets (lanes, heap, keys, tenants) the cursor is always at the end: everything
is an exception, and who is next is asked of the group's dispatcher (`dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappush
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.core.agenda import Agenda
from penstock.core.bits import OffsetBits
from penstock.core.config import QueueConfig
from penstock.core.deadletters import DeadLetters, Redrive
from penstock.core.dedup import Dedup
from penstock.core.failed import Retries
from penstock.core.grace import Grace
from penstock.core.lease import Lease
from penstock.core.members import Membership
from penstock.core.ranges import CrumblingSet, RangeSet
from penstock.core.records import ScheduleSpec, Transacted, WebhookSpec
from penstock.core.traits import Traits

if TYPE_CHECKING:
    from penstock.core.desk import Desk
    from penstock.core.dispatch import Dispatcher

NEVER_MS = 2**62


class Progress:
    """How far one group is in one partition."""

    __slots__ = ("armed", "cursor", "desk", "done", "floor", "leased", "ready", "retries", "skip", "waiting")

    def __init__(self, start: int):
        # Hard.
        self.floor = start
        self.cursor = start
        self.done = CrumblingSet()
        self.leased = RangeSet()
        self.skip = RangeSet()
        """At or above the cursor, but not the cursor's business: published with a delay."""
        self.retries = Retries()
        # Soft.
        self.ready: list[int] = []
        """Heap of offsets off the cursor's path whose time has come; may hold stale entries."""
        self.waiting: list[tuple[int, int]] = []
        """Heap of (due, offset) of retries; may hold stale entries."""
        self.desk: Desk | None = None
        """Where what is ready is reported instead of `ready`, if the queue has a dispatcher."""
        self.armed = NEVER_MS

    def mark_done(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.retries.forget(ranges)
        for first, stop in ranges:
            self.done.add(first, stop)
            if first <= self.floor:
                self.floor = self.done.past(self.floor)
                self.done.remove_below(self.floor)
                if self.cursor < self.floor:
                    self.cursor = self.floor
                    self.skip.remove_below(self.floor)
        if self.desk is not None:
            self.desk.leave(ranges)

    def make_ready(self, first: int, stop: int) -> None:
        """`[first, stop)`, off the cursor's path, may be delivered from now on."""
        if self.desk is not None:
            self.desk.ready(first, stop)
            return
        for offset in range(first, stop):
            heappush(self.ready, offset)

    def on_path(self, partition: Partition, cursor: int) -> int:
        """The next offset on the cursor's own path: neither delayed at its publish nor ended before its delivery."""
        overdue = partition.overdue
        while (past := overdue.past(self.done.past(self.skip.past(cursor)))) != cursor:
            cursor = past
        return cursor

    def off_path(self, partition: Partition, cursor: int) -> int:
        """Where the path that goes on at `cursor` is interrupted next."""
        end = partition.end
        stop = min(self.skip.next_start(cursor, end), self.done.next_start(cursor, end))
        return min(stop, partition.overdue.next_start(cursor, end)) if partition.overdue else stop

    def may_deliver(self, partition: Partition, offset: int, now_ms: int | None) -> bool:
        """False for entries that were settled, leased, moved to later or taken away since they were reported ready.

        Without a time, what waits for its next attempt counts as well, and so does what waits for its end.
        """
        # Asked about every message that comes due or back, and about many that are dispatched: most of the sets are
        # empty, and some messages lie beyond all that is done or leased. Both are seen without a search.
        done, leased = self.done.stops, self.leased.stops
        if offset < self.floor or ((offset < done[-1] if done else self.done.count) and offset in self.done):
            return False
        if (offset < leased[-1] if leased else self.leased.count) and offset in self.leased:
            return False
        if partition.scheduled.count and offset in partition.scheduled:
            return False
        if now_ms is None:
            return True
        if partition.overdue.count and offset in partition.overdue:
            return False
        retry = self.retries.get(offset) if self.retries else None
        return retry is None or retry.due <= now_ms

    def untouched_from(self, partition: Partition) -> int:
        """At this offset and behind, nothing has happened to any message but that it was published, to be given at
        once: it may be delivered."""
        return max(
            self.floor,
            self.done.end,
            self.leased.end,
            self.retries.highest + 1,
            partition.scheduled.end if partition.scheduled.count else 0,
            partition.overdue.end,
        )

    def spared(self, offset: int) -> None:
        """Its time to live was over, and no longer counts: if it was passed over for that, it is to be found again."""
        retry = self.retries.get(offset)
        if retry is None:
            self.push_ready(offset, offset + 1)
        elif offset not in self.leased:
            heappush(self.waiting, (retry.due, offset))

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
                        self.make_ready(offset, offset + 1)

    def rebuild(self, scheduled: OffsetBits, end: int) -> None:
        """The soft fields from the hard ones. `scheduled` are the offsets whose delay is not over."""
        self.waiting = [(retry.due, offset) for offset, retry in self.retries.items() if offset not in self.leased]
        heapify(self.waiting)
        self.ready = []
        self.armed = NEVER_MS
        if self.desk is not None:
            return  # its dispatcher has been told everything, see `desk.open_desk`
        candidates = RangeSet([(self.floor, min(self.cursor, end))])
        for first, stop in self.skip:
            candidates.add(first, stop)
        for first, stop in candidates:
            for gap_first, gap_stop in scheduled.gaps(first, stop):
                self.push_ready(gap_first, gap_stop)


class Window(msgspec.Struct):
    """When messages of a queue with a window buffer were published; see `windows.py`. Hard, all of it."""

    newest_at: int
    mark_from: int
    """Since when publishes share the latest mark."""
    marks: list[tuple[int, int]]
    """(first offset, time): from this offset up to the next mark, published at this time or a little earlier."""
    flushed: dict[int, int] = {}
    """Group -> offset: what is below may go, because the oldest of it had waited long enough."""

    def copy(self) -> Window:
        return Window(self.newest_at, self.mark_from, self.marks.copy(), self.flushed.copy())


class Partition:
    """One ordered part of a queue."""

    __slots__ = (
        "armed", "dead", "end", "expiries", "gone", "held_from", "max_retries", "moved", "overdue", "progress",
        "schedule", "scheduled", "start", "timeless", "traits", "window",
    )  # fmt: skip

    def __init__(self, config: QueueConfig) -> None:
        # Hard.
        self.traits = Traits(config)
        self.start = 0
        self.end = 0
        self.progress: dict[int, Progress] = {}
        """By group number."""
        self.gone = RangeSet()
        """Ended for every group, also those to come: expired, cancelled, purged."""
        self.schedule = Agenda()
        """Delays that are not over. Entries of messages that were moved or ended since are void."""
        self.scheduled = OffsetBits()
        """Offsets with a valid entry in the schedule."""
        self.moved: dict[int, int] = {}
        """Offset -> due time, where it is not what the schedule's first entry says."""
        self.expiries = Agenda()
        self.max_retries: dict[int, int] = {}
        """Messages with a retry budget of their own."""
        self.dead = DeadLetters()
        self.timeless = RangeSet()
        """Redriven: somebody wants them handled, however old they are. Neither time to live nor retention ends them.
        Before `start` only as far as somebody has not finished them."""
        self.window: Window | None = None
        # Soft.
        self.held_from: int | None = None
        """Some hold wants everything from here on, finished or not; see `holds.py`."""
        self.overdue = RangeSet()
        """Past their time to live: expired at the next tick, or when the last one who holds them lets go. Until then
        nobody else is given them."""
        self.armed = NEVER_MS

    def scheduled_in(self, due: int, first: int, stop: int) -> list[tuple[int, int]]:
        """What of `[first, stop)` an entry of the schedule with this due time still speaks for."""
        if not self.moved:
            return list(self.scheduled.stretches(first, stop))
        return [
            (offset, offset + 1) for offset in self.scheduled.within(first, stop) if self.moved.get(offset, due) == due
        ]

    def expiring_in(self, first: int, stop: int, *, keeps: bool) -> RangeSet:
        """What of `[first, stop)` can still expire: not what everybody has finished, unless it is kept for others."""
        left = RangeSet(list(self.gone.gaps(max(first, self.start), stop)))
        for inside, after in [] if keeps else [piece for run in left for piece in self.finished(*run)]:
            left.remove(inside, after)
        for inside, after in list(self.timeless.within(first, stop)):
            left.remove(inside, after)
        return left

    def is_unfinished(self, offset: int) -> bool:
        """True if the message is stored, has not ended, and some group, present or future, has yet to finish it."""
        return self.start <= offset < self.end and offset not in self.gone and not self.finished(offset, offset + 1)

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
        floors = [progress.floor for progress in self.progress.values()]
        return self.live_in(min([self.start, *floors, *self.dead.offsets()]), self.end, keeps=keeps)

    def live_in(self, first: int, stop: int, *, keeps: bool) -> RangeSet:
        """The same for `[first, stop)` alone; costs what lies there."""
        alive: list[tuple[int, int]] = []
        if keeps or not self.progress:
            alive += self.gone.gaps(max(first, self.start), min(stop, self.end))
        elif self.held_from is not None:
            alive += self.gone.gaps(max(first, self.start, self.held_from), min(stop, self.end))
        for progress in self.progress.values():
            # What ended for everybody is done in every group.
            alive += progress.done.gaps(max(first, progress.floor), min(stop, self.end))
        if self.dead and len(self.dead) <= stop - first:
            alive += [(offset, offset + 1) for offset in self.dead.offsets() if first <= offset < stop]
        elif self.dead:
            groups = list(self.progress)
            alive += [
                (offset, offset + 1)
                for offset in range(first, stop)
                if any(self.dead.get(group, offset) is not None for group in groups)
            ]
        return RangeSet(sorted(alive))


class KeptOffsets(msgspec.Struct):
    """Where a reader of the log is: partition -> the offset to read on from. Hard, all of it."""

    offsets: dict[int, int]
    used_at: int


class Hold(msgspec.Struct):
    """What an archive still has to copy; see `holds.py`. Hard, all of it."""

    name: str
    max_bytes: int
    index: int
    """Of the first journal frame that is kept for it; 0: none."""
    offsets: dict[int, dict[int, int]]
    """Queue -> partition -> the first offset that is kept for it."""
    set_at: int
    lost_at: int = 0
    """When it was let go because it spanned too much; 0: it holds."""


class FormerQueue(msgspec.Struct, array_like=True):
    """What a deleted queue was called, for those who read about it later. Hard, all of it."""

    path: str
    groups: dict[int, str]


class Queue:
    __slots__ = (
        "config", "dedup", "dispatchers", "group_names", "groups", "growths", "memberships", "number", "partitions",
        "path", "readers", "redrives", "turn",
    )  # fmt: skip

    def __init__(self, number: int, path: str, config: QueueConfig):
        # Hard.
        self.number = number
        self.path = path
        self.config = config
        self.partitions = [Partition(config) for _ in range(config.partitions)]
        self.groups: dict[str, int] = {}
        self.group_names: dict[int, str] = {}
        self.memberships: dict[int, Membership] = {}
        """By group number: the groups that have members, or had some."""
        self.dedup = Dedup()
        self.growths: list[list[int]] = []
        """Where the partitions ended each time that more were added: keys have moved from there to the new ones."""
        self.readers: dict[str, KeptOffsets] = {}
        """By the name they gave themselves, least recently used first."""
        self.redrives: dict[str, Redrive] = {}
        """By id, oldest first: those that run, and the latest that ended."""
        # Soft.
        self.turn = 0
        """Partition to look at first, so that none is always last."""
        self.dispatchers: dict[int, Dispatcher] = {}
        """By group number; none where a cursor over the log is enough."""

    @property
    def empty(self) -> bool:
        """True if nothing is stored that a group, present or future, could ask for, or has in its hands."""
        return all(
            partition.gone.past(partition.start) == partition.end
            and all(p.floor == p.cursor for p in partition.progress.values())
            for partition in self.partitions
        )

    def dead_letters(self) -> int:
        return sum(len(partition.dead) for partition in self.partitions)

    def age_of(self, partition: int, offset: int) -> int:
        """How many growths came before this message. Of two messages with one key the one with the lower age is older,
        and of two with the same age the one with the lower offset."""
        return sum(partition >= len(ends) or offset >= ends[partition] for ends in self.growths)

    def depth(self) -> int:
        """Messages that somebody still has to finish."""
        return sum(self.partition_depth(partition) for partition in self.partitions)

    def partition_depth(self, partition: Partition) -> int:
        if not partition.progress:
            return partition.end - partition.start - partition.gone.count
        return max(progress.undone(partition.end) for progress in partition.progress.values())


class Schedule(msgspec.Struct):
    """A calendar that publishes, and the fire time it is at. Hard, all of it."""

    name: str
    spec: ScheduleSpec
    created_at: int
    changed_at: int = 0
    paused: bool = False
    next: int | None = None
    """Has no message yet; all before it have theirs, or were skipped. None: there is none to come."""
    not_before: int = 0
    """Not to be looked at sooner: it was refused, or has much to make up for."""
    fired: int = 0
    last_fire: int | None = None
    skipped_from: int = 0
    skipped_until: int = 0
    """The latest stretch of fire times that have no message; the second is not part of it."""
    refused_at: int = 0
    """Since when it cannot publish; 0 if it can."""
    refusals: int = 0
    error_code: str = ""
    error: str = ""

    def wakes_at(self) -> int:
        assert self.next is not None
        return max(self.next, self.not_before)

    def hopeful(self) -> None:
        """Nothing is known to be in its way."""
        self.not_before = self.refused_at = self.refusals = 0
        self.error_code = self.error = ""


class SealedSecret(msgspec.Struct, frozen=True, array_like=True):
    """What deliveries are signed with, as nobody can read it who has only the journal."""

    sealed: bytes
    until: int | None
    """Not used from then on; None for the newest."""


class Webhook(msgspec.Struct):
    """A group whose messages are sent to a URL. Hard, all of it."""

    id: str
    spec: WebhookSpec
    created_at: int
    changed_at: int
    secrets: list[SealedSecret]
    """Newest first."""
    state: Literal["active", "paused", "disabled"] = "active"
    reason: str = ""
    switched_at: int = 0

    def secrets_at(self, now_ms: int) -> list[SealedSecret]:
        """Those that sign now, newest first."""
        return [secret for secret in self.secrets if secret.until is None or now_ms < secret.until]


class Shard:
    """Everything one journal adds up to."""

    __slots__ = (
        "advanced_ms", "alarms", "deadlines", "due_schedules", "former_queues", "grace", "holds", "last_id",
        "leases", "next_lease", "next_queue", "now_ms", "overdue", "overdue_groups", "overdue_partitions", "paths",
        "queues", "replaying", "schedules", "term", "timers", "transactions", "webhook_groups", "webhooks",
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
        self.schedules: dict[str, Schedule] = {}
        self.holds: dict[str, Hold] = {}
        self.former_queues: dict[int, FormerQueue] = {}
        """The latest ones that were deleted, oldest first."""
        self.transactions: dict[bytes, Transacted] = {}
        """By the digest of the request, oldest first: what can be answered again."""
        self.webhooks: dict[str, Webhook] = {}
        # Soft.
        self.webhook_groups: dict[tuple[str, str], Webhook] = {}
        """The same by queue and group; one each."""
        self.alarms: list[tuple[int, str]] = []
        """Heap of (due, schedule); stale entries are dropped when they come up."""
        self.due_schedules: dict[str, None] = {}
        """Schedules whose fire time has come, to be fired at the next ticks."""
        self.replaying = False
        """True while records are read again and nobody asks who is next: dispatchers begin when that is over."""
        self.advanced_ms = 0
        """How far `advance` has brought the caches."""
        self.deadlines: list[tuple[int, int]] = []
        """Heap of (deadline, lease); stale entries are dropped when they come up."""
        self.grace = Grace()
        """What of deadlines and sessions is put off, since nobody looked."""
        self.timers: list[tuple[int, int, int, int]] = []
        """Heap of (due, queue, partition, group or -1): whose agenda to look at, when. Partition -1: that group's."""
        self.overdue: list[int] = []
        """Leases whose deadline has passed, to be ended at the next tick."""
        self.overdue_partitions: dict[tuple[int, int], None] = {}
        """(queue, partition) with messages past their time to live, to be expired at the next tick."""
        self.overdue_groups: dict[tuple[int, int], None] = {}
        """(queue, group) whose members were silent for too long, or took too long to give something up."""

    def next_deadline_ms(self) -> int:
        """When time itself will next change something."""
        if self.needs_tick():
            return 0
        return min(
            self.deadlines[0][0] if self.deadlines else NEVER_MS,
            self.timers[0][0] if self.timers else NEVER_MS,
            self.alarms[0][0] if self.alarms else NEVER_MS,
        )

    def needs_tick(self) -> bool:
        """True if time has made something true that is not a fact yet."""
        return bool(self.overdue or self.overdue_partitions or self.overdue_groups or self.due_schedules)

    def arm(self, due: int, queue: int, partition: int, group: int = -1) -> None:
        """See to it that this partition (or group of it) is looked at when `due` has come."""
        owner: Partition | Progress = self.queues[queue].partitions[partition]
        if group >= 0:
            owner = self.queues[queue].partitions[partition].progress[group]
        if due < owner.armed:
            owner.armed = due
            heappush(self.timers, (due, queue, partition, group))

    def arm_agenda(self, agenda: Agenda, queue: int, partition: int) -> None:
        """See to it that this agenda of a partition is looked at when it asks for it."""
        due = agenda.next_ms()
        if due is not None:
            self.arm(due, queue, partition)
