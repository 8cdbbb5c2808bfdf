"""How much of what a shard stores is still wanted: an estimate, from sums that are kept anyway.

Its cost grows with the number of partitions that have messages, not with the number of messages.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.state import Partition, Queue
from penstock.runtime.index import PartitionIndex
from penstock.runtime.loop import ShardLoop
from penstock.runtime.pace import Pace

SURVEY_PARTITIONS = 500
"""Partitions surveyed between two turns of the event loop."""


class Wanted(NamedTuple):
    """Bytes of messages that can still be asked for."""

    sealed: int
    """In segments."""
    total: int
    """In segments and in the journal."""


def wanted_messages(queue: Queue, partition: Partition) -> int:
    """About how many messages of a partition can still be asked for, counted rather too high than too low."""
    if queue.config.retention.mode == "keep" or not partition.progress:
        wanted = partition.end - partition.start - partition.gone.count
    else:
        wanted = queue.partition_depth(partition)
        if partition.held_from is not None:
            wanted = max(wanted, partition.end - max(partition.start, partition.held_from))
    return wanted + len(partition.dead)


async def survey(loop: ShardLoop, pace: Pace) -> Wanted:
    """Of all partitions. Messages are assumed to be finished in the order of their offsets."""
    sealed = total = 0
    places = list(loop.log.indexes.items())
    pace.begin()
    for begin in range(0, len(places), SURVEY_PARTITIONS):
        for (number, position), index in places[begin : begin + SURVEY_PARTITIONS]:
            queue = loop.shard.queues.get(number)
            if queue is None or position >= len(queue.partitions):
                continue
            wanted = _wanted_in(index, min(index.count, wanted_messages(queue, queue.partitions[position])))
            sealed += wanted.sealed
            total += wanted.total
        await pace.yield_to_loop()
    return Wanted(sealed, total)


def _wanted_in(index: PartitionIndex, messages: int) -> Wanted:
    recent = index.count - index.sealed_count
    sealed = max(0, messages - recent) * index.sealed_size // max(1, index.sealed_count)
    in_journal = min(messages, recent) * (index.size - index.sealed_size) // max(1, recent)
    return Wanted(sealed, sealed + in_journal)
