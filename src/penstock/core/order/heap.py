"""Lowest (or highest) priority first, ties by offset: exact over all partitions of a queue.

Each partition keeps its own places in order. Over them stands the *spine*: from every partition its true best F, with
F = ceil(K / P) for a queue that promises its consumers one of the K best of P partitions. The spine is brought up to
date in the same step as every push, so its first entry is the best there is (rank 1). Its first F entries are the F
best of all partitions: where those live with different owners, as many may be taken from one view of it before it has
to be looked at again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from heapq import merge

from penstock.core.order.fifo import PARTITION_MASK, Valid

CHUNK = 512
"""Entries per chunk: an insertion moves half a chunk of memory at worst, a chunk costs two arrays."""

LOAD_SLICE = 1 << 15
"""About so many entries are sorted at a time when a heap is loaded."""

Entry = tuple[int, int]
"""(priority, place); a maximum is the minimum of the complements."""


class SortedPlaces:
    """Places in order of (priority, place), sixteen bytes each.

    A list of chunks, each a pair of arrays in order: what a balanced tree would do, with a fraction of its memory and
    with the moving done by memcpy.
    """

    __slots__ = ("_chunks", "_count", "_last_places", "_last_priorities", "_swept")

    def __init__(self) -> None:
        self._chunks: list[tuple[array[int], array[int]]] = []
        self._last_priorities = array("q")
        self._last_places = array("q")
        """Of each chunk: its last entry. Apart from the chunks, so that looking for one touches little memory."""
        self._count = 0
        self._swept = 0
        """The chunk that is swept next."""

    def add(self, priority: int, place: int) -> None:
        if not self._chunks:
            self._replace(0, 0, [(priority, place)])
        else:
            at = min(_row(self._last_priorities, self._last_places, priority, place), len(self._chunks) - 1)
            priorities, places = self._chunks[at]
            row = _row(priorities, places, priority, place)
            priorities.insert(row, priority)
            places.insert(row, place)
            if row == len(priorities) - 1:
                self._last_priorities[at], self._last_places[at] = priority, place
            if len(priorities) > 2 * CHUNK:
                self._replace(at, at + 1, list(zip(priorities, places, strict=True)))
        self._count += 1

    def add_all(self, entries: list[Entry]) -> None:
        """Many at once, in order. Enough of them in front of all the others become chunks as they are."""
        if len(entries) < CHUNK or (self._chunks and entries[-1] > next(iter(self))):
            for entry in entries:
                self.add(*entry)
        else:
            self._replace(0, 0, entries)
            self._count += len(entries)

    def _replace(self, first: int, stop: int, entries: list[Entry]) -> None:
        """These entries in as many chunks as it takes, in the place of those chunks."""
        parts = [entries[low : low + CHUNK] for low in range(0, len(entries), CHUNK)]
        self._chunks[first:stop] = [
            (array("q", [entry[0] for entry in part]), array("q", [entry[1] for entry in part])) for part in parts
        ]
        self._last_priorities[first:stop] = array("q", [part[-1][0] for part in parts])
        self._last_places[first:stop] = array("q", [part[-1][1] for part in parts])

    def take_first(self) -> Entry:
        priorities, places = self._chunks[0]
        self._count -= 1
        first = priorities.pop(0), places.pop(0)
        if not priorities:
            self._replace(0, 1, [])
        return first

    def sweep(self, valid: Valid) -> None:
        """Drop what is no longer valid, and what is there twice, out of the next chunk."""
        if not self._chunks:
            return
        at = self._swept % len(self._chunks)
        priorities, places = self._chunks[at]
        kept = [entry for entry in dict.fromkeys(zip(priorities, places, strict=True)) if valid(entry[1])]
        self._count -= len(priorities) - len(kept)
        joins = at > 0 and len(self._chunks[at - 1][0]) + len(kept) <= CHUNK
        first = at - 1 if joins else at
        if joins:
            kept = [*zip(*self._chunks[first], strict=True), *kept]
        self._replace(first, at + 1, kept)
        self._swept = first + 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for priorities, places in self._chunks:
            yield from zip(priorities, places, strict=True)


def _row(priorities: array[int], places: array[int], priority: int, place: int) -> int:
    """Where (priority, place) belongs among these."""
    row = bisect_left(priorities, priority)
    if row < len(priorities) and priorities[row] == priority:
        row = bisect_left(places, place, row, bisect_right(priorities, priority, row))
    return row


class Heap:
    __slots__ = ("_best", "_count", "_fan_out", "_flip", "_rest", "_spine", "_swept")

    def __init__(self, mode: str, top_k: int, partitions: int):
        # The complement, not the negative: that of the lowest number would not fit.
        self._flip = 0 if mode == "min" else -1
        self._fan_out = -(-top_k // partitions)
        self._spine: list[Entry] = []
        """The best entries of all partitions, in order."""
        self._best: dict[int, list[Entry]] = {}
        """The same by partition, in order. Never more than the fan-out, and fewer only if there are no others."""
        self._rest: dict[int, SortedPlaces] = {}
        self._count = 0
        self._swept = 0

    def follow(self, top_k: int, partitions: int) -> None:
        """Another fan-out from now on: of each partition as many more, or fewer, are in the spine."""
        self._fan_out = -(-top_k // partitions)
        for partition, best in self._best.items():
            while len(best) > self._fan_out:
                displaced = best.pop()
                del self._spine[bisect_left(self._spine, displaced)]
                self._rest_of(partition).add(*displaced)
            while len(best) < self._fan_out and (rest := self._rest.get(partition)):
                entry = rest.take_first()
                best.append(entry)
                insort(self._spine, entry)

    def push(self, place: int, priority: int, *, fresh: bool) -> None:  # noqa: ARG002  one shape for all orders
        self._push((priority ^ self._flip, place))

    def _push(self, entry: Entry) -> None:
        self._count += 1
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
        """Many at once: most go to the rest of their partition, and there together."""
        flip = self._flip
        entries = sorted(zip([each ^ flip for each in priorities], places, strict=True))
        if len({place & PARTITION_MASK for place in places}) == 1:
            self._push_all(entries)
            return
        partitions: dict[int, list[Entry]] = {}
        for entry in entries:
            partitions.setdefault(entry[1] & PARTITION_MASK, []).append(entry)
        for theirs in partitions.values():
            self._push_all(theirs)

    def load(self, places: array[int], priorities: array[int]) -> None:
        """All there is of one partition, at once.

        Sorted in slices of the order's range: a slice is the most that is ever held as tuples.
        """
        flip, count = self._flip, len(places)
        step = max(1, LOAD_SLICE // 8)
        sample = sorted((priorities[at] ^ flip, places[at]) for at in range(0, count, step))
        bounds = sample[8::8]
        slices = [(array("q"), array("q")) for _ in range(len(bounds) + 1)]
        for entry in zip([each ^ flip for each in priorities] if flip else priorities, places, strict=True):
            keys, values = slices[bisect_right(bounds, entry)]
            keys.append(entry[0])
            values.append(entry[1])
        while slices:
            # The last slice first: each then goes in front of all that is there.
            self._push_all(sorted(zip(*slices.pop(), strict=True)))

    def _push_all(self, entries: list[Entry]) -> None:
        """Of one partition, sorted."""
        if not entries:
            return
        partition = entries[0][1] & PARTITION_MASK
        best = self._best.get(partition, [])
        # Only the first F can be among the best, and of them only those that find room or are better than the last.
        ahead = min(self._fan_out, self._fan_out - len(best) + (bisect_left(entries, best[-1]) if best else 0))
        for entry in entries[:ahead]:
            self._push(entry)
        if ahead < len(entries):
            self._rest_of(partition).add_all(entries[ahead:])
            self._count += len(entries) - ahead

    def _rest_of(self, partition: int) -> SortedPlaces:
        rest = self._rest.get(partition)
        if rest is None:
            rest = self._rest[partition] = SortedPlaces()
        return rest

    def pop(self, valid: Valid, _now_ms: int = 0) -> int | None:
        while self._spine:
            _, place = self._spine.pop(0)
            self._count -= 1
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
            rest = self._rest[partitions[self._swept]]
            before = len(rest)
            rest.sweep(valid)
            self._count -= before - len(rest)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for _, place in merge(self._spine, *self._rest.values()):
            yield place

    def turns(self, valid: Valid, _now_ms: int) -> Iterator[int]:
        """The places that one decision would pop, in order, without popping them."""
        return (place for place in self if valid(place))
