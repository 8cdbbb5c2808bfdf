"""Applying what happened to dead letters: taken away, brought back, and the redrives that do it."""

from __future__ import annotations

from heapq import heappush

from penstock import limits
from penstock.core import records
from penstock.core.offsets.ranges import pairs, total
from penstock.core.state import Queue, Shard
from penstock.core.state.dead_letters import Redrive
from penstock.core.state.retries import Retry


def dead_letters_removed(shard: Shard, record: records.DeadLettersRemoved) -> None:
    queue = shard.queues[record.queue]
    dead = queue.partitions[record.partition].dead
    progress = queue.partitions[record.partition].progress[record.group]
    for first, stop in pairs(record.ranges):
        for offset in range(first, stop):
            letter = dead.take(record.group, offset)
            if letter is not None and letter.key and progress.adapter is not None:
                progress.adapter.unpark(letter.key, offset)
    _count(queue, record.redrive, record.ranges)


def redriven(shard: Shard, record: records.Redriven) -> None:
    """A dead letter becomes a message that waits for its next attempt, which is its first again."""
    queue = shard.queues[record.queue]
    partition = queue.partitions[record.partition]
    progress = partition.progress[record.group]
    for first, stop in pairs(record.ranges):
        for offset in range(first, stop):
            letter = partition.dead.take(record.group, offset)
            assert letter is not None, "only a dead letter is redriven"
            progress.mark_undone(offset)
            progress.retries[offset] = Retry(
                0, record.due, letter.first_at, letter.last_at, letter.error, letter.consumer, letter.budget,
                letter.redriven + 1,
            )  # fmt: skip
            if letter.key and progress.adapter is not None:
                progress.adapter.waiting(offset)
            if record.due <= record.at:
                # At once means before anything that is asked for at the same moment.
                progress.make_ready(offset, offset + 1)
            else:
                heappush(progress.waiting, (record.due, offset))
            if offset >= partition.start:
                partition.timeless.add(offset, offset + 1)
            if offset in partition.overdue:
                _spare(shard, queue, record, offset)
    shard.arm(record.due, record.queue, record.partition, record.group)
    _count(queue, record.redrive, record.ranges)


def _spare(shard: Shard, queue: Queue, record: records.Redriven, offset: int) -> None:
    """Its time to live ran out in the hands of another group, and it is no longer to end by it."""
    partition = queue.partitions[record.partition]
    partition.overdue.remove(offset, offset + 1)
    for group, progress in partition.progress.items():
        progress.spared(partition, offset)
        if progress.waiting:
            shard.arm(progress.waiting[0][0], record.queue, record.partition, group)


def redrive_started(shard: Shard, record: records.RedriveStarted) -> None:
    redrives = shard.queues[record.queue].redrives
    redrives[record.redrive] = Redrive(
        record.redrive, record.at, record.group, record.filter, record.ids, record.target, record.delay_ms,
        record.priority, record.rate_per_s,
    )  # fmt: skip
    ended = [redrive.id for redrive in redrives.values() if not redrive.running]
    for name in ended[: max(0, len(redrives) - limits.REDRIVES_KEPT)]:
        del redrives[name]


def redrive_ended(shard: Shard, record: records.RedriveEnded) -> None:
    redrive = shard.queues[record.queue].redrives[record.redrive]
    redrive.end(record.outcome, record.at)
    redrive.skipped = record.skipped
    redrive.error = record.error


def _count(queue: Queue, redrive: str, ranges: list[int]) -> None:
    if redrive:
        queue.redrives[redrive].redriven += total(ranges)
