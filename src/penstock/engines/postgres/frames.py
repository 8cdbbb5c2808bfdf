"""Sizes of the frames of a journal by index, without asking the store."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from penstock import limits

BLOCK_BYTES = 4 * limits.KIB
"""Frames are counted together up to this size: a table of single small frames would be as large as they are."""
MARK_BYTES = limits.MIB


class FrameSizes:
    """Bytes before each block of frames, which is 16 bytes for each block."""

    def __init__(self) -> None:
        self._firsts = array("q")
        """The index of the first frame of each block."""
        self._before = array("q")
        """The bytes of all frames before it."""
        self._last = 0
        """The index of the last frame."""
        self._total = 0
        self._marks = array("q")
        self._marked = 0

    def add(self, index: int, size: int, last: int | None = None) -> None:
        """Frames from this index on, up to `last`, have this many bytes together."""
        if not self._firsts or self._total - self._before[-1] >= BLOCK_BYTES:
            self._firsts.append(index)
            self._before.append(self._total)
        self._last = last or index
        self._total += size
        if self._total - self._marked >= MARK_BYTES:
            self._marks.append(self._last)
            self._marked = self._total

    def mark(self, index: int) -> None:
        """`ends` has this index too."""
        if index > (self._marks[-1] if self._marks else 0):
            self._marks.append(index)

    def since(self, index: int) -> int:
        """About the bytes from this frame on: those before it in its block are counted as well."""
        if not self._firsts or index > self._last:
            return 0
        return self._total - self._before[max(0, bisect_right(self._firsts, index) - 1)]

    def ends(self, tail: int) -> list[tuple[int, int]]:
        return [(index, index) for index in self._marks if index < tail]

    def drop(self, upto: int) -> None:
        """Frames up to this index are gone. A block stays until the last frame of it is gone."""
        at = len(self._firsts) if upto >= self._last else max(0, bisect_right(self._firsts, upto + 1) - 1)
        del self._firsts[:at], self._before[:at]
        del self._marks[: bisect_left(self._marks, upto)]

    @property
    def average(self) -> int:
        if not self._firsts:
            return 1
        return max(1, self.since(0) // max(1, self._last - self._firsts[0] + 1))
