"""Deciding about queues: made, changed, emptied, deleted; and how their logs end."""

from __future__ import annotations

from penstock import limits
from penstock.core import commands, records
from penstock.core.config import QueueConfig, check_change
from penstock.core.decide.rebalancing import grown
from penstock.core.decision import Decision, queue_of
from penstock.core.records import Record
from penstock.core.routing import CURRENT
from penstock.core.state import Queue, Shard
from penstock.errors import Conflict


def configure(shard: Shard, command: commands.ConfigureQueue, now_ms: int) -> Decision:
    number = shard.paths.get(command.path)
    routing = CURRENT
    if number is not None:
        existing = shard.queues[number]
        routing = existing.routing
        if existing.config == command.config:
            return Decision([], number)
        check_change(existing.config, command.config, empty=existing.empty, dead_letters=existing.dead_letters())
        _check_holds(existing, command.config)
        if command.config.indexed and any(membership.members for membership in existing.memberships.values()):
            raise Conflict(
                f"queue {command.path} has groups with members, whose partitions cannot be ordered as one; let them "
                "leave first",
                details={"field": "order"},
            )
    elif len(shard.queues) >= limits.QUEUES_MAX:
        raise Conflict(f"there are {limits.QUEUES_MAX} queues already, which is the limit")
    number = number or shard.next_queue
    made: list[Record] = [records.QueueConfigured(now_ms, number, command.path, command.config, routing)]
    if number in shard.queues and command.config.partitions > len(shard.queues[number].partitions):
        made += grown(shard.queues[number], command.config.partitions, now_ms)
    return Decision(made, number)


def _check_holds(queue: Queue, config: QueueConfig) -> None:
    """A queue that begins to keep its messages removes those that all groups had finished; refused if they are held."""
    if (queue.config.retention.mode, config.retention.mode) != ("until_acked", "keep"):
        return
    for partition in queue.partitions:
        if partition.held_from is not None:
            held = partition.finished(max(partition.start, partition.held_from), partition.end)
            if any(any(partition.gone.gaps(first, stop)) for first, stop in held):
                raise Conflict(
                    f"queue {queue.path} is held by an archive that has not copied yet what all groups have finished; "
                    "that would be let go, so wait for the archive, or remove its hold",
                    details={"field": "retention"},
                )


def delete(shard: Shard, command: commands.DeleteQueue, now_ms: int) -> Decision:
    queue_of(shard, command.queue)
    return Decision([records.QueueDeleted(now_ms, command.queue)], None)


def purge(shard: Shard, command: commands.PurgeQueue, now_ms: int) -> Decision:
    ends = [partition.end for partition in queue_of(shard, command.queue).partitions]
    return Decision([records.QueuePurged(now_ms, command.queue, ends)], None)


def trim(shard: Shard, command: commands.TrimPartition, now_ms: int) -> Decision:
    partition = queue_of(shard, command.queue).partitions[command.partition]
    start = min(command.start, partition.end)
    if partition.held_from is not None:
        start = min(start, partition.held_from)
    if start <= partition.start:
        return Decision([], partition.start)
    return Decision([records.Trimmed(now_ms, command.queue, command.partition, start)], start)


def open_shard(shard: Shard, command: commands.Open, now_ms: int) -> Decision:  # noqa: ARG001  one shape for all
    return Decision([records.Opened(now_ms, command.term, command.node)], None)
