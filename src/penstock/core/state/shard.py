"""The state of a shard: queues, their partitions, and how far each group is.

A fifo backlog is not a collection of messages but a cursor over the log and a few exceptions to it. For one group in
one partition every offset is in exactly one place:

    below `floor`                      done, and forgotten
    in `done`                          done out of order (acked, dead, expired, cancelled)
    in `leased`                        held by a lease
    in `retries`, not leased           failed before, waiting for `due` or ready again
    at or above `cursor`, on its path  never delivered, ready
    the rest (below cursor, or delayed) published with a delay: scheduled, or ready since it came due; or given back

Fields are *hard* (the sum of the records, equal on every replay) or *soft* (caches for finding the next message
fast, rebuilt from the hard ones). Each class says which are which; `snapshot.py` writes the hard ones only.

Where the order depends on more than offsets (lanes, heap, keys, tenants) the cursor is always at the end: everything
is an exception, and the next message comes from the group's dispatcher (`dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.core.config import DEFAULT, QueueConfig
from penstock.core.offsets.agenda import Agenda
from penstock.core.offsets.bits import OffsetBits
from penstock.core.offsets.ranges import RangeSet
from penstock.core.records import ScheduleSpec, Transacted, WebhookSpec
from penstock.core.routing import RENDEZVOUS, partition_of
from penstock.core.state.dead_letters import DeadLetters, Redrive
from penstock.core.state.dedup import Dedup
from penstock.core.state.grace import Grace
from penstock.core.state.keys import StoredKey
from penstock.core.state.leases import Lease
from penstock.core.state.members import Membership
from penstock.core.state.partitions import Partitions
from penstock.core.state.progress import NEVER_MS, Progress
from penstock.core.state.traits import Traits
from penstock.core.state.users import StoredUser

if TYPE_CHECKING:
    from penstock.core.order.dispatch import Dispatcher

TIDY_DELAYED = 64
"""Ranges of delayed messages below which nothing is gained by forgetting some."""


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
        "armed", "dead", "delayed", "delayed_kept", "end", "expiries", "gone", "held_from", "max_retries", "moved",
        "overdue", "progress", "schedule", "scheduled", "start", "timeless", "traits", "window",
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
        self.delayed = RangeSet()
        """Published with a delay, or rescheduled: the cursors of groups pass over them, also when they are due. From
        the lowest cursor on; empty without groups, and in queues that need no cursor."""
        self.moved: dict[int, int] = {}
        """Offset -> due time, where it is not what the schedule's first entry says."""
        self.expiries = Agenda()
        self.max_retries: dict[int, int] = {}
        """Messages with a retry budget of their own."""
        self.dead = DeadLetters()
        self.timeless = RangeSet()
        """Redriven messages, which are delivered however old they are: neither time to live nor retention ends them.
        Before `start` only those that some group has not finished."""
        self.window: Window | None = None
        # Soft.
        self.delayed_kept = 0
        """Ranges of `delayed` that were left when it was last tidied."""
        self.held_from: int | None = None
        """Some hold wants everything from here on, finished or not; see `holds.py`."""
        self.overdue = RangeSet()
        """Past their time to live: expired at the next tick, or when the last lease of them ends. Until then they are
        not leased again."""
        self.armed = NEVER_MS

    def scheduled_in(self, due: int, first: int, stop: int) -> list[tuple[int, int]]:
        """The runs in `[first, stop)` for which an entry of the schedule with this due time is still valid."""
        if not self.moved:
            return list(self.scheduled.stretches(first, stop))
        return [
            (offset, offset + 1) for offset in self.scheduled.within(first, stop) if self.moved.get(offset, due) == due
        ]

    def tidy_delayed(self) -> None:
        """Forget delays that all cursors have passed; seldom, because it looks at every group."""
        if self.delayed.ranges > TIDY_DELAYED + 2 * self.delayed_kept:
            self.delayed.remove_below(min([progress.cursor for progress in self.progress.values()]))
            self.delayed_kept = self.delayed.ranges

    def expiring_in(self, first: int, stop: int, *, keeps: bool) -> RangeSet:
        """The runs in `[first, stop)` that can still expire: not those that all groups finished, unless kept."""
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
        """The runs in `[first, stop)` that every group is done with; none as long as there is no group."""
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
        """Offsets whose bytes may still be read: retained, not done in a group, or a dead letter."""
        floors = [progress.floor for progress in self.progress.values()]
        lowest = self.dead.lowest()
        return self.live_in(min([self.start, *floors, *([] if lowest is None else [lowest])]), self.end, keeps=keeps)

    def live_in(self, first: int, stop: int, *, keeps: bool) -> RangeSet:
        """The same for `[first, stop)` alone; costs what lies there."""
        alive: list[tuple[int, int]] = []
        if keeps or not self.progress:
            alive += self.gone.gaps(max(first, self.start), min(stop, self.end))
        elif self.held_from is not None:
            alive += self.gone.gaps(max(first, self.start, self.held_from), min(stop, self.end))
        lowest = stop
        for progress in self.progress.values():
            # A message that ended for all groups is done in every group.
            if progress.done.overlaps(first, stop):
                alive += progress.done.gaps(max(first, progress.floor), min(stop, self.end))
            elif progress.floor < lowest:
                lowest = progress.floor
                if lowest <= first:
                    break
        if lowest < min(stop, self.end):
            alive.append((max(first, lowest), min(stop, self.end)))
        alive += self.dead.runs_in(first, stop)
        return RangeSet(sorted(alive))


class _NoGroups(dict[int, Progress]):
    def __setitem__(self, group: int, progress: Progress) -> None:
        raise AssertionError("a group begins in partitions that are used")


class _BlankPartition(Partition):
    """Stands for every partition that is not used yet. A change of it is a bug: ask for the partition by its number."""

    __slots__ = ("_is_made",)

    def __init__(self) -> None:
        super().__init__(DEFAULT)
        self.progress = _NoGroups()
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        assert not hasattr(self, "_is_made"), "a blank partition does not change"
        super().__setattr__(name, value)

    def __copy__(self) -> Partition:
        return Partition(DEFAULT)


BLANK = _BlankPartition()


class KeptOffsets(msgspec.Struct):
    """Where a reader of the log is: partition -> the offset to read on from. Hard, all of it."""

    offsets: dict[int, int]
    used_at: int


class Hold(msgspec.Struct):
    """The positions that an archive still has to copy; see `holds.py`. Hard, all of it."""

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
    """The name of a deleted queue, for readers of its events. Hard, all of it."""

    path: str
    groups: dict[int, str]


class Queue:
    __slots__ = (
        "config", "dedup", "dispatchers", "former_groups", "group_names", "groups", "growths", "memberships",
        "next_group", "number", "partitions", "path", "readers", "redrives", "routing", "turn",
    )  # fmt: skip

    def __init__(self, number: int, path: str, config: QueueConfig, routing: int = RENDEZVOUS):
        # Hard.
        self.number = number
        self.path = path
        self.config = config
        self.routing = routing
        """Version of the function from keys to partitions."""
        self.partitions = Partitions(self._new_partition, BLANK, config.partitions)
        self.groups: dict[str, int] = {}
        self.group_names: dict[int, str] = {}
        self.next_group = 0
        """The number of the next new group."""
        self.former_groups: dict[int, str] = {}
        """Names of the latest groups that were deleted, for readers of their events; oldest first."""
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

    def _new_partition(self) -> Partition:
        return Partition(self.config)

    @property
    def empty(self) -> bool:
        """True if nothing is stored that a group, present or future, could ask for, or has in its hands."""
        return all(
            partition.gone.past(partition.start) == partition.end
            and all(p.floor == p.cursor for p in partition.progress.values())
            for partition in self.partitions
        )

    def partition_of(self, key: bytes, partitions: int | None = None) -> int:
        """Where messages with this key go; or went, when there were so many partitions."""
        return partition_of(key, partitions or len(self.partitions), self.routing)

    def dead_letters(self) -> int:
        return sum(len(partition.dead) for partition in self.partitions)

    def age_of(self, partition: int, offset: int) -> int:
        """How many growths came before this message. Of two messages with one key the one with the lower age is older,
        and of two with the same age the one with the lower offset."""
        return sum(partition >= len(ends) or offset >= ends[partition] for ends in self.growths)

    def depth(self) -> int:
        """Messages that are not finished."""
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
    """The signing secret of a webhook, encrypted: the journal alone does not reveal it."""

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
        "advanced_ms", "alarms", "changing", "deadlines", "due_schedules", "former_queues", "grace", "holds", "keys",
        "last_id", "leases", "next_lease", "next_queue", "now_ms", "number", "overdue", "overdue_groups",
        "overdue_partitions", "paths", "placements", "queues", "replaying", "schedules", "term", "timers",
        "transactions", "users", "webhook_groups", "webhooks",
    )  # fmt: skip

    def __init__(self) -> None:
        # Hard.
        self.now_ms = 0
        """Time of the latest record."""
        self.term = 0
        self.queues: dict[int, Queue] = {}
        self.paths: dict[str, int] = {}
        self.placements = 0
        """Soft: changes of the placement of a queue that was there."""
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
        self.keys: dict[str, StoredKey] = {}
        """API keys by id."""
        self.users: dict[str, StoredUser] = {}
        """People by email."""
        # Soft.
        self.number = 0
        """Which shard of the store it is; in the ids of its messages."""
        self.changing: Callable[[int], None] | None = None
        """Called with the number of a queue before anything in it that a snapshot has changes."""
        self.webhook_groups: dict[tuple[str, str], Webhook] = {}
        """The same by queue and group; one each."""
        self.alarms: list[tuple[int, str]] = []
        """Heap of (due, schedule); stale entries are dropped when they come up."""
        self.due_schedules: dict[str, None] = {}
        """Schedules whose fire time has come, to be fired at the next ticks."""
        self.replaying = False
        """True while records are replayed and no lease is decided: dispatchers are built when that is over."""
        self.advanced_ms = 0
        """How far `advance` has brought the caches."""
        self.deadlines: list[tuple[int, int]] = []
        """Heap of (deadline, lease); stale entries are dropped when they come up."""
        self.grace = Grace()
        """The extension of deadlines and sessions after a stall of the process."""
        self.timers: list[tuple[int, int, int, int]] = []
        """Heap of (due, queue, partition, group or -1): whose agenda to look at, when. Partition -1: that group's."""
        self.overdue: list[int] = []
        """Leases whose deadline has passed, to be ended at the next tick."""
        self.overdue_partitions: dict[tuple[int, int], None] = {}
        """(queue, partition) with messages past their time to live, to be expired at the next tick."""
        self.overdue_groups: dict[tuple[int, int], None] = {}
        """(queue, group) whose members were silent for too long, or took too long to give something up."""

    def next_deadline_ms(self) -> int:
        """When time itself will next change something; 0 if a tick must be decided before."""
        if self.overdue or self.overdue_partitions or self.overdue_groups or self.due_schedules:
            return 0
        return min(
            self.deadlines[0][0] if self.deadlines else NEVER_MS,
            self.timers[0][0] if self.timers else NEVER_MS,
            self.alarms[0][0] if self.alarms else NEVER_MS,
        )

    def needs_tick(self) -> bool:
        """True if time has made something true that is not a fact yet."""
        return self.next_deadline_ms() == 0

    def arm(self, due: int, queue: int, partition: int, group: int = -1) -> None:
        """See to it that this partition (or group of it) is looked at when `due` has come."""
        owner: Partition | Progress = self.queues[queue].partitions[partition]
        if group >= 0:
            owner = self.queues[queue].partitions[partition].progress[group]
        if due < owner.armed:
            owner.armed = due
            heappush(self.timers, (due, queue, partition, group))

    def rebuild_progress(self, queue: Queue, number: int, group: int) -> None:
        """Build the soft fields of a group in one partition, after its dispatcher was opened."""
        partition = queue.partitions[number]
        progress = partition.progress[group]
        progress.rebuild(partition)
        # It may be asked for before time moves on.
        progress.advance_retries(max(self.now_ms, self.advanced_ms))
        if progress.waiting:
            self.arm(progress.waiting[0][0], queue.number, number, group)

    def arm_agenda(self, agenda: Agenda, queue: int, partition: int) -> None:
        """See to it that this agenda of a partition is looked at when it asks for it."""
        due = agenda.next_ms()
        if due is not None:
            self.arm(due, queue, partition)

    def arm_schedule(self, schedule: Schedule) -> None:
        """See to it that this schedule is looked at when it has something to do."""
        if schedule.next is not None and not schedule.paused:
            heappush(self.alarms, (schedule.wakes_at(), schedule.name))
