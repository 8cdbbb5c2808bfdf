"""Sets of offsets kept as ranges: a million acked messages in a row are two integers.

Ranges are half open, `[start, stop)`, sorted, and never touch each other. Adding at the end, the usual case, costs
O(1); anywhere else a bisection and one memory move.

Offsets that are added in random order fragment a set: halfway through a heap of two million messages it would have half
a million ranges, and each change would move megabytes. A `CrumblingSet` of thousands of ranges is therefore kept as
bits, until few are left.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any, Self

from penstock.core.offsets.bits import OffsetBits, between

CRUMBS = 4_096
"""Ranges from which on a set is kept as bits."""
CRUMB_SPAN_MAX = 1_024
"""Offsets a range, on average, beyond which bits would take too much room: about a page each."""
_NO_BOUNDS: Any = ()
"""Shared by sets without ranges: a partition has many sets, and most of them are empty."""


class RangeSet:
    __slots__ = ("_bits", "count", "starts", "stops")

    crumbles = False

    def __init__(self, ranges: list[tuple[int, int]] | None = None):
        self.starts: list[int] = _NO_BOUNDS
        self.stops: list[int] = _NO_BOUNDS
        """Both are empty where the set is kept as bits."""
        self._bits: OffsetBits | None = None
        self.count = 0
        for start, stop in ranges or ():
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Put `[start, stop)` in; what is already there stays."""
        starts, stops = self.starts, self.stops
        if start >= stop:
            return
        if not stops or start > stops[-1]:
            if self._bits is not None:
                self._bits.add(start, stop)
                self.count = self._bits.count
                return
            self.count += stop - start
            if starts is _NO_BOUNDS:
                self.starts, self.stops = [start], [stop]
                return
            starts.append(start)
            stops.append(stop)
            if len(starts) > CRUMBS:
                self._crumble()
            return
        low = bisect_left(stops, start)
        if stop < starts[low]:
            starts.insert(low, start)
            stops.insert(low, stop)
            self.count += stop - start
            if len(starts) > CRUMBS:
                self._crumble()
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
        if start >= stop:
            return
        starts, stops = self.starts, self.stops
        if self._bits is not None:
            self._bits.remove(start, stop)
            self.count = self._bits.count
            self._gather()
            return
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
        if len(starts) > CRUMBS:
            self._crumble()

    def remove_below(self, bound: int) -> None:
        if self._bits is not None:
            self._bits.remove_below(bound)
            self.count = self._bits.count
            self._gather()
        elif self.starts and self.starts[0] < bound:
            self.remove(self.starts[0], bound)

    def _crumble(self) -> None:
        """From ranges to bits, unless they lie so far apart that it would not pay."""
        if self.crumbles and self.stops[-1] - self.starts[0] <= CRUMB_SPAN_MAX * len(self.starts):
            bits = OffsetBits()
            for start, stop in self:
                bits.add(start, stop)
            self._bits, self.starts, self.stops = bits, _NO_BOUNDS, _NO_BOUNDS

    def _gather(self) -> None:
        """From bits to ranges, where so little is left that it cannot be many."""
        bits = self._bits
        if bits is not None and bits.count <= CRUMBS // 2:
            self._bits, self.starts, self.stops = None, [], []
            for start, stop in bits:
                self.starts.append(start)
                self.stops.append(stop)

    def close_gaps(self, most: int) -> None:
        """With more ranges than this, take in the lowest gaps between them, and some more: it is to be seldom."""
        surplus = self.ranges - most
        if surplus > 0:
            closed = list(islice(self, surplus + most // 10 + 1))
            self.add(closed[0][0], closed[-1][1])

    @property
    def ranges(self) -> int:
        """How many there are."""
        return len(self.starts) if self._bits is None else self._bits.stretch_count()

    @property
    def end(self) -> int:
        """No member is at or above this offset."""
        if self.stops:
            return self.stops[-1]
        return self._bits.end if self._bits is not None else 0

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.starts, offset) - 1
        if at < 0:
            return self._bits is not None and offset in self._bits
        return offset < self.stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.stops, strict=True) if self._bits is None else iter(self._bits)

    def __bool__(self) -> bool:
        return self.count > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet) or self.count != other.count:
            return False
        return all(one == another for one, another in zip(self, other, strict=False))

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    __hash__ = None  # type: ignore[assignment]

    def past(self, offset: int) -> int:
        """The first offset at or after this one that is not in the set."""
        at = bisect_right(self.starts, offset) - 1
        if at < 0:
            return offset if self._bits is None else self._bits.past(offset)
        return self.stops[at] if offset < self.stops[at] else offset

    def next_start(self, offset: int, otherwise: int) -> int:
        """Where the next range after `offset` begins. `offset` itself must not be in the set."""
        if self._bits is not None:
            return next((start for start, _ in self._bits.stretches(offset, self._bits.end)), otherwise)
        at = bisect_right(self.starts, offset)
        return self.starts[at] if at < len(self.starts) else otherwise

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, stop)` that are in the set."""
        if self._bits is not None:
            yield from self._bits.stretches(start, stop)
            return
        starts, stops = self.starts, self.stops
        at = bisect_right(stops, start)
        while at < len(starts) and starts[at] < stop:
            yield max(start, starts[at]), min(stop, stops[at])
            at += 1

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, stop)` that are not in the set."""
        if not self.count:
            return iter(((start, stop),) if start < stop else ())
        return between(self.within(start, stop), start, stop)

    def overlaps(self, start: int, stop: int) -> bool:
        if self._bits is not None:
            return any(self._bits.stretches(start, stop))
        at = bisect_right(self.stops, start)
        return at < len(self.starts) and self.starts[at] < stop

    def count_in(self, start: int, stop: int) -> int:
        """How many members lie in `[start, stop)`; two sums over the ranges between them."""
        if self._bits is not None:
            return self._bits.count_in(start, max(start, stop))
        low, high = bisect_right(self.stops, start), bisect_left(self.starts, stop)
        if low >= high:
            return 0
        inside = sum(self.stops[low:high]) - sum(self.starts[low:high])
        return inside - max(0, start - self.starts[low]) - max(0, self.stops[high - 1] - stop)

    def flat(self) -> list[int]:
        """`[start, stop, start, stop, …]`, the shape of records and snapshots."""
        return [bound for pair in self for bound in pair]

    @classmethod
    def from_flat(cls, flat: list[int]) -> Self:
        return cls(list(pairs(flat)))

    def copy(self) -> Self:
        twin = type(self)()
        if self.starts:
            twin.starts, twin.stops = self.starts.copy(), self.stops.copy()
        twin.count = self.count
        twin._bits = None if self._bits is None else self._bits.copy()
        return twin


class CrumblingSet(RangeSet):
    """For offsets that come in no order. Not for numbers that clients choose: bits take room by their distance."""

    __slots__ = ()

    crumbles = True


def pairs(flat: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of a flat list."""
    return zip(flat[::2], flat[1::2], strict=True)


def total(flat: list[int]) -> int:
    """How many offsets a flat list of ranges names."""
    return sum(flat[1::2]) - sum(flat[::2])


def drop_range(table: dict[int, Any], first: int, stop: int) -> None:
    """Remove the keys in `[first, stop)`."""
    for offset in within(table, first, stop):
        del table[offset]


def within(table: dict[int, Any], first: int, stop: int) -> list[int]:
    """The keys in `[first, stop)`; looks at whichever of the two is shorter."""
    if stop - first <= len(table):
        return [offset for offset in range(first, stop) if offset in table]
    return [offset for offset in table if first <= offset < stop]
