"""Where the log of a partition begins under the bounds of mode `keep`."""

from __future__ import annotations

from penstock.core.config import Retention
from penstock.core.state import Queue
from penstock.runtime.log import MessageLog


def first_kept(log: MessageLog, queue: Queue, number: int, retention: Retention, now_ms: int) -> int:
    """The first stored offset of a partition that these bounds keep; its start if they remove no message."""
    partition = queue.partitions[number]
    start = partition.start
    index = log.indexes.get((queue.number, number))
    if retention.mode != "keep" or index is None or not len(index):
        return start
    if retention.ms is not None:
        young = log.offset_at(queue.number, number, now_ms - retention.ms)
        # If every stored message is old, a younger one may be on its way to the disk right behind them.
        start = max(start, index.ends[-1] if young is None else young)
    if retention.bytes is not None:
        held, piece = 0, len(index)
        while piece > 0 and (held := held + index.size_from(piece - 1, partition.start)) <= retention.bytes:
            piece -= 1
        if piece > 0:
            start = max(start, index.firsts[piece] if piece < len(index) else index.ends[-1])
    return min(start, partition.end)
