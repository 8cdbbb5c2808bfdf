"""The oldest message that a group could be given: what queues are compared by, and windows measured by."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop

from penstock.core.offsets.ranges import RangeSet
from penstock.core.state import Partition, Queue


def oldest_ready(queue: Queue, partition: Partition, group: int | None, now_ms: int) -> int | None:
    """The lowest offset that could be delivered to this group now; None if there is none."""
    progress = partition.progress.get(group) if group is not None else None
    if progress is None:
        return next((first for first, _ in free_for_newcomers(queue, partition)), None)
    if progress.adapter is not None:
        return progress.adapter.oldest()
    cursor = progress.on_path(partition, progress.cursor)
    offset = cursor if cursor < partition.end else None
    ready = progress.ready
    # Only what is surely stale is thrown away: this is also asked while time has done but a part of its work, and what
    # seems early then is all there is to remember the message by.
    while ready and (progress.is_done(ready[0]) or ready[0] in progress.leased):
        heappop(ready)
    if ready and (offset is None or ready[0] < offset):
        first = ready[0]
        if not progress.may_deliver(partition, first, now_ms):
            first = min((each for each in ready if progress.may_deliver(partition, each, now_ms)), default=-1)
        if first >= 0 and (offset is None or first < offset):
            offset = first
    return offset


def free_for_newcomers(queue: Queue, partition: Partition) -> Iterator[tuple[int, int]]:
    """Ranges of offsets that a group which begins now could be given at once, ascending. Costs what is taken of it.

    Not to be kept over a change of the partition.
    """
    over = RangeSet(list(partition.gone))
    if queue.config.retention.mode == "until_acked":
        for first, stop in partition.finished(partition.start, partition.end):
            over.add(first, stop)
    for first, stop in over.gaps(partition.start, partition.end):
        for free, busy in partition.scheduled.gaps(first, stop):
            yield from partition.overdue.gaps(free, busy)


def is_free_for_newcomers(queue: Queue, number: int, offset: int) -> bool:
    """The same question about one message."""
    partition = queue.partitions[number]
    if not partition.start <= offset < partition.end:
        return False
    if offset in partition.gone or offset in partition.scheduled or offset in partition.overdue:
        return False
    return queue.config.retention.mode == "keep" or not partition.finished(offset, offset + 1)
