"""Groups: created, moved to another place, deleted.

A group that is moved (`seek`) begins anew at that place, as a new group would: its leases end, attempts start over,
every stored message from there on is delivered, also those that it had finished, and none before. Three kinds of
messages do not come back: those that have ended for all groups; dead letters of the group, which are redriven instead;
and, in a queue that keeps messages only until they are acked, those that every group had finished.

Messages that no other group has to finish are released with a deleted group, and so are its dead letters. The messages
of a queue whose last group was deleted stay, except those that the group had finished. The number of a group is never
used again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision, queue_of
from penstock.core.offsets.ranges import RangeSet
from penstock.core.records import Record
from penstock.core.state import Partition, Progress, Queue, Shard
from penstock.core.state.groups import STAYS, begun_at
from penstock.core.state.leases import Lease
from penstock.errors import Conflict, NotFound


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
        # Messages that the first group skips would be finished for all groups, and removed.
        return Decision([created], True)
    # Partitions that were added since the caller looked begin at their first message.
    wanted = [*command.starts, *created.starts[len(command.starts) :]]
    for number, partition in enumerate(queue.partitions):
        created.starts[number] = _within(partition, wanted[number])
    return Decision([created], True)


class Moved(NamedTuple):
    """The effect of a seek in one partition."""

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
    moved = seek_effects(queue, group, command.offsets)
    made: list[Record] = []
    release_leases(shard, queue, group, {each.partition for each in moved}, now_ms, made)
    offsets = [STAYS] * len(queue.partitions)
    for each in moved:
        offsets[each.partition] = each.to_offset
    made.append(records.GroupMoved(now_ms, queue.number, group, offsets))
    return Decision(made, moved)


def seek_effects(queue: Queue, group: int, offsets: list[int]) -> list[Moved]:
    """The effects that a seek to these offsets would have now. The cost grows with the offsets done out of order."""
    effects = []
    for number, (partition, offset) in enumerate(zip(queue.partitions, offsets, strict=False)):
        if offset != STAYS:
            target = _within(partition, offset)
            before = _undone(partition, partition.progress[group])
            after = _undone(partition, begun_at(queue, partition, group, target))
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
