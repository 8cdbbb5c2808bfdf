"""What keeps a shard from growing with its history: snapshots, sealing, compaction, retention, trimming.

Nothing here is on the way of a message. One round runs when the journal has grown by a segment:

1. *Retention*: queues that keep messages let go of what is too old or too much.
2. *Sealing*: messages that are still wanted but lie in journal files about to be left behind move into segments of
   their own partition. Segments that are mostly unwanted by now are rewritten with them (compaction).
3. *Far entries*: what is due in an hour or later is written to blobs and need not be in memory (`far.py`).
4. *Snapshot*: the state, and where everything lies, after one exact journal frame.
5. *Trimming*: only now, with all of that durable, are journal files, old segments and the old snapshot removed.
   Journal files that an archive has not read yet stay (`core/holds.py`).

A crash between any two steps costs nothing but the work: the newest snapshot names what counts. Nothing here holds up
the event loop: what has to be walked over is walked over in steps, and everybody else has their turn in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from penstock import limits
from penstock.core import snapshot
from penstock.core.commands import EndHold, PruneLetters, TrimPartition
from penstock.core.holds import journal_held_from
from penstock.core.ranges import RangeSet
from penstock.core.records import Published
from penstock.core.slices import encoded
from penstock.core.state import Partition, Queue
from penstock.errors import DiskFull, PenstockError, Unavailable
from penstock.journal.blobs import HEADER as BLOB_HEADER
from penstock.journal.blobs import SEGMENT_MAGIC, SNAPSHOT_MAGIC, Seal, SegmentDescription, encode_description
from penstock.journal.codec import encode
from penstock.journal.port import EngineError, OutOfSpace
from penstock.runtime.far import FarEntries, blobs_in_use
from penstock.runtime.holding import spanned_bytes
from penstock.runtime.index import PartitionIndex, StoredPiece, key_prints
from penstock.runtime.log import StoredRun, cut_record, segment_name
from penstock.runtime.loop import ShardLoop
from penstock.runtime.pace import Pace
from penstock.runtime.recovery import Mark
from penstock.runtime.retention import first_kept

RETENTION_EVERY_S = 30.0
SEGMENT_BYTES_MAX = 4 * limits.MIB
"""A segment is put together in memory."""
WEIGH_PIECES = 256
"""Pieces of the log weighed, or written down in an index, in one go."""
CHANGE_PIECES = 2_000
"""Pieces of the log picked out, or taken out of its index, in one go."""
SEGMENT_PIECES_MAX = 8_000
"""Pieces whose messages go into one segment: they lie side by side, which makes them cheap to take out."""
PART_BYTES = 256 * limits.KIB
"""Of a blob, put together and summed up in one go."""
TRAIT_OFFSETS = 1 << 12
"""Offsets whose traits are looked at in one go."""
COMPACT_BELOW = 0.5
"""A segment with a smaller share of wanted messages than this is rewritten."""


class _ReadAgain(Exception):
    """The shard was read again out of the journal, in the middle of a round that was about another one."""


class Upkeep:
    """The housekeeper of one shard."""

    def __init__(
        self,
        loop: ShardLoop,
        marks: list[Mark],
        next_segment: int,
        agenda_blobs: set[int],
        sealed: int,
        *,
        every_bytes: int,
        kept: int,
        far_entries: int,
        pace: Pace,
        shard_changed: bool,
        on_trouble: Callable[[str], None],
        on_round: Callable[[], None],
    ):
        self._loop = loop
        self._log = loop.log
        """That this round is about."""
        self._marks = marks
        self._next_segment = next_segment
        self._named_agendas = agenda_blobs
        """Blobs of agenda entries that the newest snapshot names."""
        self._sealed = sealed
        """Up to this frame nothing in the journal is needed to find a message or to start again."""
        self._pace = pace
        self._far = FarEntries(loop.journal, self._take_number, far_entries, pace)
        self._every_bytes = every_bytes
        self._kept = kept
        self._changed = shard_changed
        self._on_trouble = on_trouble
        self._on_round = on_round
        self._due = asyncio.Event()
        pace.behind = self._due.is_set
        self.rounds = 0
        loop.on_commit = self._on_commit
        self._task = asyncio.ensure_future(self._run())

    def _on_commit(self, committed_bytes: int) -> None:
        self._changed = True
        if committed_bytes >= self._every_bytes:
            self._due.set()

    async def _run(self) -> None:
        await self._remove_leftovers()
        while self._loop.failed is None:
            try:
                # Not `wait_for`: before Python 3.12 it forgets that it was cancelled when what it waits for has just
                # happened, and whoever stops the upkeep then waits for ever.
                async with asyncio.timeout(RETENTION_EVERY_S):
                    await self._due.wait()
            except TimeoutError:
                await self._retain()
                await self._trim_what_was_held()
                continue
            self._due.clear()
            self._loop.take_committed_bytes()
            try:
                await self.round()
            except (OutOfSpace, DiskFull):
                self._on_trouble("upkeep found the disk full; the next round tries again")
            except (EngineError, Unavailable):
                return  # the loop meets the same failure and reports it
            except Exception as error:  # a bug here must not stop the broker, nor be silent: nothing durable is lost
                self._on_trouble(f"a round of upkeep failed: {error!r}")

    async def round(self) -> None:
        """All five steps. Safe to call at any time; one at a time."""
        # What was decided before the disk was full may not have happened: who went on by it would throw away what is
        # wanted. The next round begins with what is true.
        with contextlib.suppress(_ReadAgain):
            await self._round()

    async def _breathe(self) -> None:
        await self._pace.breathe()
        self._check_log()

    def _check_log(self) -> None:
        if self._loop.log is not self._log:
            raise _ReadAgain

    async def _round(self) -> None:
        self._pace.begin()
        await self._retain()
        self._log = self._loop.log
        bound = self._marks[-self._kept] if len(self._marks) >= self._kept else None
        if bound is not None:
            await self._seal(bound)
        await self._drop_unwanted()
        await self._far.tidy(self._loop.shard)
        self._check_log()
        await self._snapshot(self._sealed if bound is None else bound.index)
        self._check_log()  # its messages are where they were, the snapshot may say otherwise
        if bound is not None:
            self._sealed = bound.index
            self._marks = [mark for mark in self._marks if mark.index > bound.index]
        await self._trim()
        await self._remove_leftovers()
        self.rounds += 1
        self._on_round()

    async def stop(self, *, final_snapshot: bool) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if final_snapshot and self._changed and self._loop.failed is None:
            log = self._loop.log
            try:
                await self._snapshot(self._sealed)
                if self._loop.log is log:
                    await self._remove_leftovers()
            except (OutOfSpace, DiskFull):
                pass  # the journal has everything; the next start is only slower

    # -- retention ----------------------------------------------------------------------------------------------------

    async def _trim(self) -> None:
        """Leave behind what was sealed, but for what an archive still wants to read."""
        held_from = journal_held_from(self._loop.shard)
        await self._loop.journal.trim(self._sealed if held_from is None else min(self._sealed, held_from - 1))

    async def _trim_what_was_held(self) -> None:
        """An archive may have moved on since the last round, and the next one may be long in coming."""
        if self._sealed and self._loop.shard.holds:
            with contextlib.suppress(EngineError):  # the loop meets the same failure and reports it
                await self._trim()

    async def _bound_holds(self) -> None:
        """Let go of holds that span more than they may."""
        for hold in list(self._loop.shard.holds.values()):
            if not hold.lost_at and spanned_bytes(self._loop, hold) > hold.max_bytes:
                self._on_trouble(
                    f"hold {hold.name!r} spans more than its {hold.max_bytes} bytes and is let go; what it has not "
                    "copied yet may be lost to it"
                )
                with contextlib.suppress(PenstockError):
                    await self._loop.submit(EndHold(hold.name, "max_bytes"))

    async def _retain(self) -> None:
        await self._bound_holds()
        await self._prune()
        loop = self._loop
        for queue, number, partition in self._partitions():
            start = first_kept(loop.log, queue, number, queue.config.retention, loop.now_ms())
            if start > partition.start:
                try:
                    await loop.submit(TrimPartition(queue.number, number, start))
                except PenstockError:
                    return

    async def _prune(self) -> None:
        """Dead letters beyond the bounds of their queue."""
        for queue in list(self._loop.shard.queues.values()):
            config = queue.config
            if config.dead_letter_max is None and config.dead_letter_ttl_ms is None:
                continue
            with contextlib.suppress(PenstockError):
                while await self._loop.submit(PruneLetters(queue.number)):
                    pass

    def _partitions(self) -> Iterator[tuple[Queue, int, Partition]]:
        for queue in list(self._loop.shard.queues.values()):
            for number, partition in enumerate(queue.partitions):
                yield queue, number, partition

    def _live(self, queue: Queue, number: int, partition: Partition, first: int, stop: int) -> RangeSet:
        """Offsets of `[first, stop)` whose bytes somebody may still ask for. What is not wanted now never will be."""
        live = partition.live_in(first, stop, keeps=queue.config.retention.mode == "keep")
        for run in self._loop.replying():
            if (run.queue, run.partition) == (queue.number, number):
                live.add(max(first, run.first), min(stop, run.first + run.count))
        return live

    async def _weigh(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex
    ) -> AsyncIterator[tuple[StoredPiece, int, int]]:
        """(piece, messages stored in it, messages of it that are wanted), with turns for everybody else in between.

        While this one pauses the index may change: a purge takes pieces away, and the numbers of the others shift.
        """
        pieces = index.places()
        for begin in range(0, len(pieces), WEIGH_PIECES):
            stop = min(begin + WEIGH_PIECES, len(pieces))
            live = self._live(queue, number, partition, pieces.firsts[begin], pieces.ends[stop - 1])
            for piece in range(begin, stop):
                first, end = pieces.firsts[piece], pieces.ends[piece]
                yield pieces.stored(piece), end - first, live.count_in(first, end)
            await self._breathe()

    # -- sealing and compaction ---------------------------------------------------------------------------------------

    async def _seal(self, bound: Mark) -> None:
        """Move what is wanted out of the journal up to `bound`, and out of segments that are mostly unwanted."""
        for queue, number, partition in self._partitions():
            index = self._loop.log.indexes.get((queue.number, number))
            if index is None or not len(index):
                continue
            sparse = await self._sparse_segments(queue, number, partition, index)
            moving: list[StoredPiece] = []
            pieces = index.places()
            for begin in range(0, len(pieces), CHANGE_PIECES):
                moving += [
                    pieces.stored(piece)
                    for piece, locator in enumerate(pieces.locators[begin : begin + CHANGE_PIECES], begin)
                    if 0 < locator <= bound.locator or -locator in sparse
                ]
                await self._breathe()
            await self._move(queue, number, partition, index, moving)

    async def _sparse_segments(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex
    ) -> set[int]:
        stored: dict[int, int] = {}
        wanted: dict[int, int] = {}
        async for piece, messages, living in self._weigh(queue, number, partition, index):
            if piece.locator < 0:
                stored[-piece.locator] = stored.get(-piece.locator, 0) + messages
                wanted[-piece.locator] = wanted.get(-piece.locator, 0) + living
        return {segment for segment, count in stored.items() if wanted[segment] < COMPACT_BELOW * count}

    async def _move(
        self, queue: Queue, number: int, partition: Partition, index: PartitionIndex, pieces: list[StoredPiece]
    ) -> None:
        """A segment at a time: as soon as one is on the disk its messages are found there."""
        place = (queue.number, number)
        moved: list[StoredPiece] = []
        batch: list[tuple[StoredRun, bytes, bytes, bytes | None]] = []
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
                    return  # deleted, or the shard was read again: nobody will ask for it here
                index.replace(moved, fresh)
                moved, batch, size = [], [], 0
            await self._breathe()

    async def _write_segment(
        self,
        queue: Queue,
        number: int,
        batch: list[tuple[StoredRun, bytes, bytes, bytes | None]],
    ) -> PartitionIndex:
        """Where the messages are now."""
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
        await self._put_blob(segment_name(segment), SEGMENT_MAGIC, parts)
        self._check_log()
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

    async def _put_blob(self, name: str, magic: bytes, parts: Sequence[bytes]) -> None:
        """Sealed and durable. A checksum over megabytes is a long time for whoever waits for an answer."""
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

    def _take_number(self) -> int:
        """For the name of the next blob."""
        self._next_segment += 1
        return self._next_segment - 1

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def _snapshot(self, sealed: int) -> None:
        """The state after one exact frame: everything decided so far, and a cut in the journal right behind it."""
        loop = self._loop
        values: dict[str, Any] = {"state": snapshot.capture(loop.shard)}
        named = blobs_in_use(loop.shard)

        def complete(index: int, chain: bytes, locator: int) -> None:
            if locator:
                self._marks.append(Mark(index, locator))
            indexes = list(loop.pieces())
            values.update(
                index=index,
                chain=chain,
                pieces=[(*place, pieces.dump()) for place, pieces in indexes],
                keys=[(*place, pieces.dump_prints()) for place, pieces in indexes],
                marks=[(mark.index, mark.locator) for mark in self._marks],
                next_segment=self._next_segment + 1,
                sealed=sealed,
            )

        await loop.cut(complete)
        self._pace.begin()
        # The number behind the index tells apart two snapshots of one frame whose messages lie in different places.
        name = f"snapshot-{values['index']:020d}-{self._take_number():012d}"
        parts = []
        for part in encoded(values):
            parts.append(part)
            await self._pace.breathe()
        await self._put_blob(name, SNAPSHOT_MAGIC, parts)
        self._named_agendas = named
        self._changed = False

    async def _drop_unwanted(self) -> None:
        """Forget pieces in which nothing is wanted any more, and traits of messages that nobody wants."""
        for queue, number, partition in self._partitions():
            index = self._loop.log.indexes.get((queue.number, number))
            if index is not None and len(index):
                unwanted = [
                    piece
                    async for piece, _, living in self._weigh(queue, number, partition, index)
                    if not living and piece.end <= partition.end
                ]
                for begin in range(0, len(unwanted), CHANGE_PIECES):
                    index.replace(unwanted[begin : begin + CHANGE_PIECES])
                    await self._breathe()
            if queue.config.indexed:
                for first, stop in partition.traits.stretches(TRAIT_OFFSETS):
                    partition.traits.keep(first, stop, self._live(queue, number, partition, first, stop))
                    await self._breathe()

    async def _remove_leftovers(self) -> None:
        """Blobs that the newest snapshot does not need: older snapshots, segments and agenda entries nobody names."""
        journal = self._loop.journal
        snapshots = await journal.list_blobs("snapshot-")
        for name, _ in snapshots[:-1]:
            await journal.delete_blob(name)
        locators = set().union(*(index.locators for index in self._loop.log.indexes.values()))
        named = {segment_name(-locator) for locator in locators if locator < 0}
        for name, _ in await journal.list_blobs("segment-"):
            if name not in named and int(name.removeprefix("segment-")) < self._next_segment:
                await journal.delete_blob(name)
        in_use = self._named_agendas | blobs_in_use(self._loop.shard)
        for name, _ in await journal.list_blobs("agenda-"):
            if int(name.removeprefix("agenda-")) not in in_use:
                await journal.delete_blob(name)


def _runs(record: Published, live: RangeSet, *, small: bool) -> Iterator[StoredRun]:
    """What is wanted of a record, in the pieces in which it is sealed."""
    each = len(record.batch.frame) // record.batch.count + 1
    step = max(1, limits.SEALED_SCATTERED_BYTES // each) if small else record.batch.count
    for first, stop in live:
        for begin in range(first, stop, step):
            yield StoredRun(record, begin, min(stop, begin + step))
