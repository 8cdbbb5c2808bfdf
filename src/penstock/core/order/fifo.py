"""First come, first served: places in a row, eight bytes each.

A published message joins at the end. A message that comes later than its place (released, due by now) is kept beside
the row in a small heap, and goes before the first of the row that is younger.

A place is one integer that says where a message is and sorts by how old it is: how often the queue had grown when it
came (8 bits), its offset (47 bits), its partition (8 bits). Of two messages with one key the older one has the lower
place, also where the key has moved to a new partition in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import islice

from penstock import limits

PARTITION_BITS = 8
PARTITION_MASK = (1 << PARTITION_BITS) - 1
OFFSET_MASK = (1 << 47) - 1
AGE_SHIFT = PARTITION_BITS + 47
assert limits.PARTITIONS_MAX <= 1 << PARTITION_BITS, "also a queue that grew by one partition each time fits its age"


def place_of(partition: int, offset: int, age: int = 0) -> int:
    return age << AGE_SHIFT | offset << PARTITION_BITS | partition


def partition_and_offset(place: int) -> tuple[int, int]:
    return place & PARTITION_MASK, place >> PARTITION_BITS & OFFSET_MASK


Valid = Callable[[int], bool]
"""Whether the message at this place can still be leased: it may have been settled, leased or moved since then."""


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

    def push_all(self, places: Sequence[int], _priorities: Sequence[int]) -> None:
        """Many at once, all fresh."""
        self._row.extend(places)

    def pop(self, valid: Valid, _now_ms: int = 0) -> int | None:
        """The first that is still valid; those before it are dropped."""
        back, row = self._back, self._row
        while self._head < len(row):
            place = row[self._head]
            if not valid(place):
                self._pass()
                continue
            while back and back[0] < place:
                older = heappop(back)
                if valid(older):
                    return older
            self._pass()
            return place
        while back:
            place = heappop(back)
            if valid(place):
                return place
        return None

    def _pass(self) -> None:
        """The first of the row leaves it."""
        self._head += 1
        if self._head * 2 > len(self._row) + 64:
            del self._row[: self._head]
            self._head = 0

    def sweep(self, valid: Valid) -> None:
        """Nothing to do: invalid places are dropped when they are popped."""

    def __len__(self) -> int:
        """How many there are, counting those that are no longer valid."""
        return len(self._row) - self._head + len(self._back)

    def __iter__(self) -> Iterator[int]:
        """In the order in which they would be popped. The first few cost little, however many have come back."""
        return merge(ascending(self._back), islice(self._row, self._head, None))

    def turns(self, valid: Valid, _now_ms: int) -> Iterator[int]:
        """The places that one decision would pop, in order, without popping them."""
        return (place for place in self if valid(place))


def ascending(heap: list[int]) -> Iterator[int]:
    """The entries of a heap in order, without changing it: O(k log k) for the first k."""
    front = [(heap[0], 0)] if heap else []
    while front:
        entry, at = heappop(front)
        yield entry
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heappush(front, (heap[child], child))
