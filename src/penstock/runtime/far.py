"""Agenda entries due far in the future: written to blobs, read back before they are due, merged when few are left.

A blob holds chunks of many agendas (`chunk_blobs.py`), each chunk entries of one stretch of one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Literal

from penstock.core.offsets.agenda import ENTRY_BYTES, Agenda, Chunk, Keep, Piece, Read
from penstock.core.state import Partition, Queue, Shard
from penstock.core.state.stored_chunk import StoredChunk
from penstock.journal.blobs import AgendaDescription, AgendaPart
from penstock.journal.port import ShardJournal
from penstock.runtime import chunk_blobs
from penstock.runtime.chunk_blobs import BLOB_BYTES_MAX, ChunkWriter, blob_sizes, sparse_blobs

STEP_QUEUES = 100
"""Queues without work that are passed over in one step."""
PIECE_ENTRIES_MIN = 64
"""Fewer entries than this take less memory than the chunk that would replace them."""
VOID_ENTRIES_MIN = 4096
"""Void entries are removed if they are the majority and more than this."""


def read_chunk(journal: ShardJournal, chunk: Chunk) -> bytes:
    """Raises Damaged with the blob's name and the offset."""
    stored = StoredChunk(chunk.blob, chunk.start, chunk.crc)
    return chunk_blobs.read_chunk(journal.peek, "agenda", stored, chunk.entries * ENTRY_BYTES)


class Owned:
    """One agenda with its owner, and a predicate for the entries that are still valid."""

    __slots__ = ("agenda", "keep", "kind", "number", "queue", "void")

    def __init__(
        self, queue: Queue, number: int, kind: Literal["schedule", "expiries"], agenda: Agenda, keep: Keep, void: int
    ):
        self.queue = queue
        self.number = number
        self.kind: Literal["schedule", "expiries"] = kind
        self.agenda = agenda
        self.keep = keep
        self.void = void
        """A lower bound of the messages in it that no longer wait."""

    @property
    def mostly_void(self) -> bool:
        return self.void > VOID_ENTRIES_MIN and 2 * self.void > self.agenda.count


def agendas_of(queue: Queue) -> Iterator[Owned]:
    """Those with entries."""
    keeps = queue.config.retention.mode == "keep"
    for number, partition in queue.partitions.used():
        if partition.schedule.count:
            void = partition.schedule.count - partition.scheduled.count
            keep = partial(_is_scheduled, partition)
            yield Owned(queue, number, "schedule", partition.schedule, keep, void)
        if partition.expiries.count:
            living = partition.end - partition.start if keeps else queue.partition_depth(partition)
            keep = partial(_can_expire, partition, keeps)
            yield Owned(queue, number, "expiries", partition.expiries, keep, partition.expiries.count - living)


def _is_scheduled(partition: Partition, due: int, first: int, count: int) -> bool:
    if count == 1:
        return first in partition.scheduled and partition.moved.get(first, due) == due
    return bool(partition.scheduled_in(due, first, first + count))


def _can_expire(partition: Partition, keeps: bool, due: int, first: int, count: int) -> bool:  # noqa: ARG001  a `Keep`
    return bool(partition.expiring_in(first, first + count, keeps=keeps))


def agenda_blobs_of(queue: Queue) -> set[int]:
    """Blobs with entries of the agendas of this queue."""
    return {
        chunk.blob
        for _, partition in queue.partitions.used()
        for agenda in (partition.schedule, partition.expiries)
        if agenda.count
        for chunk in agenda.chunks()
    }


class FarEntries:
    """The housekeeper's part of it. Everything happens in steps between which others have their turn."""

    def __init__(self, writer: ChunkWriter, entries_min: int, on_moved: Callable[[int], None]):
        self._writer = writer
        self._pace = writer.pace
        self._entries_min = entries_min
        """Fewer entries than this stay in memory."""
        self._on_moved = on_moved
        """Called with the number of a queue whose entries lie elsewhere now."""
        self._read: Read = partial(read_chunk, writer.journal)

    async def tidy(self, shard: Shard) -> None:
        """Remove void entries, merge sparse blobs, write far entries to blobs."""
        await self._sweep(shard)
        await self._gather(shard)
        in_memory = 0
        async for owned in self._agendas(shard):
            in_memory += owned.agenda.far_in_memory()
        if in_memory >= self._entries_min:
            await self._spill(shard)

    async def _agendas(self, shard: Shard) -> AsyncIterator[Owned]:
        """Those with entries. The event loop runs from time to time."""
        for count, queue in enumerate(list(shard.queues.values()), 1):
            for owned in agendas_of(queue):
                yield owned
            if not count % STEP_QUEUES:
                await self._pace.yield_to_loop()

    async def _sweep(self, shard: Shard) -> None:
        async for owned in self._agendas(shard):
            if owned.mostly_void:
                self._on_moved(owned.queue.number)
                for _ in owned.agenda.sweep(owned.keep):
                    await self._pace.yield_to_loop()

    async def _gather(self, shard: Shard) -> None:
        """Read the used entries of sparse blobs back into memory, as many as fit into one blob."""
        needed: dict[int, int] = {}
        suspect: set[int] = set()
        async for owned in self._agendas(shard):
            for chunk in owned.agenda.chunks():
                needed[chunk.blob] = needed.get(chunk.blob, 0) + chunk.entries * ENTRY_BYTES
                if owned.mostly_void:
                    suspect.add(chunk.blob)
        chosen = sparse_blobs(needed, await blob_sizes(self._writer.journal, "agenda"))
        room = BLOB_BYTES_MAX
        victims: set[int] = set()
        for blob in dict.fromkeys([*chosen, *sorted(suspect)]):
            if needed[blob] <= room:
                victims.add(blob)
                room -= needed[blob]
        if victims:
            async for owned in self._agendas(shard):
                if victims & {chunk.blob for chunk in owned.agenda.chunks()}:
                    self._on_moved(owned.queue.number)
                    for _ in owned.agenda.recall(victims, self._read, owned.keep):
                        await self._pace.yield_to_loop()

    async def _spill(self, shard: Shard) -> None:
        batch: list[tuple[Owned, Piece]] = []
        size = 0
        async for owned in self._agendas(shard):
            self._on_moved(owned.queue.number)
            for piece in owned.agenda.freeze(min(self._entries_min, PIECE_ENTRIES_MIN)):
                assert piece.flat is not None
                batch.append((owned, piece))
                size += 8 * len(piece.flat)
                if size >= BLOB_BYTES_MAX:
                    await self._write(batch)
                    batch, size = [], 0
                await self._pace.yield_to_loop()
        if batch:
            await self._write(batch)

    async def _write(self, batch: list[tuple[Owned, Piece]]) -> None:
        about: list[AgendaPart] = []
        pieces: list[tuple[Piece, int, int]] = []
        data: list[bytes] = []
        for owned, piece in batch:
            flat = piece.flat
            if flat is not None and not piece.splitting:
                pieces.append((piece, len(flat) // 3, sum(flat[2::3])))
                about.append(AgendaPart(owned.queue.path, owned.number, owned.kind, len(flat) // 3))
                data.append(flat.tobytes())
        places = await self._writer.write("agenda", AgendaDescription(about), data)
        for (piece, entries, messages), (blob, start, crc) in zip(pieces, places, strict=True):
            if not piece.splitting:
                piece.flat, piece.chunk = None, Chunk(blob, start, entries, messages, crc, piece.min_due)
