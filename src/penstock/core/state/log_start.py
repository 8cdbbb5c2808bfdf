"""Where the log of a partition begins, in queues that keep nothing for later readers."""

from __future__ import annotations

from penstock.core.offsets.ranges import drop_range
from penstock.core.state import Partition, Queue


def move_start(queue: Queue, partition: Partition) -> None:
    """Where nothing is kept for later readers, the log begins where the slowest group is; or the slowest archive."""
    if queue.config.retention.mode == "until_acked" and partition.progress:
        start = min([progress.floor for progress in partition.progress.values()])
        if partition.held_from is not None:
            start = min(start, partition.held_from)
        if start > partition.start:
            if partition.max_retries:
                drop_range(partition.max_retries, partition.start, start)
            partition.start = start
            partition.gone.remove_below(start)
            partition.delayed.remove_below(start)
            drop_traits(partition, start)
            partition.timeless.remove_below(start)


def drop_traits(partition: Partition, below: int) -> None:
    """A message that was given up may be redriven, and takes its place in the order again: its traits stay."""
    if partition.traits.present:
        lowest = partition.dead.lowest()
        partition.traits.drop_below(below if lowest is None else min(below, lowest))
