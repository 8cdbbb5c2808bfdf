"""Moving live messages out of journal files and sparse segments, so that those files can be removed.

A message that is still wanted when its journal file grows old is copied into a sealed segment, a blob with messages of
one partition. A segment with few live messages left is rewritten together with them (compaction). The index of the
partition points to the copy as soon as the segment is durable; the file it came from is removed only after a snapshot
that names the new place.

All of it works in small steps on the event loop, with turns for everything else in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import accumulate

from penstock import limits
from penstock.core.ranges import RangeSet
from penstock.core.records import Published
from penstock.core.state import Partition, Queue
from penstock.journal.blobs import HEADER as BLOB_HEADER
from penstock.journal.blobs import SEGMENT_MAGIC, Seal, SegmentDescription, encode_description
from penstock.journal.codec import encode
from penstock.runtime.index import PartitionIndex, StoredPiece, key_prints
from penstock.runtime.log import StoredRun, cut_record, segment_name
from penstock.runtime.loop import ShardLoop
from penstock.runtime.pace import Pace
from penstock.runtime.recovery import Mark
from penstock.runtime.space import wanted_messages

SEGMENT_BYTES_MAX = 4 * limits.MIB
"""A segment is put together in memory."""
WEIGH_PIECES = 256
"""Pieces of the log weighed, or written down in an index, in one step."""
CHANGE_PIECES = 2_000
"""Pieces of the log picked out, or taken out of its index, in one step."""
SEGMENT_PIECES_MAX = 8_000
"""Pieces whose messages go into one segment: they lie side by side, which makes them cheap to take out."""
PART_BYTES = 256 * limits.KIB
"""Bytes of a blob that are put together and checksummed in one step."""
TRAIT_OFFSETS = 1 << 12
"""Offsets whose traits are looked at in one step."""
COMPACT_BELOW = 0.5
"""A segment with a smaller share of live messages than this is rewritten."""
UNLIMITED = 1 << 62

_Sealed = tuple[StoredRun, bytes, bytes, bytes | None]
"""A run of messages, its record's head and attachment, and the prints of its keys where they are known."""


class ShardReloaded(Exception):
    """The shard was read again from its journal during a round: decisions of the round may rest on a commit that was
    never written."""


class Sealer:
    """Copies live messages and forgets pieces without any."""

    def __init__(self, loop: ShardLoop, pace: Pace, take_number: Callable[[], int]):
        self._loop = loop
        self._pace = pace
        self._take_number = take_number
        self._log = loop.log
        """The log that the current round works on."""
        self.segment_bytes = 0
        """Bytes in all segments on the disk."""

    def begin(self) -> None:
        """A round begins, with the log as it is now."""
        self._log = self._loop.log
        self._pace.begin()

    def check_log(self) -> None:
        if self._loop.log is not self._log:
            raise ShardReloaded

    async def _breathe(self) -> None:
        await self._pace.breathe()
        self.check_log()

    def partitions(self) -> Iterator[tuple[Queue, int, Partition]]:
        for queue in list(self._loop.shard.queues.values()):
            for number, partition in enumerate(queue.partitions):
                yield queue, number, partition

    def _indexed(self) -> Iterator[tuple[Queue, int, Partition, PartitionIndex]]:
        """Partitions that have messages."""
        for queue, number, partition in self.partitions():
            index = self._loop.log.indexes.get((queue.number, number))
            if index is not None and len(index):
                yield queue, number, partition, index

    # -- what is live -------------------------------------------------------------------------------------------------

    def _live(self, queue: Queue, number: int, partition: Partition, first: int, stop: int) -> RangeSet:
        """Offsets of `[first, stop)` whose bytes may still be asked for. An offset that is not live never is again."""
        live = partition.live_in(first, stop, keeps=queue.config.retention.mode == "keep")
        for run in self._loop.replying():
            if (run.queue, run.partition) == (queue.number, number):
                live.add(max(first, run.first), min(stop, run.first + run.count))
        return live

    async def _weigh(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex
    ) -> AsyncIterator[tuple[StoredPiece, int, int, int]]:
        """(piece, its messages, its live messages, bytes of the live ones) for each piece.

        The index may change between two steps: a purge takes pieces away, and the numbers of the others shift.
        """
        pieces = index.places()
        for begin in range(0, len(pieces), WEIGH_PIECES):
            stop = min(begin + WEIGH_PIECES, len(pieces))
            live = self._live(queue, number, partition, pieces.firsts[begin], pieces.ends[stop - 1])
            for piece in range(begin, stop):
                first, end = pieces.firsts[piece], pieces.ends[piece]
                living = live.count_in(first, end)
                yield pieces.stored(piece), end - first, living, pieces.sizes[piece] * living // (end - first)
            await self._breathe()

    async def drop_dead(self) -> dict[tuple[int, int], dict[int, int]]:
        """Forget pieces without live messages, and the traits of messages that are not live.

        Returns for each partition its sparse segments, with the live bytes of each.
        """
        sparse: dict[tuple[int, int], dict[int, int]] = {}
        for queue, number, partition in self.partitions():
            index = self._loop.log.indexes.get((queue.number, number))
            # Where everything stored is wanted there is nothing to find: a large backlog costs nothing here.
            if index is not None and wanted_messages(queue, partition) < index.count:
                sparse[queue.number, number] = await self._drop_pieces(queue, number, partition, index)
            if queue.config.indexed:
                for first, stop in partition.traits.stretches(TRAIT_OFFSETS):
                    partition.traits.keep(first, stop, self._live(queue, number, partition, first, stop))
                    await self._breathe()
        return sparse

    async def _drop_pieces(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex
    ) -> dict[int, int]:
        """The partition's sparse segments, with their live bytes."""
        dead: list[StoredPiece] = []
        weights: dict[int, tuple[int, int, int]] = {}
        async for piece, messages, living, live_bytes in self._weigh(queue, number, partition, index):
            if not living and piece.end <= partition.end:
                dead.append(piece)
            if piece.locator < 0:
                stored, lived, size = weights.get(-piece.locator, (0, 0, 0))
                weights[-piece.locator] = (stored + messages, lived + living, size + live_bytes)
        for begin in range(0, len(dead), CHANGE_PIECES):
            index.replace(dead[begin : begin + CHANGE_PIECES])
            await self._breathe()
        return {
            segment: size
            for segment, (messages, living, size) in weights.items()
            if 0 < living < COMPACT_BELOW * messages
        }

    async def live_bytes_until(self, marks: Sequence[Mark]) -> list[int]:
        """For each mark the live bytes that lie in the journal up to it."""
        ends = [mark.locator for mark in marks]
        found = [0] * (len(marks) + 1)
        for queue, number, partition, index in self._indexed():
            async for piece, _, _, size in self._weigh(queue, number, partition, index):
                if piece.locator > 0:
                    found[bisect_left(ends, piece.locator)] += size
        return list(accumulate(found))[: len(marks)]

    # -- copying ------------------------------------------------------------------------------------------------------

    async def seal(
        self, bound: Mark | None, sparse: dict[tuple[int, int], dict[int, int]], room: int = UNLIMITED
    ) -> None:
        """Copy live messages out of the journal up to `bound`, and out of sparse segments as long as `room` lasts."""
        for queue, number, partition, index in self._indexed():
            chosen: set[int] = set()
            for segment, size in sorted(sparse.get((queue.number, number), {}).items(), key=lambda item: item[1]):
                if size <= room:
                    room -= size
                    chosen.add(segment)
            if bound is None and not chosen:
                continue
            upto = 0 if bound is None else bound.locator
            moving: list[StoredPiece] = []
            pieces = index.places()
            for begin in range(0, len(pieces), CHANGE_PIECES):
                moving += [
                    pieces.stored(piece)
                    for piece, locator in enumerate(pieces.locators[begin : begin + CHANGE_PIECES], begin)
                    if 0 < locator <= upto or -locator in chosen
                ]
                await self._breathe()
            await self._move(queue, number, partition, index, moving)

    async def _move(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex, pieces: list[StoredPiece]
    ) -> None:
        """A segment at a time: as soon as one is on the disk its messages are found there."""
        place = (queue.number, number)
        moved: list[StoredPiece] = []
        batch: list[_Sealed] = []
        size = 0
        for piece in pieces:
            for record in self._loop.log.records(place, piece):
                live = self._live(queue, number, partition, record.offset, record.offset + record.batch.count)
                for run in _runs(record, live, small=queue.config.indexed):
                    cut = cut_record(run)
                    head, attached = encode(cut)
                    prints = key_prints(cut.batch) if (piece.locator, piece.skip) in index.prints else None
                    batch.append((run, head, attached or b"", prints))
                    size += len(head) + len(attached or b"")
            moved.append(piece)
            if size >= SEGMENT_BYTES_MAX or len(moved) >= SEGMENT_PIECES_MAX or piece is pieces[-1]:
                fresh = await self._write_segment(queue, number, batch) if batch else None
                if self._loop.log.indexes.get(place) is not index:
                    return  # the queue was deleted, or the shard was read again
                index.replace(moved, fresh)
                moved, batch, size = [], [], 0
            await self._breathe()

    async def _write_segment(self, queue: Queue, number: int, batch: list[_Sealed]) -> PartitionIndex:
        """The places of these messages in a new segment."""
        segment = self._take_number()
        messages = sum(run.stop - run.first for run, *_ in batch)
        prefix = encode_description(
            SegmentDescription(queue.path, number, batch[0][0].first, batch[-1][0].stop, messages)
        )
        parts, pieces, held = [prefix], list[bytes](), 0
        for _, head, attached, _ in batch:
            pieces += (head, attached)
            held += len(head) + len(attached)
            if held >= PART_BYTES:
                parts.append(b"".join(pieces))
                pieces, held = [], 0
                await self._breathe()
        parts.append(b"".join(pieces))
        self.segment_bytes += await self.put_blob(segment_name(segment), SEGMENT_MAGIC, parts)
        self.check_log()
        fresh = PartitionIndex()
        at = BLOB_HEADER.size + len(prefix)
        for added, (run, head, attached, prints) in enumerate(batch, 1):
            length = len(head) + len(attached)
            first_id = run.record.id + run.first - run.record.offset
            fresh.add(run.first, run.stop, -segment, at, length, first_id, prints)
            at += length
            if not added % WEIGH_PIECES:
                await self._breathe()
        return fresh

    async def put_blob(self, name: str, magic: bytes, parts: Sequence[bytes]) -> int:
        """Store a blob with its checksum, which is computed in steps because it takes long. Returns its size."""
        seal = Seal(magic, sum(map(len, parts)))
        added = 0
        for part in parts:
            seal.add(part)
            added += len(part)
            if added >= PART_BYTES:
                added = 0
                await self._pace.breathe()
        await self._loop.journal.put_blob(name, [seal.header(), *parts])
        self._pace.begin()
        return BLOB_HEADER.size + sum(map(len, parts))


def _runs(record: Published, live: RangeSet, *, small: bool) -> Iterator[StoredRun]:
    """The live messages of a record, in the runs in which they are sealed."""
    each = len(record.batch.frame) // record.batch.count + 1
    step = max(1, limits.SEALED_SCATTERED_BYTES // each) if small else record.batch.count
    for first, stop in live:
        for begin in range(first, stop, step):
            yield StoredRun(record, begin, min(stop, begin + step))
