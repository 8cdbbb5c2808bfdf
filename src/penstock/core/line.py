"""First come, first served: places in a row, eight bytes each.

What is published joins at the end. What comes back (given back, due again) is older than all that, so it is kept
beside the row in a small heap and goes first.

A place is one integer, `offset << 8 | partition`: places of one partition sort like their offsets.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from penstock import limits

PARTITION_BITS = 8
PARTITION_MASK = (1 << PARTITION_BITS) - 1
assert limits.PARTITIONS_MAX <= 1 << PARTITION_BITS

Valid = Callable[[int], bool]
"""Is this place still to be given out? What is in a row may have been settled, leased or moved since it joined."""


class Line:
    __slots__ = ("_back", "_head", "_row")

    def __init__(self) -> None:
        self._row = array("q")
        self._head = 0
        self._back: list[int] = []

    def push(self, place: int, _priority: int, *, fresh: bool) -> None:
        if fresh:
            self._row.append(place)
        else:
            heappush(self._back, place)

    def pop(self, valid: Valid, _now_ms: int = 0) -> int | None:
        """The first that is still valid; those before it are dropped."""
        back = self._back
        while back:
            place = heappop(back)
            if valid(place):
                return place
        row = self._row
        while self._head < len(row):
            place = row[self._head]
            self._head += 1
            if self._head * 2 > len(row) + 64:
                del row[: self._head]
                self._head = 0
            if valid(place):
                return place
        return None

    def __len__(self) -> int:
        """How many there are, counting those that are no longer valid."""
        return len(self._row) - self._head + len(self._back)

    def __iter__(self) -> Iterator[int]:
        """In the order in which they would be popped."""
        yield from sorted(self._back)
        for at in range(self._head, len(self._row)):
            yield self._row[at]
