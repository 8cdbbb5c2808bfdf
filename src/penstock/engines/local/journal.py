"""One shard's journal in files: append and sync, roll, recover, trim. Format: docs/formats/journal.md.

Blocking work runs in the disk's worker thread, one piece at a time. The first sync that fails ends the journal's life
in this process: what the kernel says about those pages afterwards is not to be believed (a second fsync of the same
pages reports success for data that is gone), so nothing is written, and nothing acknowledged, until the files have
been read again from the disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

from penstock import limits
from penstock.batch import Buffer
from penstock.engines.local.blobs import BlobFiles
from penstock.engines.local.files import FULL, Files, portions
from penstock.engines.local.opening import FILE_HEADER_BYTES, file_header
from penstock.engines.local.pieces import PieceReader
from penstock.engines.local.recovery import Fsync, chain_at_start, open_segments, recover_tail, scan, take_term
from penstock.engines.local.reserve import Reserve, with_room
from penstock.engines.local.segment import Segment, zeros
from penstock.engines.local.spare import Spares
from penstock.journal.cells import CELL, cell, number_in
from penstock.journal.frame import CHAIN_START, HEADER, PAGE_BYTES, BadFrame, Frame, time_of
from penstock.journal.missing import POSITION_BITS
from penstock.journal.port import Damaged, Failed, Fenced, Head, OutOfSpace, Place, Source, Tail, Traits

T = TypeVar("T")

INTERVAL_S = 1.0
BATCH_WRITES = 100
BLOB_SLICE_BYTES = 256 * limits.KIB
"""Of a blob, written and synced in one go: the disk has one queue in the end, and commits are in it too."""
BLOB_PAUSE_S_MAX = 0.02
ZERO_AHEAD_BYTES = 1 * limits.MIB
ZERO_AHEAD_FOR_BYTES = 64 * limits.KIB
FILE_BYTES_MIN = 4 * limits.MIB
FILES_IN_FREE_SPACE = 16
"""A file takes this share of what is free when it begins, at most. Upkeep has to copy the live messages of a file
before it can remove it: on a nearly full disk there is only room for a small copy."""


class LocalJournal:
    traits = Traits("disk", limits.COMMIT_BYTES_MAX, 0.0, shared=False)

    def __init__(
        self, files: Files, root: str, shard: int, reserve: str, fsync: Fsync, segment_bytes: int,
        zero_ahead_bytes: int = ZERO_AHEAD_BYTES, page_bytes: int = PAGE_BYTES,
    ):  # fmt: skip
        self._files = files
        self._root = root
        self._shard = shard
        self._reserve = Reserve(files, reserve)
        self._fsync = fsync
        self._segment_bytes_max = segment_bytes
        self._segment_bytes = segment_bytes
        """The current file ends at this size; smaller where the disk is nearly full (`_roll`)."""
        self._zero_ahead = zeros(zero_ahead_bytes)
        self._page = zeros(page_bytes)
        self._segments: dict[int, Segment] = {}
        """By first index, ascending. A locator is a first index and a position, so it outlives the process."""
        self._current = 0
        self._failed: str | None = None
        self._fenced = False
        self._unsynced = 0
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._blobs = BlobFiles(files, f"{root}/blobs")
        self._hint = -1
        self._spares = Spares(files, f"{root}/journal")
        self._pieces = PieceReader(self._pin, self._unpin, partial(scan, files))
        self._pinning = threading.Lock()
        """Files are trimmed by the disk's thread and read by the loop's."""
        self.term = 0
        self.tail = Tail(0, CHAIN_START)

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Blocking: take a new term, find the end of the journal, cut a torn tail off, refuse damage."""
        files = self._files
        files.make_dir(self._root)
        for name in ("journal", "blobs"):
            files.make_dir(f"{self._root}/{name}")
            # Entries that a killed process made and did not come to sync are there, but not yet on the disk.
            files.sync_dir(f"{self._root}/{name}")
        self._spares.find()
        # A full disk must not keep a broker from starting: consumers would make room.
        self._with_reserve(self._take_term)
        self._hint = files.open_cell(f"{self._root}/durable")
        known_durable = number_in(files.read(self._hint, 0, CELL.size)) or 0
        self._segments = open_segments(files, self._root, self._shard, known_durable)
        if self._segments:
            self._current = max(self._segments)
            current = self._segments[self._current]
            self.tail = recover_tail(files, self._root, current, self.term, known_durable, self._fsync)
        else:
            if known_durable:
                raise Damaged(f"{self._root}/journal is empty, but frame {known_durable} was durable in it")
            self._with_reserve(self._roll)
        for name in files.list_dir(f"{self._root}/blobs"):
            if name.endswith(".tmp"):
                files.remove(f"{self._root}/blobs/{name}")
        self._restore_reserve()

    def _take_term(self) -> None:
        self.term = take_term(self._files, self._root)

    # -- appending ----------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        return self._fsync == "always"

    @property
    def short_of_space(self) -> bool:
        return self._reserve.is_missing

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        self._check()
        locator = await self._offload(partial(self._append, index, parts))
        self._schedule_sync()
        return locator

    def _append(self, index: int, parts: Sequence[Buffer]) -> int:
        locator = self._write_frame(index, parts)
        if self._must_sync():
            self._sync()
        return locator

    def can_write_inline(self) -> bool:
        return self._files.idle()

    def write(self, index: int, parts: Sequence[Buffer]) -> int:
        self._check()
        try:
            locator = self._write_frame(index, parts)
            if self._must_sync():
                segment, size = self._segments[self._current], sum(map(len, parts))
                self._files.begin_sync(segment.handle, segment.size - size, size)
        except OSError as error:
            raise self._fail(error) from error
        return locator

    def sync(self) -> None:
        if self._must_sync():
            try:
                self._sync()
            except OSError as error:
                raise self._fail(error) from error
        else:
            self._schedule_sync()

    def _must_sync(self) -> bool:
        """True if the policy asks for a sync before the last frame counts as appended."""
        return self._fsync == "always" or (self._fsync == "batch" and self._unsynced >= BATCH_WRITES)

    def _schedule_sync(self) -> None:
        if self._unsynced and self._fsync == "interval" and self._sync_timer is None:
            self._sync_timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._sync_later)

    def _write_frame(self, index: int, parts: Sequence[Buffer]) -> int:
        assert index == self.tail.index + 1, "frames are appended in order"
        segment = self._segments[self._current]
        if segment.size >= self._segment_bytes:
            self._finish(segment)
            self._with_reserve(self._roll)
            segment = self._segments[self._current]
        at = segment.size
        size = sum(map(len, parts))
        self._with_reserve(partial(self._write, segment, parts, size))
        segment.size = at + size
        segment.prepared = max(segment.prepared, segment.size)
        self.tail = Tail(index, bytes(parts[0][HEADER.size - 16 : HEADER.size]))
        self._unsynced += 1
        return self._current << POSITION_BITS | at

    def _write(self, segment: Segment, parts: Sequence[Buffer], size: int) -> None:
        """All of it or nothing: a write that failed for want of space is taken back.

        Commits go into space that has been written before: that of a file that was used before (`spare.py`), or zeros.
        Their sync then has no file size to write to the file system's own journal, which halves its time. Where there
        is no such space, small ones make some; large ones would only be written twice.
        """
        end = segment.size + size
        try:
            if end > segment.prepared:
                if size <= ZERO_AHEAD_FOR_BYTES:
                    self._files.write(segment.handle, end, [self._zero_ahead])
                    segment.prepared = end + len(self._zero_ahead)
            elif segment.used_before:
                parts = segment.filled_up(parts, end, self._page)
            self._files.write(segment.handle, segment.size, parts)
        except OSError as error:
            if error.errno in FULL:
                self._files.truncate(segment.handle, segment.size)
                segment.prepared = segment.size
            raise

    def _with_reserve(self, work: Callable[[], None]) -> None:
        with_room(work, self._spares.drop, self._reserve.give_up)

    def _restore_reserve(self) -> None:
        self._reserve.restore()
        if self._reserve.is_missing and self._spares.drop():
            self._reserve.restore()

    def _sync(self) -> None:
        self._files.sync(self._segments[self._current].handle)
        self._unsynced = 0
        # Not synced itself: it only has to survive the process, so that damage is not taken for a torn tail.
        self._files.write(self._hint, 0, [cell(self.tail.index)])

    def _sync_all(self) -> None:
        """Sync at a clean close, under every policy: a clean stop loses nothing, and damage differs from a crash.

        Content of the file's earlier use is cut off, so that the next start need not scan it and finds zeros for its
        first commits as in any other file.
        """
        current = self._segments[self._current]
        if current.used_before:
            self._cut_off_earlier_use(current)
        self._sync()

    def _cut_off_earlier_use(self, segment: Segment) -> None:
        self._files.truncate(segment.handle, segment.size)
        segment.used_before, segment.prepared = False, segment.size
        try:
            self._files.write(segment.handle, segment.size, [self._zero_ahead])
        except OSError as error:
            if error.errno not in FULL:
                raise

    def _sync_later(self) -> None:
        self._sync_timer = None
        if self._failed is None:
            self._sync_task = asyncio.ensure_future(self._sync_in_background())

    async def _sync_in_background(self) -> None:
        try:
            await self._offload(self._sync)
        except Failed:
            return  # remembered; the next append reports it

    def _finish(self, segment: Segment) -> None:
        """Close the current file for appends, and sync it under every policy: only the last file can have a torn tail.

        Called once per file: after a sync that failed, a second one proves nothing.
        """
        self._files.truncate(segment.handle, segment.size)
        segment.prepared = segment.size
        self._sync()

    def _roll(self) -> None:
        """Begin the next file, durable before anything is written to it."""
        files = self._files
        first = self.tail.index + 1
        path = self._path(first)
        files.remove(path)  # of an attempt that ran out of space
        spare = self._spares.take()
        handle = files.open(path, create=True) if spare is None else files.open(spare)
        self._segment_bytes = min(
            self._segment_bytes_max, max(FILE_BYTES_MIN, files.free(self._root) // FILES_IN_FREE_SPACE)
        )
        segment = Segment(path, handle, first, FILE_HEADER_BYTES)
        header = file_header(self._shard, first, self.tail.chain)
        try:
            if spare is None:
                files.write(handle, 0, [header])
                files.sync(handle)
            else:
                segment.used_before, segment.prepared = True, files.size(handle)
                files.write(handle, 0, segment.filled_up([header], len(header), self._page))
                files.sync(handle)
                files.rename(spare, path)
        except OSError as error:
            files.close(handle)
            if error.errno in FULL:
                files.remove(spare or path)
                self._spares.used(spare)
                # Frames may follow in the file before: after a crash a file that belongs behind them must not be back.
                files.sync_dir(f"{self._root}/journal")
            raise
        self._spares.used(spare)
        files.sync_dir(f"{self._root}/journal")
        self._current = first
        self._segments[first] = segment

    async def roll(self) -> None:
        self._check()
        await self._offload(self._finish_and_roll)

    def _finish_and_roll(self) -> None:
        current = self._segments[self._current]
        if current.size > FILE_HEADER_BYTES:
            self._finish(current)
            self._with_reserve(self._roll)

    async def scrub(self) -> None:
        self._check()
        await self._offload(self._give_back)

    def _give_back(self) -> None:
        """Content of an earlier use is in spare files, and in the current file behind its last frame."""
        if self._spares.drop():
            self._files.sync_dir(f"{self._root}/journal")
        current = self._segments[self._current]
        if current.used_before:
            self._cut_off_earlier_use(current)
            self._sync()

    def file_ends(self) -> list[tuple[int, int]]:
        return [(first - 1, (first << POSITION_BITS) - 1) for first in sorted(self._segments)[1:]]

    # -- reading ------------------------------------------------------------------------------------------------------

    async def replay(self, after: int) -> AsyncGenerator[tuple[int, Frame], None]:
        pinned = self._pin(after)
        try:
            for located in self._frames(pinned, after):
                yield located
        finally:
            self._unpin(pinned)

    def _frames(self, segments: list[Segment], after: int) -> Iterator[tuple[int, Frame]]:
        chain: bytes | None = None
        for segment, following in zip(segments, [*(each.first for each in segments[1:]), None], strict=True):
            if chain is not None and chain_at_start(self._files, segment) != chain:
                raise Damaged(f"{segment.path}, offset 0: this file does not continue the history of the one before it")
            at, index = FILE_HEADER_BYTES, segment.first - 1
            try:
                for at, frame in scan(self._files, segment):
                    index, chain = frame.index, frame.chain
                    if index > after:
                        yield segment.first << POSITION_BITS | at, frame
            except BadFrame as error:
                raise Damaged(f"{segment.path}, offset {at}: behind frame {index}: {error}") from None
            if following is not None and index != following - 1:
                raise Damaged(f"{segment.path} ends with frame {index}, the next file begins with {following}")

    async def read_frames(self, after: int, bytes_max: int) -> list[Frame]:
        self._check()
        try:
            return await self._files.offload_bulk(partial(self._pieces.read, after, bytes_max))
        except OSError as error:
            raise Damaged(f"{self._root}/journal cannot be read behind frame {after}: {error}") from error

    def bytes_since(self, index: int) -> int:
        firsts = sorted(self._segments)
        following = [*firsts[1:], None]
        return sum(
            self._segments[first].size
            for first, behind in zip(firsts, following, strict=True)
            if behind is None or behind > index
        )

    def _pin(self, after: int) -> list[Segment]:
        """The files that hold what comes after this index. They stay open until they are unpinned, trimmed or not."""
        with self._pinning:
            firsts = sorted(self._segments)
            found = [
                self._segments[first]
                for first, following in zip(firsts, [*firsts[1:], None], strict=True)
                if following is None or following > after + 1
            ]
            for segment in found:
                segment.pins += 1
        return found

    def _unpin(self, segments: list[Segment]) -> None:
        with self._pinning:
            for segment in segments:
                segment.pins -= 1
                if segment.trimmed and not segment.pins:
                    self._files.close(segment.handle)

    async def index_before(self, at_ms: int) -> int:
        """By the first frame of each file: a search begins with the last file that begins before that time."""
        before = min(self._segments)
        for first in sorted(self._segments):
            segment = self._segments[first]
            header = self._files.read(segment.handle, FILE_HEADER_BYTES, HEADER.size)
            if segment.size <= FILE_HEADER_BYTES or time_of(header) >= at_ms:
                break
            before = first
        return before - 1

    def peek(self, source: Source, skip: int, length: int) -> bytes:
        if isinstance(source, str):
            return self._blobs.read(source, skip, length)
        segment = self._segments[source >> POSITION_BITS]
        at = (source & (1 << POSITION_BITS) - 1) + skip
        data = self._files.read(segment.handle, at, length)
        if len(data) != length:
            raise Damaged(f"{segment.path}, offset {at}: {length} bytes were written here, {len(data)} are left")
        return data

    async def fetch(self, places: Sequence[Place]) -> list[bytes]:
        return [self.peek(*place) for place in places]

    def has(self, locator: int, size: int) -> bool:
        segment = self._segments.get(locator >> POSITION_BITS)
        return segment is not None and (locator & (1 << POSITION_BITS) - 1) + size <= segment.size

    def where(self, locator: int, skip: int) -> str:
        return f"{self._path(locator >> POSITION_BITS)}, offset {(locator & (1 << POSITION_BITS) - 1) + skip}"

    def _path(self, first: int) -> str:
        return f"{self._root}/journal/{first:020d}.log"

    async def first_kept(self) -> int:
        return self._segments[min(self._segments)].first

    async def trim(self, upto: int) -> None:
        await self._sync_before()
        left = await self._offload(lambda: self._leave_out(upto))
        if left:
            await self._offload(partial(self._remove, left), bulk=True)

    def _leave_out(self, upto: int) -> list[tuple[str, bool]]:
        """Stop using these files; returns the path of each, and whether a reader still has it open."""
        left = []
        for first, following in pairwise(sorted(self._segments)):
            if following > upto + 1:
                break
            with self._pinning:
                segment = self._segments.pop(first)
                segment.trimmed = True
                if not segment.pins:
                    self._files.close(segment.handle)
                left.append((segment.path, segment.pins > 0))
        return left

    def _remove(self, left: list[tuple[str, bool]]) -> None:
        """The oldest first: what a crash leaves of them must be a history without a gap."""
        last_read = max((number for number, (_, is_read) in enumerate(left) if is_read), default=-1)
        removed = [path for path, _ in left[: last_read + 1]]
        for path in removed:
            self._files.remove(path)
        unread = [path for path, _ in left[last_read + 1 :]]
        # Where nothing is synced nothing is gained by it; and without room for a publish there is none to spare.
        if self._fsync != "never" and not self._reserve.is_missing:
            unread = self._spares.keep(unread)
            if self._reserve.is_missing:
                self._spares.drop()  # since just now
        for path in unread:
            self._files.remove(path)
        if removed or unread:
            self._files.sync_dir(f"{self._root}/journal")

    # -- blobs --------------------------------------------------------------------------------------------------------

    async def put_blobs(self, blobs: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        """One directory sync for all of them."""
        names = [name for name, _ in blobs]
        try:
            for name, parts in blobs:
                await self._write_blob(name, parts)
        except OutOfSpace:
            await self._offload(partial(self._blobs.discard, names), bulk=True)
            raise
        await self._sync_before()
        await self._offload(partial(self._blobs.finish, names), bulk=True)

    async def _write_blob(self, name: str, parts: Sequence[Buffer]) -> None:
        """A slice at a time, beside the commits: none waits for a whole blob to be on the disk.

        Where there are commits, at least half of the disk's time is left to them.
        """
        loop = asyncio.get_running_loop()
        at = 0
        for portion in portions(parts, BLOB_SLICE_BYTES):
            self._check()
            began, commits = loop.time(), self.tail.index
            try:
                await self._offload(partial(self._blobs.write, name, at, portion), bulk=True)
            except OutOfSpace:
                # A snapshot makes room, by what is trimmed after it: it is worth more than spare files.
                if not self._spares.drop() or at:
                    raise
                await self._offload(partial(self._blobs.write, name, at, portion), bulk=True)
            if self.tail.index != commits:
                await asyncio.sleep(min(loop.time() - began, BLOB_PAUSE_S_MAX))
            at += sum(map(len, portion))

    async def _sync_before(self) -> None:
        """Sync the frames before blobs change: the change depends on frames that must not be lost after it.

        This holds under every policy, so that a power cut leaves a prefix of the history.
        """
        self._check()
        if self._unsynced:
            await self._offload(self._sync)

    async def head(self) -> Head | None:
        """The newest snapshot: it counts as soon as `put_blobs` has given it its name."""
        snapshots = await self.list_blobs("snapshot-")
        return Head(snapshots[-1][0], int(snapshots[-1][0].split("-")[1])) if snapshots else None

    async def commit_head(self, head: Head) -> None:  # noqa: ARG002  its name is durable
        self._check()

    async def list_blobs(self, prefix: str) -> list[tuple[str, int]]:
        return await self._offload(partial(self._blobs.list, prefix), bulk=True)

    async def delete_blobs(self, names: Sequence[str]) -> None:
        if names:
            await self._sync_before()
            await self._offload(partial(self._blobs.delete, names), bulk=True)

    # -- space, failure, end ------------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        return self._files.free(self._root)

    async def check_space(self) -> None:
        """Take the reserve back if there is room for it again."""
        if self._reserve.is_missing and self._failed is None:
            await self._offload(self._restore_reserve)

    async def hold_room_for(self, blob_bytes: int) -> None:
        self._check()
        await self._offload(partial(self._reserve.grow_for, blob_bytes))

    def fence(self) -> None:
        """The shard has another owner from now on: whatever this one still tries is refused."""
        self._fenced = True
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _check(self) -> None:
        if self._fenced:
            raise Fenced(f"term {self.term} of shard {self._shard} has ended")
        if self._failed is not None:
            raise Failed(self._failed)

    async def _offload(self, work: Callable[[], T], *, bulk: bool = False) -> T:
        """Disk work whose failure ends the journal's life here, unless the failure is known to have changed nothing."""

        def guarded() -> T:
            # On the worker's thread: no work that is queued behind a failure may be done.
            self._check()
            try:
                return work()
            except OSError as error:
                raise self._fail(error) from error

        return await (self._files.offload_bulk(guarded) if bulk else self._files.offload(guarded))

    def _fail(self, error: OSError) -> Failed:
        self._failed = f"the disk failed ({error}); restart to read the journal again"
        return Failed(self._failed)

    async def close(self) -> None:
        if self._hint < 0:
            return
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        if self._sync_task is not None:
            await self._sync_task
        # Work whose caller was cancelled may still be running, and uses the files.
        await self._files.offload_bulk(lambda: None)
        await self._files.offload(lambda: None)
        left_over = self._segments[self._current].used_before
        if self._failed is None and not self._fenced and (self._unsynced or left_over):
            await self._offload(self._sync_all)
        for handle in (
            *(segment.handle for segment in self._segments.values()),
            self._hint,
        ):
            self._files.close(handle)
        self._blobs.close()
        self._segments, self._hint = {}, -1
        self._failed = self._failed or "the journal is closed"


assert limits.JOURNAL_SEGMENT_BYTES + 2 * limits.COMMIT_BYTES_MAX < 1 << POSITION_BITS
