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
from collections.abc import Iterator, Sequence
from heapq import merge

from penstock.core.line import PARTITION_MASK, Valid

CHUNK = 512
"""Entries per chunk: an insertion moves half a chunk of memory at worst, a chunk costs two arrays."""

Entry = tuple[int, int]
"""(priority, place); a maximum is the minimum of the complements."""


class SortedPlaces:
    """Places in order of (priority, place), sixteen bytes each.

    A list of chunks, each a pair of arrays in order: what a balanced tree would do, with a fraction of its memory and
    with the moving done by memcpy.
    """

    __slots__ = ("_chunks", "_count", "_lasts", "_swept")

    def __init__(self) -> None:
        self._chunks: list[tuple[array[int], array[int]]] = []
        self._lasts: list[Entry] = []
        """The last entry of each chunk."""
        self._count = 0
        self._swept = 0
        """The chunk that is swept next."""

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
            self._split(at)

    def add_all(self, entries: Sequence[Entry]) -> None:
        """Many at once, in order: where several fall into one chunk, it is put in order once for all of them."""
        begin = 0
        while begin < len(entries):
            at = min(bisect_left(self._lasts, entries[begin]), len(self._lasts) - 1)
            # The last chunk also takes what is above everything.
            last = at == len(self._lasts) - 1
            stop = len(entries) if last else bisect_right(entries, self._lasts[at], begin)
            if stop - begin < 8 and self._chunks:
                for entry in entries[begin:stop]:
                    self.add(*entry)
            else:
                self._merge(max(at, 0), entries[begin:stop])
            begin = stop

    def _merge(self, at: int, entries: Sequence[Entry]) -> None:
        """Put these into the chunk `at`, and make as many chunks of it as it takes."""
        merged = list(entries)
        if self._chunks:
            merged += zip(*self._chunks[at], strict=True)
            merged.sort()  # two sorted runs: one pass
        self._count += len(entries)
        chunks = [merged[low : low + CHUNK] for low in range(0, len(merged), CHUNK)]
        self._chunks[at : at + 1] = [
            (array("q", [entry[0] for entry in chunk]), array("q", [entry[1] for entry in chunk])) for chunk in chunks
        ]
        self._lasts[at : at + 1] = [chunk[-1] for chunk in chunks]

    def _split(self, at: int) -> None:
        priorities, places = self._chunks[at]
        self._chunks[at : at + 1] = [(priorities[:CHUNK], places[:CHUNK]), (priorities[CHUNK:], places[CHUNK:])]
        self._lasts.insert(at, (priorities[CHUNK - 1], places[CHUNK - 1]))

    def take_first(self) -> Entry:
        priorities, places = self._chunks[0]
        self._count -= 1
        first = priorities.pop(0), places.pop(0)
        if not priorities:
            del self._chunks[0], self._lasts[0]
        return first

    def sweep(self, valid: Valid) -> None:
        """Drop what is no longer valid, and what is there twice, out of the next chunk."""
        if not self._chunks:
            return
        at = self._swept % len(self._chunks)
        priorities, places = self._chunks[at]
        kept = [entry for entry in dict.fromkeys(zip(priorities, places, strict=True)) if valid(entry[1])]
        self._count -= len(priorities) - len(kept)
        self._swept = at + 1
        before = self._chunks[at - 1] if at else None
        priorities, places = array("q", [entry[0] for entry in kept]), array("q", [entry[1] for entry in kept])
        if kept and (before is None or len(before[0]) + len(kept) > CHUNK):
            self._chunks[at] = priorities, places
            self._lasts[at] = kept[-1]
            return
        del self._chunks[at], self._lasts[at]
        self._swept = at
        if kept and before is not None:
            before[0].extend(priorities)
            before[1].extend(places)
            self._lasts[at - 1] = kept[-1]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for priorities, places in self._chunks:
            yield from zip(priorities, places, strict=True)


class Heap:
    __slots__ = ("_best", "_fan_out", "_flip", "_rest", "_spine", "_swept")

    def __init__(self, mode: str, top_k: int, partitions: int):
        # The complement, not the negative: that of the lowest number would not fit.
        self._flip = 0 if mode == "min" else -1
        self._fan_out = -(-top_k // partitions)
        self._spine: list[Entry] = []
        """The best entries of all partitions, in order."""
        self._best: dict[int, list[Entry]] = {}
        """The same by partition, in order. Never more than the fan-out, and fewer only if there are no others."""
        self._rest: dict[int, SortedPlaces] = {}
        self._swept = 0

    def push(self, place: int, priority: int, *, fresh: bool) -> None:  # noqa: ARG002  one shape for all orders
        self._push((priority ^ self._flip, place))

    def _push(self, entry: Entry) -> None:
        partition = entry[1] & PARTITION_MASK
        best = self._best.setdefault(partition, [])
        if len(best) == self._fan_out:
            if entry > best[-1]:
                self._rest_of(partition).add(*entry)
                return
            displaced = best.pop()
            del self._spine[bisect_left(self._spine, displaced)]
            self._rest_of(partition).add(*displaced)
        insort(best, entry)
        insort(self._spine, entry)

    def push_all(self, places: Sequence[int], priorities: Sequence[int]) -> None:
        """Many at once, all of one partition: most go to the rest, and there together."""
        if not places:
            return
        flip = self._flip
        entries = sorted(zip([priority ^ flip for priority in priorities] if flip else priorities, places, strict=True))
        partition = places[0] & PARTITION_MASK
        best = self._best.get(partition, [])
        # Only the first F can be among the best, and of them only those that find room or are better than the last.
        ahead = min(self._fan_out, self._fan_out - len(best) + (bisect_left(entries, best[-1]) if best else 0))
        for entry in entries[:ahead]:
            self._push(entry)
        if ahead < len(entries):
            self._rest_of(partition).add_all(entries[ahead:])

    def _rest_of(self, partition: int) -> SortedPlaces:
        rest = self._rest.get(partition)
        if rest is None:
            rest = self._rest[partition] = SortedPlaces()
        return rest

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

    def sweep(self, valid: Valid) -> None:
        """Drop some of what is no longer valid. Others drop it when it comes up; here it may never come up."""
        if self._rest:
            partitions = list(self._rest)
            self._swept = (self._swept + 1) % len(partitions)
            self._rest[partitions[self._swept]].sweep(valid)

    def __len__(self) -> int:
        return len(self._spine) + sum(map(len, self._rest.values()))

    def __iter__(self) -> Iterator[int]:
        for _, place in merge(self._spine, *self._rest.values()):
            yield place

    def turns(self, valid: Valid, _now_ms: int) -> Iterator[int]:
        """What one decision would pop, in order, without popping it."""
        return (place for place in self if valid(place))
