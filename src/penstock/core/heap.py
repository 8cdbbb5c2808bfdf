"""Lowest (or highest) priority first, ties by offset: exact over all partitions of a queue.

Each partition keeps its own places in order. Over them stands the *spine*: from every partition its true best F, with
F = ceil(K / P) for a queue that promises its consumers one of the K best of P partitions. The spine is brought up to
date in the same step as every push, so its first entry is the best there is (rank 1) as long as all partitions are
here; where partitions live with different owners, each owner's entries are among its F best, and what is taken from
the spine is among the P x F best of all, whoever takes it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import merge

from penstock.core.line import PARTITION_MASK, Valid

CHUNK = 512
"""Entries per chunk: an insertion moves half a chunk of memory at worst, a chunk costs two arrays."""


class SortedPlaces:
    """Places in order of (priority, place), sixteen bytes each.

    A list of chunks, each a pair of arrays in order: what a balanced tree would do, with a fraction of its memory and
    with the moving done by memcpy.
    """

    __slots__ = ("_chunks", "_count", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[tuple[array[int], array[int]]] = []
        self._lasts: list[tuple[int, int]] = []
        """The last entry of each chunk."""
        self._count = 0

    def add(self, priority: int, place: int) -> None:
        self._count += 1
        if not self._chunks:
            self._chunks.append((array("q", [priority]), array("q", [place])))
            self._lasts.append((priority, place))
            return
        at = min(bisect_left(self._lasts, (priority, place)), len(self._lasts) - 1)
        priorities, places = self._chunks[at]
        low = bisect_left(priorities, priority)
        row = bisect_left(places, place, low, bisect_right(priorities, priority, low))
        priorities.insert(row, priority)
        places.insert(row, place)
        if row == len(priorities) - 1:
            self._lasts[at] = (priority, place)
        if len(priorities) > 2 * CHUNK:
            self._chunks[at : at + 1] = [(priorities[:CHUNK], places[:CHUNK]), (priorities[CHUNK:], places[CHUNK:])]
            self._lasts.insert(at, (priorities[CHUNK - 1], places[CHUNK - 1]))

    def take_first(self) -> tuple[int, int]:
        priorities, places = self._chunks[0]
        self._count -= 1
        first = priorities.pop(0), places.pop(0)
        if not priorities:
            del self._chunks[0], self._lasts[0]
        return first

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for priorities, places in self._chunks:
            yield from zip(priorities, places, strict=True)


class Heap:
    __slots__ = ("_best", "_fan_out", "_rest", "_sign", "_spine")

    def __init__(self, mode: str, top_k: int, partitions: int):
        self._sign = 1 if mode == "min" else -1
        self._fan_out = -(-top_k // partitions)
        self._spine: list[tuple[int, int]] = []
        """The best entries of all partitions, in order."""
        self._best: dict[int, list[tuple[int, int]]] = {}
        """The same by partition, in order. Never more than the fan-out, and fewer only if there are no others."""
        self._rest: dict[int, SortedPlaces] = {}

    def push(self, place: int, priority: int, *, fresh: bool) -> None:  # noqa: ARG002  one shape for all orders
        # A maximum is the minimum of the complements; the negative of the lowest number would not fit.
        entry = (priority if self._sign > 0 else ~priority, place)
        partition = place & PARTITION_MASK
        best = self._best.setdefault(partition, [])
        if len(best) == self._fan_out:
            if entry > best[-1]:
                self._put_by(partition, entry)
                return
            displaced = best.pop()
            del self._spine[bisect_left(self._spine, displaced)]
            self._put_by(partition, displaced)
        insort(best, entry)
        insort(self._spine, entry)

    def _put_by(self, partition: int, entry: tuple[int, int]) -> None:
        rest = self._rest.get(partition)
        if rest is None:
            rest = self._rest[partition] = SortedPlaces()
        rest.add(*entry)

    def pop(self, valid: Valid, _now_ms: int = 0) -> int | None:
        while self._spine:
            _, place = self._spine.pop(0)
            partition = place & PARTITION_MASK
            self._best[partition].pop(0)
            self._promote(partition)
            if valid(place):
                return place
        return None

    def _promote(self, partition: int) -> None:
        rest = self._rest.get(partition)
        if rest:
            entry = rest.take_first()
            self._best[partition].append(entry)
            insort(self._spine, entry)
        elif not self._best[partition]:
            del self._best[partition]
            self._rest.pop(partition, None)

    def __len__(self) -> int:
        return len(self._spine) + sum(map(len, self._rest.values()))

    def __iter__(self) -> Iterator[int]:
        for _, place in merge(self._spine, *self._rest.values()):
            yield place
