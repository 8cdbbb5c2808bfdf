"""The progress of a group that starts at a given offset: at its creation and after a seek."""

from __future__ import annotations

from penstock.core.offsets.bits import OffsetBits
from penstock.core.offsets.ranges import RangeSet
from penstock.core.state.progress import Progress
from penstock.core.state.shard import Partition, Queue

STAYS = -1
"""Instead of an offset: the group stays where it is in this partition."""


def begin(queue: Queue, partition: Partition, group: int, start: int, at_ms: int) -> None:
    """The group begins at this offset now; whether it is new, or had begun elsewhere."""
    progress = begun_at(queue, partition, group, start)
    if not queue.config.indexed:
        _pass_over_scheduled(partition, group, progress, at_ms)
    partition.progress[group] = progress


def begun_at(queue: Queue, partition: Partition, group: int, start: int) -> Progress:
    """The progress of such a group, without the messages that its cursor passes over."""
    progress = Progress(start)
    over = list(partition.gone.within(start, partition.end))
    if queue.config.retention.mode == "until_acked":
        # Finished by all groups until now, so its bytes may be gone already.
        over += partition.finished(start, partition.end)
    if group in partition.progress and partition.dead:
        over += [(offset, offset + 1) for offset in partition.dead.offsets_of(group) if offset >= start]
    progress.mark_done(over)
    if queue.config.indexed:
        progress.cursor = partition.end
    return progress


def _pass_over_scheduled(partition: Partition, group: int, progress: Progress, at_ms: int) -> None:
    """The cursor of a new group passes over what is scheduled, as those of the others do, and over nothing else."""
    # A replay does not advance the schedule: messages that came due before the group began are not delayed for it.
    due_before = OffsetBits()
    for due, first, stop in partition.schedule.due_by(at_ms):
        for inside, after in partition.scheduled_in(due, first, stop):
            due_before.add(inside, after)
    delayed = RangeSet()
    # In order: a set of ranges grows at its end for nothing, and in its middle by moving all that is behind.
    for first, stop in partition.scheduled.stretches(progress.floor, partition.end):
        for inside, after in due_before.gaps(first, stop):
            delayed.add(inside, after)
    if partition.progress.keys() <= {group}:
        partition.delayed = delayed
        return
    for first, stop in partition.delayed.within(progress.floor, partition.end):
        for inside, after in delayed.gaps(first, stop):
            progress.undelayed.add(inside, after)
    # All other cursors have passed them.
    missing = [piece for first, stop in delayed for piece in partition.delayed.gaps(first, stop)]
    if missing:
        partition.delayed = RangeSet(sorted([*partition.delayed, *missing]))
