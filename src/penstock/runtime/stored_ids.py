"""Chunks of client ids in blobs: written once, deleted when all ids of a blob are forgotten, about a day later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from penstock.core.state import Queue, Shard
from penstock.core.state.client_ids import IdChunk
from penstock.journal.blobs import IdsDescription, IdsPart
from penstock.runtime.chunk_blobs import BLOB_BYTES_MAX, ChunkWriter

STEP_QUEUES = 100
"""Queues without work that are passed over in one step."""


def id_blobs_of(queue: Queue) -> set[int]:
    """Blobs with client ids of this queue."""
    return {chunk.stored.blob for chunk in queue.dedup.ids.chunks if chunk.stored is not None}


class StoredIds:
    """Writes chunks to blobs, in steps between which the event loop runs."""

    def __init__(self, writer: ChunkWriter, ids_min: int, on_moved: Callable[[int], None]):
        self._writer = writer
        self._ids_min = ids_min
        """Fewer ids than this at the end of a log stay part of the snapshot."""
        self._on_moved = on_moved
        """Called with the number of a queue whose ids lie elsewhere now."""

    async def store(self, shard: Shard) -> None:
        batch: list[tuple[Queue, IdChunk]] = []
        size = 0
        async for queue, chunk in self._unstored(shard):
            batch.append((queue, chunk))
            size += len(chunk.digests) + chunk.run_bytes
            if size >= BLOB_BYTES_MAX:
                await self._write(batch)
                batch, size = [], 0
        if batch:
            await self._write(batch)

    async def _unstored(self, shard: Shard) -> AsyncIterator[tuple[Queue, IdChunk]]:
        for count, queue in enumerate(list(shard.queues.values()), 1):
            for chunk in queue.dedup.ids.closed_chunks(self._ids_min):
                if chunk.stored is None:
                    yield queue, chunk
                    await self._writer.pace.yield_to_loop()
            if not count % STEP_QUEUES:
                await self._writer.pace.yield_to_loop()

    async def _write(self, batch: list[tuple[Queue, IdChunk]]) -> None:
        data = []
        for _, chunk in batch:
            data.append(chunk.encode(len(chunk), len(chunk.starts)))
            await self._writer.pace.yield_to_loop()
        description = IdsDescription([IdsPart(queue.path, len(chunk)) for queue, chunk in batch])
        for (queue, chunk), place in zip(batch, await self._writer.write("ids", description, data), strict=True):
            chunk.stored = place
            self._on_moved(queue.number)
