"""Applying what happened to groups: created, moved by a seek, deleted."""

from __future__ import annotations

from penstock import limits
from penstock.core import records
from penstock.core.offsets.ranges import RangeSet
from penstock.core.order.dispatcher_adapter import open_dispatcher
from penstock.core.state import Shard, windows
from penstock.core.state.groups import STAYS, begin
from penstock.core.state.log_start import move_start


def apply_created(shard: Shard, record: records.GroupCreated) -> None:
    queue = shard.queues[record.queue]
    queue.groups[record.name] = record.group
    queue.group_names[record.group] = record.name
    queue.next_group = record.group + 1
    for partition, start in zip(queue.partitions.use_all(), record.starts, strict=True):
        begin(queue, partition, record.group, start, record.at)
        move_start(queue, partition)
    if queue.config.indexed and not shard.replaying:
        open_dispatcher(queue, record.group)


def apply_moved(shard: Shard, record: records.GroupMoved) -> None:
    queue = shard.queues[record.queue]
    for partition, offset in zip(queue.partitions, record.offsets, strict=True):
        if offset != STAYS:
            begin(queue, partition, record.group, offset, record.at)
            if partition.window is not None:
                partition.window.flushed.pop(record.group, None)
            move_start(queue, partition)
    if queue.config.indexed and not shard.replaying:
        # The index is over all partitions: also over those in which the group stays as it is.
        open_dispatcher(queue, record.group)
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
        if not partition.progress:
            partition.delayed = RangeSet()
        for offset in partition.dead.offsets_of(group):
            partition.dead.take(group, offset)
        if partition.window is not None:
            partition.window.flushed.pop(group, None)
        move_start(queue, partition)
