"""Queues with `exclusive`: a group works on one lease at a time, and what failed is waited for.

While messages of the group are leased, or one of them failed and waits for its next attempt, no other lease is granted.
So one worker processes at a time; and first in, first out with leases of one message, each partition is processed
strictly in order, because a failed message is delivered again before those behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.state import Queue


def in_flight(queue: Queue, group: int) -> int:
    return sum(partition.progress[group].leased.count for partition in queue.partitions)


def retry_due_ms(queue: Queue, group: int, now_ms: int) -> int | None:
    """When the last of those that failed comes again; None if none of them waits."""
    return max(_waiting(queue, group, now_ms), default=None)


def _waiting(queue: Queue, group: int, now_ms: int) -> Iterator[int]:
    """Due times of failed messages. There are no more of them than one lease had messages; a message that was redriven
    with a delay blocks no lease and is left out."""
    for partition in queue.partitions:
        progress = partition.progress[group]
        for due, offset in progress.waiting:
            retry = progress.retries.get(offset)
            if retry is not None and retry.attempt and retry.due == due > now_ms and offset not in progress.leased:
                yield due


def is_occupied(queue: Queue, group: int, now_ms: int) -> bool:
    return in_flight(queue, group) > 0 or any(_waiting(queue, group, now_ms))
