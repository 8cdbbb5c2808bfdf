"""Sets of offsets kept as ranges: a million acked messages in a row are two integers.

Ranges are half open, `[start, stop)`, sorted, and never touch each other. Adding at the end, the usual case, costs
O(1); anywhere else a bisection and one memory move.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RangeSet:
    __slots__ = ("count", "starts", "stops")

    def __init__(self, ranges: list[tuple[int, int]] | None = None):
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.count = 0
        for start, stop in ranges or ():
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Put `[start, stop)` in; what is already there stays."""
        starts, stops = self.starts, self.stops
        if start >= stop:
            return
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            self.count += stop - start
            return
        low = bisect_left(stops, start)
        if stop < starts[low]:
            starts.insert(low, start)
            stops.insert(low, stop)
            self.count += stop - start
            return
        high = bisect_right(starts, stop, low)
        start = min(start, starts[low])
        stop = max(stop, stops[high - 1])
        if high - low == 1:
            self.count += stop - start - (stops[low] - starts[low])
            starts[low], stops[low] = start, stop
            return
        self.count -= sum(stops[low:high]) - sum(starts[low:high])
        starts[low:high] = [start]
        stops[low:high] = [stop]
        self.count += stop - start

    def remove(self, start: int, stop: int) -> None:
        """Take `[start, stop)` out; what is not there is no matter."""
        starts, stops = self.starts, self.stops
        low = bisect_right(stops, start)
        high = bisect_left(starts, stop)
        if low >= high:
            return
        first, last = starts[low], stops[high - 1]
        if high - low == 1 and first == start and last == stop:
            del starts[low], stops[low]
            self.count -= stop - start
            return
        self.count -= sum(stops[low:high]) - sum(starts[low:high])
        left_start, left_stop = ([first], [start]) if first < start else ([], [])
        right_start, right_stop = ([stop], [last]) if last > stop else ([], [])
        starts[low:high] = left_start + right_start
        stops[low:high] = left_stop + right_stop
        self.count += (start - first if first < start else 0) + (last - stop if last > stop else 0)

    def remove_below(self, bound: int) -> None:
        if self.starts and self.starts[0] < bound:
            self.remove(self.starts[0], bound)

    def close_gaps(self, most: int) -> None:
        """With more ranges than this, take in the lowest gaps between them, and some more: it is to be seldom."""
        surplus = len(self.starts) - most
        if surplus > 0:
            self.add(self.starts[0], self.stops[surplus + most // 10])

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.starts, offset) - 1
        return at >= 0 and offset < self.stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.stops, strict=True)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self.starts == other.starts and self.stops == other.stops

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    __hash__ = None  # type: ignore[assignment]

    def past(self, offset: int) -> int:
        """The first offset at or after this one that is not in the set."""
        at = bisect_right(self.starts, offset) - 1
        return self.stops[at] if at >= 0 and offset < self.stops[at] else offset

    def next_start(self, offset: int, otherwise: int) -> int:
        """Where the next range after `offset` begins. `offset` itself must not be in the set."""
        at = bisect_right(self.starts, offset)
        return self.starts[at] if at < len(self.starts) else otherwise

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, stop)` that are in the set."""
        starts, stops = self.starts, self.stops
        at = bisect_right(stops, start)
        while at < len(starts) and starts[at] < stop:
            yield max(start, starts[at]), min(stop, stops[at])
            at += 1

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, stop)` that are not in the set."""
        for inside, after in self.within(start, stop):
            if start < inside:
                yield start, inside
            start = after
        if start < stop:
            yield start, stop

    def overlaps(self, start: int, stop: int) -> bool:
        at = bisect_right(self.stops, start)
        return at < len(self.starts) and self.starts[at] < stop

    def count_in(self, start: int, stop: int) -> int:
        """How many members lie in `[start, stop)`; two sums over the ranges between them."""
        low, high = bisect_right(self.stops, start), bisect_left(self.starts, stop)
        if low >= high:
            return 0
        inside = sum(self.stops[low:high]) - sum(self.starts[low:high])
        return inside - max(0, start - self.starts[low]) - max(0, self.stops[high - 1] - stop)

    def flat(self) -> list[int]:
        """`[start, stop, start, stop, …]`, the shape of records and snapshots."""
        return [bound for pair in zip(self.starts, self.stops, strict=True) for bound in pair]

    @classmethod
    def from_flat(cls, flat: list[int]) -> RangeSet:
        return cls(list(pairs(flat)))

    def copy(self) -> RangeSet:
        twin = RangeSet()
        twin.starts, twin.stops, twin.count = self.starts.copy(), self.stops.copy(), self.count
        return twin


def pairs(flat: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of a flat list."""
    return zip(flat[::2], flat[1::2], strict=True)


def total(flat: list[int]) -> int:
    """How many offsets a flat list of ranges names."""
    return sum(flat[1::2]) - sum(flat[::2])
