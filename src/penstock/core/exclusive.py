"""Queues with `exclusive`: a group works on one lease at a time, and what failed comes again before anything else.

While messages of the group are leased, or one of them failed and waits for its next attempt, nobody is given more. So
one worker processes at a time, whoever it is, and with leases of one message in strict order, over all partitions.
"""

from __future__ import annotations

from penstock.core.state import Queue


def in_flight(queue: Queue, group: int) -> int:
    return sum(partition.progress[group].leased.count for partition in queue.partitions)


def retry_due_ms(queue: Queue, group: int, now_ms: int) -> int | None:
    """When the last of those that failed comes again; None if none of them waits.

    There are no more of them than one lease had messages. What was redriven with a delay holds nobody up.
    """
    return max(
        (
            retry.due
            for partition in queue.partitions
            for offset, retry in partition.progress[group].retries.items()
            if retry.attempt and retry.due > now_ms and offset not in partition.progress[group].leased
        ),
        default=None,
    )


def is_occupied(queue: Queue, group: int, now_ms: int) -> bool:
    return in_flight(queue, group) > 0 or retry_due_ms(queue, group, now_ms) is not None
