"""Sizes of the frames of a journal by index, without asking the store."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

MARK_BYTES = 1024 * 1024


class FrameSizes:
    """Bytes before each frame: exact for frames of this process, by blocks for those before."""

    def __init__(self) -> None:
        self._indexes = array("q")
        self._before = array("q")
        """Of each index, the bytes before it: 16 bytes a frame, of which small commits make hundreds of thousands."""
        self._total = 0
        self._marks: list[int] = []
        self._marked = 0

    def add(self, index: int, size: int, last: int | None = None) -> None:
        """Frames from this index on, up to `last`, have this many bytes together."""
        self._indexes.append(index)
        self._before.append(self._total)
        self._total += size
        if self._total - self._marked >= MARK_BYTES:
            self._marks.append(last or index)
            self._marked = self._total

    def since(self, index: int) -> int:
        at = max(0, bisect_right(self._indexes, index) - 1)
        return self._total - self._before[at] if at < len(self._before) else 0

    def ends(self, tail: int) -> list[tuple[int, int]]:
        return [(index, index) for index in self._marks if index < tail]

    def drop(self, upto: int) -> None:
        """Frames up to this index are gone."""
        at = bisect_right(self._indexes, upto)
        del self._indexes[:at], self._before[:at]
        del self._marks[: bisect_left(self._marks, upto)]

    @property
    def average(self) -> int:
        count = max(1, len(self._indexes))
        return max(1, self.since(0) // count)
