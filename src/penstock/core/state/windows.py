"""Window buffers: a queue that delivers its messages when nothing has been published to it for a while.

`window_ms` is the length of that pause. A queue with a steady stream of publishes has no pause, so there is a second
rule: when the oldest ready message of a group has waited `window_max_wait_ms` (null: ten windows, at least a second;
0: no limit), all pending messages may be delivered. The first lease by the second rule marks the messages that are
pending at that moment as *flushed*: later leases may take them at any time.

The first rule needs one time per partition. The second rule needs the times of publishes: they are kept as marks,
rounded to a thousandth of the longest wait, and only as far back as that wait: about a thousand marks per partition at
most. Rounding makes a message appear younger, so a window never opens too early, and too late by a thousandth at most.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum

from penstock.core.config import QueueConfig
from penstock.core.order.oldest import oldest_ready
from penstock.core.records import Leased
from penstock.core.state import Partition, Queue, Shard, Window

_DEFAULT_WINDOWS = 10
_DEFAULT_MS_MIN = 1_000
_MARKS_PER_WAIT = 1_000


def max_wait_ms(config: QueueConfig) -> int:
    """0: there is no limit."""
    if config.window_max_wait_ms is None:
        return max(_DEFAULT_WINDOWS * config.window_ms, _DEFAULT_MS_MIN)
    return config.window_max_wait_ms


class Gate(Enum):
    CLOSED = "closed"
    OPEN = "open"
    FLUSH = "flush"
    """Open because the oldest message has waited long enough: the lease that takes it flushes the pending messages."""


def gate(queue: Queue, group: int, now_ms: int) -> Gate:
    """Whether this group may be given what is pending."""
    newest = newest_at(queue)
    if newest is None or now_ms >= newest + queue.config.window_ms:
        return Gate.OPEN
    longest = max_wait_ms(queue.config)
    if not longest:
        return Gate.CLOSED
    if _is_flushed(queue, group, now_ms):
        return Gate.OPEN
    oldest = _oldest_at(queue, group, now_ms)
    return Gate.FLUSH if oldest is not None and now_ms >= oldest + longest else Gate.CLOSED


def opens_at(queue: Queue, now_ms: int) -> int | None:
    """When the window next opens for some group for which it is closed; None if it is open for all."""
    newest = newest_at(queue)
    if newest is None or now_ms >= newest + queue.config.window_ms:
        return None
    times = [newest + queue.config.window_ms]
    longest = max_wait_ms(queue.config)
    for group in queue.group_names if longest else ():
        oldest = _oldest_at(queue, group, now_ms)
        if oldest is not None and oldest + longest > now_ms:
            times.append(oldest + longest)
    return min(times)


def opens_for(queue: Queue, group: int, now_ms: int) -> int | None:
    """When the window opens for this group, if nothing more is published; None if it is open."""
    newest = newest_at(queue)
    if newest is None or gate(queue, group, now_ms) is not Gate.CLOSED:
        return None
    left_alone, longest = newest + queue.config.window_ms, max_wait_ms(queue.config)
    oldest = _oldest_at(queue, group, now_ms) if longest else None
    return left_alone if oldest is None else min(left_alone, oldest + longest)


def newest_at(queue: Queue) -> int | None:
    """When the newest message was published; None if nothing was since the window is there."""
    return max((partition.window.newest_at for partition in queue.partitions if partition.window), default=None)


def note_published(shard: Shard, queue: Queue, partition: Partition, first: int, at_ms: int) -> None:
    """A run that begins at offset `first` was published."""
    longest = max_wait_ms(queue.config)
    window = partition.window
    if window is None:
        window = partition.window = Window(at_ms, at_ms, [])
    window.newest_at = at_ms
    marks = window.marks
    if marks and at_ms - window.mark_from <= longest // _MARKS_PER_WAIT:
        marks[-1] = (marks[-1][0], at_ms)
    else:
        marks.append((first, at_ms))
        window.mark_from = at_ms
        _prune(partition, marks, at_ms - longest)
    arm(shard, queue, at_ms)


def _prune(partition: Partition, marks: list[tuple[int, int]], overdue_ms: int) -> None:
    """Drop the marks of messages that all groups have finished, and all but one of those that are overdue."""
    floor = min([progress.floor for progress in partition.progress.values()], default=partition.start)
    finished = bisect_right(marks, floor, key=_offset_of) - 1
    if finished > 0:
        del marks[:finished]
    overdue = bisect_right(marks, overdue_ms, key=_time_of) - 1
    if overdue > 0:
        marks[: overdue + 1] = [(marks[0][0], marks[overdue][1])]


def note_leased(shard: Shard, queue: Queue, record: Leased) -> None:
    """Messages were taken; the next of them opens the window at another time."""
    if record.flush:
        for partition in queue.partitions:
            if partition.window is not None:
                partition.window.flushed[record.group] = partition.end
    arm(shard, queue, record.at)


def configured(shard: Shard, queue: Queue, before: QueueConfig, at_ms: int) -> None:
    """The queue's settings have changed. Pending messages count as if they were published when the window was set."""
    if not queue.config.window_ms:
        for _, partition in queue.partitions.used():
            partition.window = None
        return
    if not before.window_ms:
        for partition in queue.partitions:
            if partition.end > partition.start:
                partition.window = Window(at_ms, at_ms, [(partition.start, at_ms)])
    arm(shard, queue, at_ms)


def arm(shard: Shard, queue: Queue, now_ms: int) -> None:
    """See to it that the queue is looked at when its window opens; soft."""
    due = opens_at(queue, now_ms)
    if due is not None:
        shard.arm(due, queue.number, 0)


def _oldest_at(queue: Queue, group: int, now_ms: int) -> int | None:
    """When the oldest message that is ready for this group was published."""
    oldest: int | None = None
    for partition in queue.partitions:
        offset = oldest_ready(queue, partition, group, now_ms)
        if offset is not None and partition.window is not None:
            marks = partition.window.marks
            at = marks[max(0, bisect_right(marks, offset, key=_offset_of) - 1)][1]
            oldest = at if oldest is None else min(oldest, at)
    return oldest


def _is_flushed(queue: Queue, group: int, now_ms: int) -> bool:
    """True if something is left of what was flushed."""
    for partition in queue.partitions:
        upto = partition.window.flushed.get(group, 0) if partition.window is not None else 0
        if upto:
            offset = oldest_ready(queue, partition, group, now_ms)
            if offset is not None and offset < upto:
                return True
    return False


def _offset_of(mark: tuple[int, int]) -> int:
    return mark[0]


def _time_of(mark: tuple[int, int]) -> int:
    return mark[1]
