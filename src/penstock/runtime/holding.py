"""How much a hold keeps from being let go, in bytes."""

from __future__ import annotations

from penstock.core.state import Hold
from penstock.runtime.loop import ShardLoop


def spanned_bytes(loop: ShardLoop, hold: Hold) -> int:
    """From where the hold is to the end of everything it holds: what its owner still has to copy, and the disk to keep.

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
