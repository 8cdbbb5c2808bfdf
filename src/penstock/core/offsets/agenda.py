"""Things to do at a time: `(due_ms, first, count)`, millions of them, in little memory.

Prior art is the heap (one tuple per entry: 200 bytes) and the timer wheel (a horizon that wraps). This is neither.
Entries lie in flat integer arrays, 24 bytes each, in one array per stretch of time. Stretches are a second long if
they are near and get 64 times longer from level to level: a minute, an hour, three days, half a year, 35 years. A
stretch whose time is near is split into those of the level below, a bounded step at a time; the present second is a
heap of tuples. So adding is O(1) at any horizon, an entry is moved a few times in its life, and nothing wraps.

Stretches of an hour and longer need not be in memory. Their entries can be *frozen*, written to disk by the runtime,
and replaced by `Chunk`s, which say where they are; they are read again when their time is near (`Read`). The place of
an entry is soft: it does not change when the entry is due.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

SHIFTS = (10, 16, 22, 28, 34, 40)
"""Bits of a due time that a stretch of each level spans: 1 s, 66 s, 70 min, 75 h, 199 days, 35 years."""
LEADS_MS = (0, 8_000, 600_000, 600_000, 600_000, 600_000)
"""How long before its beginning a stretch is split: the time for doing that in steps."""
FAR_LEVEL = 2
"""Stretches of this level and those above it may be written away."""
ENTRY_BYTES = 24
SPLIT_ENTRIES = 1024
"""Entries moved one level down per step, so that splitting an hour with many entries does not block other work."""
SPLIT_EVERY_MS = 5

CHUNK_ENTRIES_MAX = 4096
"""Read and checked at once."""


class Chunk(NamedTuple):
    """Entries that lie in a blob, as int64 triples, and what is known about them without reading it."""

    blob: int
    start: int
    """Of its first byte in the blob."""
    entries: int
    messages: int
    crc: int
    min_due: int


Read = Callable[[Chunk], bytes]
"""Where entries that were written away come from."""

Keep = Callable[[int, int, int], bool]
"""Whether an entry (due, first, count) still means something."""


def unread(chunk: Chunk) -> bytes:
    """The `Read` of an agenda that is never frozen."""
    raise AssertionError(f"there is no reader for {chunk}")


class Piece:
    """A part of a far stretch that nothing is added to: in memory or in a blob."""

    __slots__ = ("chunk", "flat", "min_due", "splitting")

    def __init__(self, min_due: int, flat: array[int] | None = None, chunk: Chunk | None = None):
        self.min_due = min_due
        self.flat = flat
        self.chunk = chunk
        self.splitting = False
        """Its time is near; it stays where it is."""

    def load(self, read: Read) -> array[int]:
        if self.flat is None:
            assert self.chunk is not None
            self.flat = array("q")
            self.flat.frombytes(read(self.chunk))
            self.chunk = None
        return self.flat


class Stretch:
    __slots__ = ("min_due", "pieces", "tail")

    def __init__(self) -> None:
        self.min_due = 1 << 62
        self.tail = array("q")
        """Entries of the piece that is still being added to."""
        self.pieces: list[Piece] = []

    def take(self) -> list[Piece]:
        """All of it as pieces; the stretch itself is over."""
        return [*self.pieces, Piece(self.min_due, self.tail)] if self.tail else self.pieces


_NO_STRETCHES: tuple[dict[int, Stretch], ...] = tuple({} for _ in SHIFTS)
_NO_KEYS: tuple[list[int], ...] = tuple([] for _ in SHIFTS)
_NOT_OPENED: Any = (0,) * len(SHIFTS)
_NO_ENTRIES: Any = ()
"""Shared by agendas without entries: most partitions have neither delays nor times to live."""


class Agenda:
    __slots__ = (
        "_keys", "_now", "_opened", "_order", "_split_at_ms", "_splitting", "_stretches", "_window_until_ms", "count",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        """Messages, not entries."""
        self._now: list[tuple[int, int, int]] = _NO_ENTRIES
        """Heap of what is due before the first stretch of the lowest level begins."""
        self._stretches = _NO_STRETCHES
        self._keys = _NO_KEYS
        """Per level, heap of the keys of its stretches: due >> shift."""
        self._opened: list[int] = _NOT_OPENED
        """Per level: stretches with a key below this are split, and what belongs there goes to lower levels."""
        self._window_until_ms = 0
        """When the next stretch is to be opened, if there is one by then."""
        self._splitting: list[tuple[int, int, Piece]] = _NO_ENTRIES
        """Heap of (earliest due, tie breaker, piece) of stretches that were opened."""
        self._order = 0
        self._split_at_ms = 0

    def add(self, due_ms: int, first: int, count: int, now_ms: int) -> None:
        self.count += count
        if now_ms >= self._window_until_ms:
            self._open(now_ms)
        self._place(due_ms, first, count)

    def next_ms(self) -> int | None:
        """When to look here again: when the earliest entry is due, or sooner, if something is to be prepared."""
        if self._now:
            soonest = self._now[0][0]
        elif self._keys[0]:
            soonest = self._stretches[0][self._keys[0][0]].min_due
        else:
            soonest = 1 << 62
        for level in range(1, len(SHIFTS)):
            if self._keys[level]:
                soonest = min(soonest, (self._keys[level][0] << SHIFTS[level]) - LEADS_MS[level])
        if self._splitting:
            soonest = min(soonest, self._split_at_ms, self._splitting[0][0])
        return soonest if soonest < 1 << 62 else None

    def take_due(self, now_ms: int, read: Read = unread) -> list[tuple[int, int, int]]:
        """Remove and return everything due at or before `now_ms`, earliest first."""
        if now_ms >= self._window_until_ms:
            self._open(now_ms)
        while self._splitting and self._splitting[0][0] <= now_ms:
            self._split(read, step=None)
        if self._splitting and now_ms >= self._split_at_ms:
            self._split(read, step=SPLIT_ENTRIES)
            self._split_at_ms = now_ms + SPLIT_EVERY_MS
        due: list[tuple[int, int, int]] = []
        keys, bound = self._keys[0], (now_ms >> SHIFTS[0]) + 1
        if bound > self._opened[0]:
            self._opened[0] = bound
            while keys and keys[0] < bound:
                flat = self._stretches[0].pop(heappop(keys)).tail
                self._now += zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            heapify(self._now)
        heap = self._now
        while heap and heap[0][0] <= now_ms:
            due.append(heappop(heap))
            self.count -= due[-1][2]
        return due

    # -- levels -------------------------------------------------------------------------------------------------------

    def _place(self, due_ms: int, first: int, count: int) -> None:
        for level in range(len(SHIFTS) - 1, -1, -1):
            key = due_ms >> SHIFTS[level]
            if key >= self._opened[level]:
                stretch = self._stretch(level, key)
                stretch.tail.extend((due_ms, first, count))
                stretch.min_due = min(stretch.min_due, due_ms)
                return
        heappush(self._now, (due_ms, first, count))

    def _stretch(self, level: int, key: int) -> Stretch:
        stretch = self._stretches[level].get(key)
        if stretch is None:
            if self._stretches is _NO_STRETCHES:
                self._stretches, self._keys = tuple({} for _ in SHIFTS), tuple([] for _ in SHIFTS)
            stretch = self._stretches[level][key] = Stretch()
            heappush(self._keys[level], key)
        return stretch

    def _open(self, now_ms: int) -> None:
        """Begin to split every stretch whose time is near. Called before the first entry is added."""
        if self._opened is _NOT_OPENED:
            self._opened, self._now, self._splitting = [*_NOT_OPENED], [], []
        following = []
        for level in range(1, len(SHIFTS)):
            shift, lead = SHIFTS[level], LEADS_MS[level]
            self._opened[level] = bound = max(self._opened[level], ((now_ms + lead) >> shift) + 1)
            following.append((bound << shift) - lead)
            keys = self._keys[level]
            while keys and keys[0] < bound:
                for piece in self._stretches[level].pop(heappop(keys)).take():
                    piece.splitting = True
                    heappush(self._splitting, (piece.min_due, self._order, piece))
                    self._order += 1
        self._window_until_ms = min(following)

    def _split(self, read: Read, step: int | None) -> None:
        """Move entries of the most urgent piece to where they belong now: a step of it, or all."""
        piece = self._splitting[0][2]
        flat = piece.load(read)
        begin = 0 if step is None else max(0, len(flat) - 3 * step)
        part = flat[begin:]
        if begin:
            del flat[begin:]
        else:
            heappop(self._splitting)
        place = self._place
        for due_ms, first, count in zip(part[::3], part[1::3], part[2::3], strict=True):
            place(due_ms, first, count)

    # -- all of it ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return self.entries(unread)

    def entries(self, read: Read) -> Iterator[tuple[int, int, int]]:
        """Every entry, in no particular order. Chunks that are read are not kept in memory."""
        yield from self._now
        for flat in self._flats():
            yield from zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        for chunk in self.chunks():
            flat = array("q")
            flat.frombytes(read(chunk))
            yield from zip(flat[::3], flat[1::3], flat[2::3], strict=True)

    def in_memory(self) -> Iterator[tuple[int, int, int]]:
        """The entries in memory, one by one: a caller that stops early pays only for those that it took."""
        yield from self._now
        for flat in self._flats():
            for at in range(0, len(flat), 3):
                yield flat[at], flat[at + 1], flat[at + 2]

    def due_by(self, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """(due, first, stop) of what is due at or before `now_ms`, all of it in memory (`bring`)."""
        flats = [stretch.tail for level in self._stretches for stretch in level.values() if stretch.min_due <= now_ms]
        for piece in self._pieces():
            if piece.min_due <= now_ms:
                flats.append(piece.load(unread))
        for due, first, count in self._now:
            if due <= now_ms:
                yield due, first, first + count
        for flat in flats:
            for due, first, count in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                if due <= now_ms:
                    yield due, first, first + count

    def bring(self, now_ms: int, read: Read) -> None:
        """Have everything that is due at or before `now_ms` in memory."""
        for piece in self._pieces():
            if piece.min_due <= now_ms:
                piece.load(read)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks that are not in memory."""
        for piece in self._pieces():
            if piece.chunk is not None:
                yield piece.chunk

    def copy(self) -> tuple[list[tuple[int, int, int]], list[bytes], list[Chunk]]:
        """All of it as it is now: entries, entries as bytes, chunks. Costs a copy of memory, no walk over entries."""
        return list(self._now), [flat.tobytes() for flat in self._flats()], list(self.chunks())

    def restore(self, flat: array[int], chunks: list[Chunk], now_ms: int) -> None:
        """Put back what a copy held."""
        self._open(now_ms)
        place = self._place
        for due_ms, first, count in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            self.count += count
            place(due_ms, first, count)
        for chunk in chunks:
            self.count += chunk.messages
            self._place_piece(Piece(chunk.min_due, chunk=chunk))

    def _place_piece(self, piece: Piece) -> None:
        """A chunk is of one stretch of some level; now it may belong to a longer one, or to one that is open."""
        for level in range(len(SHIFTS) - 1, FAR_LEVEL - 1, -1):
            key = piece.min_due >> SHIFTS[level]
            if key >= self._opened[level]:
                stretch = self._stretch(level, key)
                stretch.pieces.append(piece)
                stretch.min_due = min(stretch.min_due, piece.min_due)
                return
        piece.splitting = True
        heappush(self._splitting, (piece.min_due, self._order, piece))
        self._order += 1

    def _flats(self) -> Iterator[array[int]]:
        for stretches in self._stretches:
            for stretch in stretches.values():
                yield stretch.tail
        for piece in self._pieces():
            if piece.flat is not None:
                yield piece.flat

    def _pieces(self) -> Iterator[Piece]:
        for level in range(FAR_LEVEL, len(SHIFTS)):
            for stretch in self._stretches[level].values():
                yield from stretch.pieces
        for _, _, piece in self._splitting:
            yield piece

    # -- far stretches elsewhere --------------------------------------------------------------------------------------

    def far_in_memory(self) -> int:
        """Entries that could be written away."""
        return sum(
            len(stretch.tail) + sum(len(piece.flat) for piece in stretch.pieces if piece.flat is not None)
            for level in self._stretches[FAR_LEVEL:]
            for stretch in level.values()
        ) // 3  # fmt: skip

    def freeze(self, entries_min: int) -> Iterator[Piece]:
        """Pieces of far stretches in memory, closed to additions, where there are `entries_min` entries or more.

        A caller that wrote a piece to disk gives it a chunk instead of its array, unless it is `splitting` by then.
        Time may pass between two pieces.
        """
        for stretch in self._each(FAR_LEVEL):
            if len(stretch.tail) >= 3 * entries_min:
                for at in range(0, len(stretch.tail), 3 * CHUNK_ENTRIES_MAX):
                    flat = stretch.tail[at : at + 3 * CHUNK_ENTRIES_MAX]
                    stretch.pieces.append(Piece(min(flat[::3]), flat))
                stretch.tail = array("q")
            yield from [piece for piece in stretch.pieces if piece.flat is not None]

    def recall(self, blobs: set[int], read: Read, keep: Keep) -> Iterator[None]:
        """Take back into memory what is still wanted of the far stretches and lies in these blobs, chunk by chunk."""
        for stretch in self._each(FAR_LEVEL):
            for piece in list(stretch.pieces):
                if piece.chunk is not None and piece.chunk.blob in blobs and not piece.splitting:
                    stretch.tail += self._kept(piece.load(read), keep)
                    stretch.pieces.remove(piece)
                    yield

    def sweep(self, keep: Keep) -> Iterator[None]:
        """Forget what is in memory and no longer wanted, a stretch at a time."""
        self._now = [entry for entry in self._now if self._is_kept(entry, keep)]
        heapify(self._now)
        for stretch in self._each(0):
            stretch.tail = self._kept(stretch.tail, keep)
            yield

    def _each(self, lowest: int) -> Iterator[Stretch]:
        """Stretches from this level on. Those that were opened when their turn comes are passed over."""
        for level in self._stretches[lowest:]:
            for key in list(level):
                if key in level:
                    yield level[key]

    def _kept(self, flat: array[int], keep: Keep) -> array[int]:
        entries = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return array("q", chain.from_iterable([entry for entry in entries if self._is_kept(entry, keep)]))

    def _is_kept(self, entry: tuple[int, int, int], keep: Keep) -> bool:
        kept = keep(*entry)
        if not kept:
            self.count -= entry[2]
        return kept
