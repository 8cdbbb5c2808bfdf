"""Chunks of client ids in blobs: written once, named by every snapshot from then on, deleted when all are forgotten.

A blob holds closed chunks of many queues. Each chunk has a checksum of its own, in memory and in the snapshot
(`StoredChunk`). The ids of a chunk expire about a day after they were added, and with them the blob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import google_crc32c

from penstock import limits
from penstock.core.state import Queue, Shard
from penstock.core.state.client_ids import IdChunk, StoredChunk
from penstock.journal.blobs import HEADER, IDS_MAGIC, IdsDescription, IdsPart, encode_description, seal_blob
from penstock.journal.port import Damaged, ShardJournal
from penstock.runtime.pace import Pace

BLOB_BYTES_MAX = 4 * limits.MIB
"""A blob is assembled in memory."""


Peek = Callable[[str, int, int], bytes | None]
"""(blob, skip, length) -> bytes, as `ShardJournal.peek`."""


def ids_name(number: int) -> str:
    return f"ids-{number:012d}"


def read_ids(peek: Peek, stored: StoredChunk, length: int) -> bytes:
    """Raises Damaged with the blob's name and the offset."""
    name = ids_name(stored.blob)
    try:
        data = peek(name, stored.start, length) or b""
    except FileNotFoundError:
        raise Damaged(f"{name}, offset 0: client ids are stored here, but the blob is missing") from None
    if len(data) != length or google_crc32c.value(data) != stored.crc:
        found = "the checksum does not match" if len(data) == length else f"{len(data)} of {length} bytes are left"
        raise Damaged(f"{name}, offset {stored.start}: {found}")
    return data


def id_blobs_of(queue: Queue) -> set[int]:
    """Blobs with client ids of this queue."""
    return {chunk.stored.blob for chunk in queue.dedup.ids.chunks if chunk.stored is not None}


class StoredIds:
    """Writes chunks to blobs, in steps between which the event loop runs."""

    def __init__(
        self,
        journal: ShardJournal,
        next_number: Callable[[], int],
        ids_min: int,
        pace: Pace,
        on_moved: Callable[[int], None],
    ):
        self._journal = journal
        self._on_moved = on_moved
        """Called with the number of a queue whose ids lie elsewhere now."""
        self._next_number = next_number
        self._ids_min = ids_min
        """Fewer ids than this at the end of a log stay part of the snapshot."""
        self._pace = pace

    async def store(self, shard: Shard) -> None:
        batch: list[tuple[Queue, IdChunk]] = []
        size = 0
        for queue, chunk in self._unstored(shard):
            batch.append((queue, chunk))
            size += len(chunk.digests) + chunk.run_bytes
            if size >= BLOB_BYTES_MAX:
                await self._write(batch)
                batch, size = [], 0
            await self._pace.yield_to_loop()
        if batch:
            await self._write(batch)

    def _unstored(self, shard: Shard) -> Iterator[tuple[Queue, IdChunk]]:
        for queue in list(shard.queues.values()):
            for chunk in queue.dedup.ids.closed_chunks(self._ids_min):
                if chunk.stored is None:
                    yield queue, chunk

    async def _write(self, batch: list[tuple[Queue, IdChunk]]) -> None:
        number = self._next_number()
        prefix = encode_description(IdsDescription([IdsPart(queue.path, len(chunk)) for queue, chunk in batch]))
        parts, stored, at = [prefix], [], HEADER.size + len(prefix)
        for _, chunk in batch:
            data = chunk.encode(len(chunk), len(chunk.starts))
            parts.append(data)
            stored.append(StoredChunk(number, at, google_crc32c.value(data)))
            at += len(data)
            await self._pace.yield_to_loop()
        await self._journal.put_blobs([(ids_name(number), seal_blob(IDS_MAGIC, parts))])
        self._pace.begin()
        for (queue, chunk), place in zip(batch, stored, strict=True):
            chunk.stored = place
            self._on_moved(queue.number)
