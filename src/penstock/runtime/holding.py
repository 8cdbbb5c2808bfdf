"""The bytes that an archive hold keeps from being deleted."""

from __future__ import annotations

from penstock.core.state import Hold
from penstock.runtime.loop import ShardLoop


def spanned_bytes(loop: ShardLoop, hold: Hold) -> int:
    """The bytes from the hold's positions to the end of all that it holds: its owner has not copied them yet.

    Journal files are counted as a whole. A message may count twice, in the journal and in its queue's own segments.
    """
    spanned = loop.journal.bytes_since(hold.index) if hold.index else 0
    for number, offsets in hold.offsets.items():
        queue = loop.shard.queues.get(number)
        for position in range(len(queue.partitions) if queue is not None else 0):
            index = loop.log.indexes.get((number, position))
            if index is not None:
                spanned += sum(index.sizes[index.at(offsets.get(position, 0)) :])
    return spanned
