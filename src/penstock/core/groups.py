"""Groups: created, moved to another place, deleted.

A group that is moved (`seek`) begins anew at that place, as a new group would: its leases end, attempts start over,
every stored message from there on is delivered, also those that it had finished, and none before. Three kinds of
messages do not come back: those that have ended for everybody; dead letters of the group, which are redriven instead;
and, in a queue that keeps messages only until they are acked, those that every group had finished.

What only a deleted group had not finished is let go with it, and so are its dead letters. The messages of a queue whose
last group was deleted stay, but for those that it had finished. The number of a group is never used again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock import limits
from penstock.core import commands, records, windows
from penstock.core.bits import OffsetBits
from penstock.core.decision import Decision, queue_of
from penstock.core.desk import open_desk
from penstock.core.lease import Lease
from penstock.core.log_start import move_start
from penstock.core.ranges import RangeSet
from penstock.core.records import Record
from penstock.core.state import Partition, Progress, Queue, Shard
from penstock.errors import Conflict, NotFound

STAYS = -1
"""Instead of an offset: the group stays where it is in this partition."""

# -- deciding -----------------------------------------------------------------------------------------------------


def new_group(queue: Queue, name: str, now_ms: int) -> records.GroupCreated:
    """A group begins at the beginning of what is retained."""
    if len(queue.groups) >= limits.GROUPS_PER_QUEUE_MAX:
        raise Conflict(
            f"queue {queue.path} has {limits.GROUPS_PER_QUEUE_MAX} groups already, which is the limit; delete one",
            details={"groups": len(queue.groups)},
        )
    starts = [partition.start for partition in queue.partitions]
    return records.GroupCreated(now_ms, queue.number, queue.next_group, name, starts)


def create(shard: Shard, command: commands.CreateGroup, now_ms: int) -> Decision:
    """Answers whether the group is new. One that exists stays where it is."""
    queue = queue_of(shard, command.queue)
    if command.group in queue.groups:
        return Decision([], False)
    created = new_group(queue, command.group, now_ms)
    if not command.may_let_go and queue.config.retention.mode == "until_acked" and not queue.groups:
        # What the first group passes over would be finished for everybody, and gone.
        return Decision([created], True)
    # Partitions that came since the caller looked are new to everybody: all of what is in them.
    wanted = [*command.starts, *created.starts[len(command.starts) :]]
    for number, partition in enumerate(queue.partitions):
        created.starts[number] = _within(partition, wanted[number])
    return Decision([created], True)


class Moved(NamedTuple):
    """What a seek does in one partition."""

    partition: int
    to_offset: int
    again: int
    """Messages that the group had finished, and is given again."""
    skipped: int
    """Messages that it had not finished, and is not given any more."""
    leased: int
    """Messages whose lease ends."""


def seek(shard: Shard, command: commands.SeekGroup, now_ms: int) -> Decision:
    """Answers with what it does in each partition (`Moved`)."""
    queue = queue_of(shard, command.queue)
    group = number_of(queue, command.group)
    moved = seek_effects(queue, group, command.offsets, now_ms)
    made: list[Record] = []
    release_leases(shard, queue, group, {each.partition for each in moved}, now_ms, made)
    offsets = [STAYS] * len(queue.partitions)
    for each in moved:
        offsets[each.partition] = each.to_offset
    made.append(records.GroupMoved(now_ms, queue.number, group, offsets))
    return Decision(made, moved)


def seek_effects(queue: Queue, group: int, offsets: list[int], now_ms: int) -> list[Moved]:
    """What a seek to these offsets would do now. Costs what the group has finished out of order."""
    effects = []
    for number, (partition, offset) in enumerate(zip(queue.partitions, offsets, strict=False)):
        if offset != STAYS:
            target = _within(partition, offset)
            before = _undone(partition, partition.progress[group])
            after = _undone(partition, begun_at(queue, partition, group, target, now_ms))
            both = sum(after.count_in(first, stop) for first, stop in before)
            leased = partition.progress[group].leased.count
            effects.append(Moved(number, target, after.count - both, before.count - both, leased))
    return effects


def delete(shard: Shard, command: commands.DeleteGroup, now_ms: int) -> Decision:
    queue = queue_of(shard, command.queue)
    group = queue.groups.get(command.group)
    if group is None or group != command.number:
        return Decision([], False)
    webhook = shard.webhook_groups.get((queue.path, command.group))
    if webhook is not None:
        raise Conflict(
            f"group {command.group} of {queue.path} is read by webhook {webhook.id}; delete that first",
            details={"webhook": webhook.id},
        )
    made: list[Record] = []
    release_leases(shard, queue, group, range(len(queue.partitions)), now_ms, made)
    made.append(records.GroupDeleted(now_ms, queue.number, group, command.group))
    return Decision(made, True)


def kept_alone(queue: Queue, group: int) -> int:
    """Messages that are stored only because this group has not finished them: they go with it.

    A queue that keeps its messages, or has no other group, loses only what its log does not reach back to.
    """
    stays = queue.config.retention.mode == "keep" or len(queue.groups) < 2
    count = 0
    for partition in queue.partitions:
        alone = _undone(partition, partition.progress[group])
        if stays:
            alone.remove(partition.start, partition.end)
        for other, progress in partition.progress.items():
            if other != group:
                for first, stop in progress.done.gaps(progress.floor, partition.end):
                    alone.remove(first, stop)
        count += alone.count
    return count


def number_of(queue: Queue, name: str) -> int:
    group = queue.groups.get(name)
    if group is None:
        raise NotFound(f"queue {queue.path} has no group {name!r}", details={"field": "group"})
    return group


def release_leases(
    shard: Shard, queue: Queue, group: int, partitions: Collection[int], now_ms: int, made: list[Record]
) -> None:
    """End what consumers of the group hold in these partitions; the deliveries do not count."""
    for lease in leases_of(shard, queue, group, partitions):
        ranges = [bound for run in lease.held for bound in (run.first, run.stop)]
        made.append(records.Released(now_ms, lease.queue, lease.partition, lease.group, lease.id, ranges))


def leases_of(shard: Shard, queue: Queue, group: int, partitions: Collection[int]) -> list[Lease]:
    """Looks through every lease there is."""
    if not partitions:
        return []
    return [
        lease
        for lease in shard.leases.values()
        if (lease.queue, lease.group) == (queue.number, group) and lease.partition in partitions
    ]


def _within(partition: Partition, offset: int) -> int:
    return min(max(offset, partition.start), partition.end)


def _undone(partition: Partition, progress: Progress) -> RangeSet:
    return RangeSet(list(progress.done.gaps(progress.floor, partition.end)))


# -- applying -----------------------------------------------------------------------------------------------------


def begun_at(queue: Queue, partition: Partition, group: int, start: int, at_ms: int) -> Progress:
    """The progress of a group that begins at this offset now; whether it is new, or had begun elsewhere."""
    progress = Progress(start)
    over = list(partition.gone.within(start, partition.end))
    if queue.config.retention.mode == "until_acked":
        # Finished by everybody until now, so its bytes may be gone already.
        over += partition.finished(start, partition.end)
    if group in partition.progress and partition.dead:
        over += [(offset, offset + 1) for offset in partition.dead.offsets_of(group) if offset >= start]
    progress.mark_done(over)
    if queue.config.indexed:
        progress.cursor = partition.end
    else:
        _skip_scheduled(partition, progress, at_ms)
    return progress


def _skip_scheduled(partition: Partition, progress: Progress, at_ms: int) -> None:
    """The cursor of a new group passes over what is scheduled, as those of the others do."""
    # On a replay nobody has moved the schedule along: what came due before the group began is not delayed for it.
    due_before = OffsetBits()
    for due, first, stop in partition.schedule.due_by(at_ms):
        for inside, after in partition.scheduled_in(due, first, stop):
            due_before.add(inside, after)
    # In order: a set of ranges grows at its end for nothing, and in its middle by moving all that is behind.
    for first, stop in partition.scheduled.stretches(progress.floor, partition.end):
        for inside, after in due_before.gaps(first, stop):
            progress.skip.add(inside, after)


def apply_created(shard: Shard, record: records.GroupCreated) -> None:
    queue = shard.queues[record.queue]
    queue.groups[record.name] = record.group
    queue.group_names[record.group] = record.name
    queue.next_group = record.group + 1
    for partition, start in zip(queue.partitions, record.starts, strict=True):
        partition.progress[record.group] = begun_at(queue, partition, record.group, start, record.at)
        move_start(queue, partition)
    if queue.config.indexed and not shard.replaying:
        open_desk(queue, record.group)


def apply_moved(shard: Shard, record: records.GroupMoved) -> None:
    queue = shard.queues[record.queue]
    for partition, offset in zip(queue.partitions, record.offsets, strict=True):
        if offset != STAYS:
            partition.progress[record.group] = begun_at(queue, partition, record.group, offset, record.at)
            if partition.window is not None:
                partition.window.flushed.pop(record.group, None)
            move_start(queue, partition)
    if queue.config.indexed and not shard.replaying:
        # The index is over all partitions: also over those in which the group stays as it is.
        open_desk(queue, record.group)
        for number in range(len(queue.partitions)):
            shard.rebuild_progress(queue, number, record.group)
    if queue.config.window_ms:
        windows.arm(shard, queue, record.at)


def apply_deleted(shard: Shard, record: records.GroupDeleted) -> None:
    queue, group = shard.queues[record.queue], record.group
    del queue.groups[record.name]
    queue.former_groups[group] = queue.group_names.pop(group)
    while len(queue.former_groups) > limits.FORMER_GROUPS_KEPT:
        del queue.former_groups[next(iter(queue.former_groups))]
    queue.memberships.pop(group, None)
    queue.dispatchers.pop(group, None)
    for partition in queue.partitions:
        if queue.config.retention.mode == "until_acked" and not queue.groups:
            # The last group: what it had finished is no more there for one that begins later than before.
            for first, stop in partition.finished(partition.start, partition.end):
                partition.gone.add(first, stop)
        del partition.progress[group]
        for offset in partition.dead.offsets_of(group):
            partition.dead.take(group, offset)
        if partition.window is not None:
            partition.window.flushed.pop(group, None)
        move_start(queue, partition)
