"""Recovery of the state from a journal: the last snapshot, then the tail. Start and rollback use the same code."""

from __future__ import annotations

import gc
from functools import partial
from typing import NamedTuple

import msgspec

from penstock.core import snapshot
from penstock.core.apply import apply
from penstock.core.offsets.agenda import ENTRY_BYTES, Read
from penstock.core.rebuild import end_replay
from penstock.core.records import GroupCreated, Published, QueueDeleted, QueuePurged
from penstock.core.state import Queue, Shard
from penstock.core.state.stored_chunk import ReadStored
from penstock.encryption.record_cipher import RecordCipher
from penstock.journal.blobs import decode_snapshot
from penstock.journal.codec import PREFIX, UnknownRecord, decode
from penstock.journal.frame import HEADER, FrameWriter
from penstock.journal.port import Damaged, EngineError, Place, ShardJournal
from penstock.runtime import chunk_blobs
from penstock.runtime.chunk_blobs import Peek, blob_name
from penstock.runtime.far import agenda_blobs_of, agendas_of, read_chunk
from penstock.runtime.index import PartitionIndex
from penstock.runtime.log import MessageLog
from penstock.runtime.node_memory import NodeMemory
from penstock.runtime.stored import segment_name
from penstock.runtime.stored_ids import id_blobs_of
from penstock.runtime.stored_letters import letter_blobs_of


class Mark(msgspec.Struct, frozen=True):
    """A place in the journal that was current when a snapshot was taken."""

    index: int
    locator: int


class Snapshot(msgspec.Struct, frozen=True):
    """The state after the frame `index`, and where its messages lie."""

    index: int
    chain: bytes
    shard: Shard
    pieces: dict[tuple[int, int], PartitionIndex]
    marks: list[Mark]
    next_segment: int
    named_blobs: set[int]
    """Numbers of the blobs with chunks of state that it names."""
    sealed: int = 0
    """Up to this frame the journal may be left behind."""


class Recovered(NamedTuple):
    shard: Shard
    log: MessageLog
    writer: FrameWriter
    marks: list[Mark]
    next_segment: int
    named_blobs: set[int]
    """Those that the snapshot names; the state may no longer."""
    sealed: int
    """Up to this frame the journal may be left behind."""
    replayed: int
    """Frames applied on top of the snapshot."""


async def recover(
    journal: ShardJournal, node: bytes, memory: NodeMemory | None = None, cipher: RecordCipher | None = None
) -> Recovered:
    """Raises Damaged if the journal does not add up; then nothing may be served from it.

    No message is decrypted here: the state follows from the columns that are readable.
    """
    # Nearly everything that is made here stays: collections would go through it again and again.
    collected = gc.isenabled()
    gc.disable()
    try:
        return await _recover(journal, node, memory, cipher)
    finally:
        if collected:
            gc.enable()


async def _recover(
    journal: ShardJournal, node: bytes, memory: NodeMemory | None, cipher: RecordCipher | None
) -> Recovered:
    log = MessageLog(journal, memory, cipher)
    start = Snapshot(0, b"", Shard(), {}, [], 1, set())
    start.shard.replaying = True
    read = partial(read_chunk, journal)
    head = await journal.head()
    start_name = "" if head is None else head.snapshot
    if head is not None:
        (data,) = await journal.fetch([Place(start_name, 0, await _size_of(journal, start_name))])
        start = load_snapshot(start_name, data, partial(chunk_blobs.read_chunk, await _chunk_blobs(journal)))
    index, shard = start.index, start.shard
    log.indexes.update(start.pieces)
    if journal.tail.index < index:
        raise Damaged(
            f"the journal ends with frame {journal.tail.index}, but a snapshot was taken after frame {index}: "
            "the store has lost its end"
        )
    if await journal.first_kept() > index + 1:
        raise Damaged(
            f"{start_name or 'snapshot-*'}, offset 0: the journal begins with frame {await journal.first_kept()}, and "
            f"no snapshot reaches beyond frame {index}: a snapshot or a journal file is missing"
        )
    replayed = 0
    async for locator, frame in journal.replay(max(0, index - 1)):
        if frame.index == index:
            if frame.chain != start.chain:
                raise Damaged(f"frame {index} is not the one the snapshot was taken after: the store has lost history")
            continue
        _replay(shard, log, read, locator, frame.index, frame.body)
        replayed += 1
    await _check_pieces(journal, log)
    await _check_agendas(journal, shard)
    end_replay(shard)
    for number, queue in shard.queues.items():
        for position, partition in queue.partitions.used():
            log.ends[number, position] = partition.end
    writer = FrameWriter(node, journal.term, journal.tail.index + 1, journal.tail.chain)
    return Recovered(shard, log, writer, start.marks, start.next_segment, start.named_blobs, start.sealed, replayed)


async def _size_of(journal: ShardJournal, name: str) -> int:
    size = dict(await journal.list_blobs(name)).get(name)
    if size is None:
        raise Damaged(f"{name}, offset 0: the shard starts from this snapshot, but the blob is missing")
    return size


async def _chunk_blobs(journal: ShardJournal) -> Peek:
    """A function that reads the blobs of client ids and dead letters. A snapshot names parts of them in no order, so
    they are fetched whole if they are not at hand."""
    if journal.traits.read_ms == 0:
        return journal.peek
    blobs = [*await journal.list_blobs("ids-"), *await journal.list_blobs("letters-")]
    fetched = await journal.fetch([Place(name, 0, size) for name, size in blobs])
    known = {name: data for (name, _), data in zip(blobs, fetched, strict=True)}

    def peek(name: str, skip: int, length: int) -> bytes:
        if name not in known:
            raise FileNotFoundError(name)
        return known[name][skip : skip + length]

    return peek


def load_snapshot(name: str, data: bytes, read: ReadStored) -> Snapshot:
    """Raises Damaged with the blob's name, whatever is wrong with it."""
    values = decode_snapshot(name, data)
    try:
        shard = snapshot.load(values["state"], read, replaying=True)
        pieces = {
            (queue, partition): PartitionIndex.load(columns)
            for queue, partition, columns in values["pieces"]
            if queue in shard.queues
        }
        for queue, partition, prints in values.get("keys", ()):
            if (queue, partition) in pieces:
                pieces[queue, partition].load_prints(prints)
        marks = [Mark(at, locator) for at, locator in values["marks"]]
        return Snapshot(
            values["index"], values["chain"], shard, pieces, marks, values["next_segment"],
            set().union(*map(named_by, shard.queues.values())), values.get("sealed", 0),
        )  # fmt: skip
    except (EngineError, OSError):
        raise  # of another blob, which its message names; or of a read that the disk refused
    except Exception as error:  # its checksum is right, so another program wrote it: nothing in it can be relied on
        raise Damaged(f"{name}: this is not a snapshot that can be read here: {error!r}") from error


NO_BLOBS: frozenset[int] = frozenset()
"""One for all queues: an empty set takes 200 bytes."""


def named_by(queue: Queue) -> frozenset[int]:
    """Blobs that the state of a queue is spread over."""
    found = agenda_blobs_of(queue) | id_blobs_of(queue) | letter_blobs_of(queue)
    return frozenset(found) if found else NO_BLOBS


async def _check_pieces(journal: ShardJournal, log: MessageLog) -> None:
    """Every file with stored messages is there, and as long as it was; its records are checked when they are read.

    After the tail was applied: segments of queues that were deleted since the snapshot may be gone already.
    """
    sizes = dict(await journal.list_blobs("segment-"))
    for index in log.indexes.values():
        for locator, skip, length in zip(index.locators, index.skips, index.lengths, strict=True):
            if locator > 0:
                if not journal.has(locator, skip + length):
                    raise Damaged(f"{journal.where(locator, skip)}: messages are stored here, but the file ends before")
                continue
            name = segment_name(-locator)
            if sizes.get(name, -1) < skip + length:
                found = f"ends after {sizes[name]} bytes" if name in sizes else "is missing"
                raise Damaged(f"{name}, offset {skip}: messages are stored here, but the segment {found}")


async def _check_agendas(journal: ShardJournal, shard: Shard) -> None:
    """The same for agenda entries that lie elsewhere."""
    sizes = dict(await journal.list_blobs("agenda-"))
    for owned in (owned for queue in shard.queues.values() for owned in agendas_of(queue)):
        for chunk in owned.agenda.chunks():
            name = blob_name("agenda", chunk.blob)
            if sizes.get(name, -1) < chunk.start + chunk.entries * ENTRY_BYTES:
                found = f"ends after {sizes[name]} bytes" if name in sizes else "is missing"
                raise Damaged(f"{name}, offset {chunk.start}: due times are stored here, but the blob {found}")


def _replay(shard: Shard, log: MessageLog, read: Read, locator: int, index: int, body: memoryview) -> None:
    try:
        for at, record in decode(body):
            if isinstance(record, GroupCreated):
                # Which delays were over when it began decides what it skips.
                for _, partition in shard.queues[record.queue].partitions.used():
                    partition.schedule.bring(record.at, read)
            apply(shard, record)
            if isinstance(record, Published):
                length = _length(body, at)
                log.add(record, locator, HEADER.size + at, length, hot=False)
            elif isinstance(record, QueueDeleted | QueuePurged):
                log.let_go(record)
    except UnknownRecord as error:
        raise Damaged(f"frame {index}: {error}") from None


def _length(body: memoryview, at: int) -> int:
    meta, attached, _ = PREFIX.unpack_from(body, at)
    return PREFIX.size + int(meta) + int(attached)
