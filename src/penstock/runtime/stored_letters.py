"""Chunks of dead letters in blobs: a chunk is written when it has changed, so a snapshot costs what has changed.

Letters are added at the end of the last chunk of their group and taken anywhere. A chunk that changes leaves its bytes
in the old blob behind; a blob of which little is in use is written again with others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from penstock.core.state import Queue, Shard
from penstock.core.state.letter_chunks import LetterChunk, encoded_bytes
from penstock.journal.blobs import LettersDescription, LettersPart
from penstock.runtime.chunk_blobs import BLOB_BYTES_MAX, ChunkWriter, blob_sizes, sparse_blobs

STEP_QUEUES = 100
"""Queues that are looked at in one step."""
STEP_CHUNKS = 1_000
"""Chunks of one queue that are looked at in one step."""


class OwnedChunk(NamedTuple):
    """A chunk and its owner."""

    queue: Queue
    partition: int
    group: int
    chunk: LetterChunk

    @property
    def bytes(self) -> int:
        return encoded_bytes(len(self.chunk), len(self.chunk.texts))


def chunks_of(queue: Queue) -> list[OwnedChunk]:
    return [
        OwnedChunk(queue, number, group, chunk)
        for number, partition in queue.partitions.used()
        for group in partition.dead.groups()
        for chunk in partition.dead.order(group).chunks
    ]


def letter_blobs_of(queue: Queue) -> set[int]:
    """Blobs with dead letters of this queue."""
    return {owned.chunk.stored.blob for owned in chunks_of(queue) if owned.chunk.stored is not None}


class StoredLetters:
    """Writes chunks to blobs, in steps between which the event loop runs."""

    def __init__(self, writer: ChunkWriter, letters_min: int, on_moved: Callable[[int], None]):
        self._writer = writer
        self._letters_min = letters_min
        """Chunks with fewer letters than this stay part of the snapshot."""
        self._on_moved = on_moved
        """Called with the number of a queue whose letters lie elsewhere now."""

    async def store(self, shard: Shard) -> None:
        sparse = await self._sparse(shard)
        batch: list[OwnedChunk] = []
        size = 0
        async for owned in self._chunks(shard):
            stored = owned.chunk.stored
            if stored.blob in sparse if stored is not None else len(owned.chunk) >= self._letters_min:
                batch.append(owned)
                size += owned.bytes
            if size >= BLOB_BYTES_MAX:
                await self._write(batch)
                batch, size = [], 0
        if batch:
            await self._write(batch)

    async def _chunks(self, shard: Shard) -> AsyncIterator[OwnedChunk]:
        """Of all queues. The event loop runs from time to time, so chunks may change meanwhile."""
        for count, queue in enumerate(list(shard.queues.values()), 1):
            for number, owned in enumerate(chunks_of(queue), 1):
                yield owned
                if not number % STEP_CHUNKS:
                    await self._writer.pace.yield_to_loop()
            if not count % STEP_QUEUES:
                await self._writer.pace.yield_to_loop()

    async def _sparse(self, shard: Shard) -> set[int]:
        used: dict[int, int] = {}
        async for owned in self._chunks(shard):
            if (stored := owned.chunk.stored) is not None:
                used[stored.blob] = used.get(stored.blob, 0) + owned.bytes
        return set(sparse_blobs(used, await blob_sizes(self._writer.journal, "letters"))) if used else set()

    async def _write(self, batch: list[OwnedChunk]) -> None:
        """Chunks that change or go meanwhile stay as they are: nothing names what was written of them."""
        data, changes, parts = [], [], []
        for owned in batch:
            data.append(owned.chunk.encode())
            changes.append(owned.chunk.changes)
            parts.append(LettersPart(owned.queue.path, owned.partition, owned.group, len(owned.chunk)))
            await self._writer.pace.yield_to_loop()
        places = await self._writer.write("letters", LettersDescription(parts), data)
        for owned, before, place in zip(batch, changes, places, strict=True):
            if owned.chunk.changes == before:
                owned.chunk.stored = place
                self._on_moved(owned.queue.number)
