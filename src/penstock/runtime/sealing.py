"""Moving live messages out of journal files and sparse segments, so that those files can be removed.

A message that is still wanted when its journal file grows old is copied into a sealed segment. A partition with many of
them fills segments of its own; those of others share segments, so that a thousand small queues cost one file and not a
thousand. A segment with few live messages left is rewritten together with them (compaction). The index of a partition
points to the copy as soon as the segment is durable; the file it came from is removed only after a snapshot that names
the new place.

All of it works in small steps on the event loop, with turns for everything else in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock import limits
from penstock.core.offsets.ranges import RangeSet
from penstock.core.records import Published
from penstock.core.state import Partition, Queue
from penstock.journal.blobs import HEADER as BLOB_HEADER
from penstock.journal.blobs import SEGMENT_MAGIC, Seal, SegmentDescription, SegmentPart, encode_description
from penstock.journal.codec import encode
from penstock.runtime.index import SPAN_MAX, PartitionIndex, StoredPiece, key_prints
from penstock.runtime.log import StoredRun, cut_record
from penstock.runtime.loop import ShardLoop
from penstock.runtime.node_memory import PieceKey
from penstock.runtime.pace import Pace
from penstock.runtime.recovery import Mark
from penstock.runtime.snapshots import ShardReloaded
from penstock.runtime.space import wanted_messages
from penstock.runtime.stored import segment_name, when_at_hand

SEGMENT_BYTES_MAX = 4 * limits.MIB
"""A segment is put together in memory. A partition with so much to copy has a segment of its own."""
STEP_PARTITIONS = 200
"""Partitions without work that are passed over in one step."""
WEIGH_PIECES = 256
"""Pieces of the log weighed, or written down in an index, in one step."""
CHANGE_PIECES = 2_000
"""Pieces of the log picked out, or taken out of its index, in one step."""
SEGMENT_PIECES_MAX = 8_000
"""Pieces whose messages go into one segment: they lie side by side, which makes them cheap to take out."""
SEGMENT_PARTS_MAX = 256
"""Partitions that share one segment."""
PART_BYTES = 256 * limits.KIB
"""Bytes of a blob that are put together and checksummed in one step."""
TRAIT_OFFSETS = 1 << 12
"""Offsets whose traits are looked at in one step."""
COMPACT_BELOW = 0.5
"""A segment of which a smaller share of bytes is live than this is rewritten."""
STEP_LOCATORS = 20_000
"""Locators of stored pieces that are looked at in one step."""
UNLIMITED = 1 << 62
FETCH_BYTES = 1 * limits.MIB
"""Bytes of pieces that are fetched together."""


class _Sealed(NamedTuple):
    """A run of messages to be copied."""

    first: int
    stop: int
    id: int
    """Of the first message."""
    head: bytes
    attached: bytes
    prints: bytes | None
    """Of its keys, where they are known."""
    damaged: bool = False


class _Part(NamedTuple):
    """Messages of one partition that go into a segment."""

    path: str
    place: tuple[int, int]
    """Queue and partition."""
    places: PartitionIndex
    """Of the partition."""
    copies: list[_Sealed]
    size: int
    moved: list[StoredPiece]
    """The pieces that the copies replace."""

    @property
    def description(self) -> SegmentPart:
        first, stop = self.copies[0].first, self.copies[-1].stop
        messages = sum([copy.stop - copy.first for copy in self.copies])
        return SegmentPart(self.path, self.place[1], first, stop, messages)


class Sealer:
    """Copies live messages and forgets pieces without any."""

    def __init__(self, loop: ShardLoop, pace: Pace, take_number: Callable[[], int]):
        self._loop = loop
        self._pace = pace
        self._take_number = take_number
        self._log = loop.log
        """The log that the current round works on."""
        self._parts: list[_Part] = []
        """Of the next segment that several partitions share."""
        self._shared_bytes = 0
        """Of these parts."""
        self.segment_bytes = 0
        """Bytes in all segments on the disk."""

    def begin(self) -> None:
        """A round begins, with the log as it is now."""
        self._log = self._loop.log
        self._parts, self._shared_bytes = [], 0
        self._pace.begin()

    def check_log(self) -> None:
        if self._loop.log is not self._log:
            raise ShardReloaded

    async def _yield_to_loop(self) -> None:
        await self._pace.yield_to_loop()
        self.check_log()

    async def indexed(self) -> AsyncIterator[tuple[Queue, int, Partition, PartitionIndex]]:
        """Partitions that have messages. The event loop runs from time to time, so the shard may change meanwhile."""
        for count, (number, position) in enumerate(list(self._log.indexes), 1):
            queue, index = self._loop.shard.queues.get(number), self._log.indexes.get((number, position))
            if queue is not None and index is not None and len(index) and position < len(queue.partitions):
                yield queue, position, queue.partitions[position], index
            if not count % STEP_PARTITIONS:
                await self._yield_to_loop()

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
            await self._yield_to_loop()

    async def drop_dead(self) -> dict[int, int]:
        """Forget pieces without live messages, and the traits of messages that are not live.

        Returns the sparse segments, with the live bytes of each.
        """
        dead_bytes: dict[int, int] = {}
        async for queue, number, partition, index in self.indexed():
            # Where everything stored is wanted there is nothing to weigh, however large the backlog is.
            if wanted_messages(queue, partition) < index.count:
                await self._drop_pieces(queue, number, partition, index, dead_bytes)
            if queue.config.indexed:
                for first, stop in partition.traits.stretches(TRAIT_OFFSETS):
                    partition.traits.keep(first, stop, self._live(queue, number, partition, first, stop))
                    await self._yield_to_loop()
        sizes = {
            int(name.removeprefix("segment-")): size for name, size in await self._loop.journal.list_blobs("segment-")
        }
        return {
            segment: used - dead_bytes.get(segment, 0)
            for segment, used in (await self._used_bytes()).items()
            if used - dead_bytes.get(segment, 0) < COMPACT_BELOW * sizes.get(segment, 0)
        }

    async def _drop_pieces(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex, dead_bytes: dict[int, int]
    ) -> None:
        """Adds to `dead_bytes` of each segment the bytes of dead messages whose pieces have live ones too."""
        dead: list[StoredPiece] = []
        async for piece, _, living, live_bytes in self._weigh(queue, number, partition, index):
            if not living and piece.end <= partition.end:
                dead.append(piece)
            elif piece.locator < 0:
                dead_bytes[-piece.locator] = dead_bytes.get(-piece.locator, 0) + piece.length - live_bytes
        for begin in range(0, len(dead), CHANGE_PIECES):
            index.replace(dead[begin : begin + CHANGE_PIECES])
            await self._yield_to_loop()

    async def _used_bytes(self) -> dict[int, int]:
        """Of each segment, the bytes of pieces that are in an index."""
        used: dict[int, int] = {}
        for index in list(self._log.indexes.values()):
            if not index.sealed_count:
                continue
            locators, lengths = index.locators[:], index.lengths[:]  # the index may change between two steps
            for begin in range(0, len(locators), STEP_LOCATORS):
                step = slice(begin, begin + STEP_LOCATORS)
                for locator, length in zip(locators[step], lengths[step], strict=True):
                    if locator < 0:
                        used[-locator] = used.get(-locator, 0) + length
                await self._yield_to_loop()
        return used

    async def live_bytes_until(self, marks: Sequence[Mark]) -> list[int]:
        """For each mark the live bytes that lie in the journal up to it."""
        ends = [mark.locator for mark in marks]
        found = [0] * (len(marks) + 1)
        async for queue, number, partition, index in self.indexed():
            async for piece, _, _, size in self._weigh(queue, number, partition, index):
                if piece.locator > 0:
                    found[bisect_left(ends, piece.locator)] += size
        return list(accumulate(found))[: len(marks)]

    # -- copying ------------------------------------------------------------------------------------------------------

    async def seal(self, bound: Mark | None, sparse: dict[int, int], room: int = UNLIMITED) -> None:
        """Copy live messages out of the journal up to `bound`, and out of sparse segments as long as `room` lasts."""
        chosen: set[int] = set()
        for segment, size in sorted(sparse.items(), key=lambda item: item[1]):
            if size > room:
                break
            room -= size
            chosen.add(segment)
        if bound is None and not chosen:
            return
        upto = 0 if bound is None else bound.locator
        async for queue, number, partition, index in self.indexed():
            moving: list[StoredPiece] = []
            pieces = index.places()
            for begin in range(0, len(pieces), CHANGE_PIECES):
                moving += [
                    pieces.stored(piece)
                    for piece, locator in enumerate(pieces.locators[begin : begin + CHANGE_PIECES], begin)
                    if 0 < locator <= upto or -locator in chosen
                ]
                await self._yield_to_loop()
            await self._move(queue, number, partition, index, moving)
        await self._write_shared()

    async def _move(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex, pieces: list[StoredPiece]
    ) -> None:
        """A segment, or a part of one, at a time."""
        place = (queue.number, number)
        moved: list[StoredPiece] = []
        copies: list[_Sealed] = []
        live = RangeSet()
        size = 0
        for at, piece in enumerate(pieces):
            if not at % WEIGH_PIECES:
                # For many pieces at once, because it looks at every group. Messages that end meanwhile are copied too.
                last = pieces[min(at + WEIGH_PIECES, len(pieces)) - 1]
                live = self._live(queue, number, partition, _first_offset(index, piece), last.end)
            await self._bring(place, pieces, at)
            for sealed in await self._copies(queue, index, piece, place, live):
                copies.append(sealed)
                size += len(sealed.head) + len(sealed.attached)
            moved.append(piece)
            if size >= SEGMENT_BYTES_MAX or len(moved) >= SEGMENT_PIECES_MAX or piece is pieces[-1]:
                if copies:
                    await self._add_part(_Part(queue.path, place, index, copies, size, moved))
                elif self._loop.log.indexes.get(place) is index:
                    index.replace(moved)
                moved, copies, size = [], [], 0
            await self._yield_to_loop()

    async def _bring(self, place: tuple[int, int], pieces: list[StoredPiece], at: int) -> None:
        """Have the piece at this number in memory, and those behind it if it has to be fetched."""
        stored = self._loop.log.pieces
        if stored.all_at_hand or stored.is_at_hand((*place, *pieces[at][:3])):
            return
        keys, size = list[PieceKey](), 0
        for piece in pieces[at : at + WEIGH_PIECES]:
            keys.append((*place, piece.locator, piece.skip, piece.length))
            size += piece.length
            if size >= FETCH_BYTES:
                break
        await stored.fetch(keys)

    async def _copies(
        self, queue: Queue, index: PartitionIndex, piece: StoredPiece, place: tuple[int, int], live: RangeSet
    ) -> list[_Sealed]:
        """The live messages of a piece. A damaged piece is copied byte by byte: what of it can be read stays readable,
        and the damage keeps its dead letters."""
        stored = self._loop.log.pieces
        # A piece that is copied is not asked for again at this place: the pieces that were asked for stay in memory.
        records, problem, _ = await when_at_hand(
            lambda: stored.read(place, piece.locator, piece.skip, piece.length, keep=False)
        )
        if queue.number not in self._loop.shard.queues:
            return []  # deleted while the messages were fetched
        if problem:
            raw = await stored.raw(piece.locator, piece.skip, piece.length)
            at = index.at(piece.end - 1)
            if at < len(index) and index.stored(at) == piece:
                return [_Sealed(index.firsts[at], piece.end, index.id_of(at), raw, b"", None, damaged=True)]
            return []
        copies = []
        for record in records:
            for run in _runs(record, live, small=queue.config.indexed):
                cut = cut_record(run)
                head, attached = encode(self._loop.stored_form(cut))
                prints = key_prints(cut.batch) if (piece.locator, piece.skip) in index.prints else None
                copies.append(_Sealed(run.first, run.stop, cut.id, head, attached or b"", prints))
        return copies

    async def _add_part(self, part: _Part) -> None:
        if part.size >= SEGMENT_BYTES_MAX or len(part.moved) >= SEGMENT_PIECES_MAX:
            await self._write_segment([part])
            return
        self._parts.append(part)
        self._shared_bytes += part.size
        if self._shared_bytes >= SEGMENT_BYTES_MAX or len(self._parts) >= SEGMENT_PARTS_MAX:
            await self._write_shared()

    async def _write_shared(self) -> None:
        parts, self._parts, self._shared_bytes = self._parts, [], 0
        if parts:
            await self._write_segment(parts)

    async def _write_segment(self, parts: list[_Part]) -> None:
        """As soon as the segment is on the disk, its messages are found there."""
        number = self._take_number()
        prefix = encode_description(SegmentDescription([part.description for part in parts]))
        body = [prefix, *[joined async for joined in self._joined(parts)]]
        fresh = []
        at = BLOB_HEADER.size + len(prefix)
        for part in parts:
            fresh.append(await self._index(part, number, at))
            at += part.size
        await self.put_blob(segment_name(number), SEGMENT_MAGIC, body)
        self.check_log()
        self.segment_bytes += at
        for part, copied in zip(parts, fresh, strict=True):
            if self._loop.log.indexes.get(part.place) is part.places:  # otherwise its queue was deleted
                part.places.replace(part.moved, copied)
            await self._yield_to_loop()

    async def _joined(self, parts: list[_Part]) -> AsyncIterator[bytes]:
        """The records of these parts, in portions of a bounded size."""
        pieces, held = list[bytes](), 0
        for part in parts:
            for sealed in part.copies:
                pieces += (sealed.head, sealed.attached)
                held += len(sealed.head) + len(sealed.attached)
                if held >= PART_BYTES:
                    yield b"".join(pieces)
                    pieces, held = [], 0
                    await self._yield_to_loop()
        yield b"".join(pieces)

    async def _index(self, part: _Part, segment: int, at: int) -> PartitionIndex:
        """Where the messages of a part are, which begins at this position of the segment."""
        fresh = PartitionIndex()
        for added, sealed in enumerate(part.copies, 1):
            length = len(sealed.head) + len(sealed.attached)
            fresh.add(sealed.first, sealed.stop, -segment, at, length, sealed.id, sealed.prints)
            if sealed.damaged:
                fresh.spans[-1] = SPAN_MAX  # the ids of its messages may have gaps
            at += length
            if not added % WEIGH_PIECES:
                await self._yield_to_loop()
        return fresh

    async def put_blob(self, name: str, magic: bytes, parts: Sequence[bytes]) -> int:
        """Store a blob with its checksum. Returns its size."""
        await self._loop.journal.put_blobs([(name, await self._sealed(magic, parts))])
        self._pace.begin()
        return BLOB_HEADER.size + sum(map(len, parts))

    async def _sealed(self, magic: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The parts of a blob, header first. Its checksum takes long, and is computed in steps."""
        seal = Seal(magic, sum(map(len, parts)))
        added = 0
        for part in parts:
            seal.add(part)
            added += len(part)
            if added >= PART_BYTES:
                added = 0
                await self._pace.yield_to_loop()
        return [seal.header(), *parts]


def _first_offset(index: PartitionIndex, piece: StoredPiece) -> int:
    """Of this piece; its end if it is no longer in the index."""
    at = index.at(piece.end - 1)
    return index.firsts[at] if at < len(index) else piece.end


def _runs(record: Published, live: RangeSet, *, small: bool) -> Iterator[StoredRun]:
    """The live messages of a record, in the runs in which they are sealed."""
    each = len(record.batch.frame) // record.batch.count + 1
    step = max(1, limits.SEALED_SCATTERED_BYTES // each) if small else record.batch.count
    for first, stop in live.within(record.offset, record.offset + record.batch.count):
        for begin in range(first, stop, step):
            yield StoredRun(record, begin, min(stop, begin + step))
