"""Applying the positions that readers keep with the broker."""

from __future__ import annotations

from penstock import limits
from penstock.core import records
from penstock.core.offsets.ranges import pairs
from penstock.core.state import KeptOffsets, Shard


def apply_kept(shard: Shard, record: records.OffsetsKept) -> None:
    readers = shard.queues[record.queue].readers
    readers.pop(record.client, None)
    if record.offsets:
        # At the end: the order is that of their last use.
        readers[record.client] = KeptOffsets(dict(pairs(record.offsets)), record.at)
    while readers:
        client = next(iter(readers))
        if readers[client].used_at > record.at - limits.READER_FORGOTTEN_MS:
            break
        del readers[client]
