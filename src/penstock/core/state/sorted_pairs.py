"""A sorted set of pairs of 64-bit integers, in chunks of columns: 16 bytes each, however they come and go.

A pair is found by a search for its chunk and a search in it. A change moves the rest of one chunk, and no chunk has
more than `CHUNK_PAIRS` pairs. Pairs that come in ascending order fill their chunks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

CHUNK_PAIRS = 512
"""A chunk with so many pairs is full."""
LAST = 2**63 - 1

Pair = tuple[int, int]


class PairChunk:
    """Pairs in ascending order, as two columns."""

    __slots__ = ("firsts", "seconds")

    def __init__(self) -> None:
        self.firsts = array("q")
        self.seconds = array("q")

    def __len__(self) -> int:
        return len(self.firsts)

    def __getitem__(self, row: int) -> Pair:
        return self.firsts[row], self.seconds[row]

    @property
    def full(self) -> bool:
        return len(self.firsts) >= CHUNK_PAIRS

    def fits(self, other: PairChunk) -> bool:
        """True if the pairs of both are half of a chunk at most."""
        return len(self) + len(other) <= CHUNK_PAIRS // 2

    def row(self, pair: Pair) -> int:
        """The row of this pair, or of the first one behind it."""
        first, second = pair
        begin = bisect_left(self.firsts, first)
        return bisect_left(self.seconds, second, begin, bisect_right(self.firsts, first, begin))

    def insert(self, row: int, pair: Pair) -> None:
        self.firsts.insert(row, pair[0])
        self.seconds.insert(row, pair[1])

    def remove(self, row: int) -> None:
        del self.firsts[row]
        del self.seconds[row]

    def move(self, source: PairChunk, begin: int) -> None:
        """Append the pairs of `source` from a row on, and remove them there."""
        self.firsts += source.firsts[begin:]
        self.seconds += source.seconds[begin:]
        del source.firsts[begin:]
        del source.seconds[begin:]


def _lowest(chunk: PairChunk) -> Pair:
    return chunk.firsts[0], chunk.seconds[0]


C = TypeVar("C", bound=PairChunk)


class SortedPairs(Generic[C]):
    """No chunk is empty."""

    __slots__ = ("_make", "chunks", "count")

    def __init__(self, make: Callable[[], C]):
        self._make = make
        self.chunks: list[C] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Pair]:
        for chunk in self.chunks:
            yield from zip(chunk.firsts, chunk.seconds, strict=True)

    def find(self, pair: Pair) -> tuple[C, int] | None:
        """The chunk and the row of this pair; None if it is not in here."""
        if not self.chunks:
            return None
        chunk = self.chunks[self._chunk(pair)]
        row = chunk.row(pair)
        return (chunk, row) if row < len(chunk) and chunk[row] == pair else None

    def last_until(self, pair: Pair) -> Pair | None:
        """The last pair that is not behind this one."""
        if not self.chunks:
            return None
        chunk = self.chunks[self._chunk(pair)]
        row = chunk.row(pair)
        if row < len(chunk) and chunk[row] == pair:
            return pair
        return chunk[row - 1] if row else None

    def since(self, pair: Pair) -> Iterator[tuple[C, int]]:
        """Chunk and row of this pair and of all behind it; not to be kept over a change."""
        if self.chunks:
            begin = self._chunk(pair)
            row = self.chunks[begin].row(pair)
            for chunk in islice(self.chunks, begin, None):
                yield from ((chunk, at) for at in range(row, len(chunk)))
                row = 0

    def before(self, pair: Pair) -> int:
        """The number of pairs before this one."""
        if not self.chunks:
            return 0
        at = self._chunk(pair)
        return sum(map(len, self.chunks[:at])) + self.chunks[at].row(pair)

    def at(self, index: int) -> Pair:
        """The pair with so many before it."""
        for chunk in self.chunks:
            if index < len(chunk):
                return chunk[index]
            index -= len(chunk)
        raise IndexError(index)

    def place(self, pair: Pair) -> tuple[C, int]:
        """A chunk with room for this new pair, and the row to insert it at; it is counted already."""
        self.count += 1
        if not self.chunks or (self.chunks[-1].full and pair > self.chunks[-1][-1]):
            self.chunks.append(self._make())
            return self.chunks[-1], 0
        at = self._chunk(pair)
        if self.chunks[at].full and len(self.chunks[at]) > 1:
            upper = self._make()
            upper.move(self.chunks[at], len(self.chunks[at]) // 2)
            self.chunks.insert(at + 1, upper)
            at = self._chunk(pair)
        return self.chunks[at], self.chunks[at].row(pair)

    def add(self, pair: Pair) -> None:
        """A pair that is not in here."""
        chunk, row = self.place(pair)
        chunk.insert(row, pair)

    def remove(self, pair: Pair) -> None:
        """A pair that is in here."""
        at = self._chunk(pair)
        chunk = self.chunks[at]
        chunk.remove(chunk.row(pair))
        self.count -= 1
        if not len(chunk):
            del self.chunks[at]
        elif len(chunk) < CHUNK_PAIRS // 4:
            self._join(at)

    def _join(self, at: int) -> None:
        """Join this chunk with the one behind it or before it, if the two leave room in one chunk."""
        for lower in (at, at - 1):
            if 0 <= lower < len(self.chunks) - 1 and self.chunks[lower].fits(self.chunks[lower + 1]):
                self.chunks[lower].move(self.chunks[lower + 1], 0)
                del self.chunks[lower + 1]
                return

    def _chunk(self, pair: Pair) -> int:
        """The number of the chunk that this pair is in, or belongs into."""
        last = len(self.chunks) - 1
        if pair >= _lowest(self.chunks[last]):
            return last
        return max(0, bisect_right(self.chunks, pair, key=_lowest) - 1)


def sorted_pairs(pairs: Iterable[Pair]) -> SortedPairs[PairChunk]:
    """These pairs, which ascend."""
    made = SortedPairs(PairChunk)
    firsts, seconds = array("q"), array("q")
    for first, second in pairs:
        firsts.append(first)
        seconds.append(second)
    made.count = len(firsts)
    for begin in range(0, len(firsts), CHUNK_PAIRS):
        chunk = PairChunk()
        chunk.firsts, chunk.seconds = firsts[begin : begin + CHUNK_PAIRS], seconds[begin : begin + CHUNK_PAIRS]
        made.chunks.append(chunk)
    return made


def runs_of(offsets: Sequence[int]) -> Iterator[Pair]:
    """Ascending offsets as `[first, stop)` runs."""
    begin = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            yield offsets[begin], offsets[at - 1] + 1
            begin = at
