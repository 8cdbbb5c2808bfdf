"""One file of the journal, as the journal that has it open knows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from penstock.batch import Buffer


class Segment:
    """One journal file."""

    __slots__ = ("first", "handle", "path", "pins", "prepared", "size", "trimmed", "used_before")

    def __init__(self, path: str, handle: int, first: int, size: int):
        self.path = path
        self.handle = handle
        self.first = first
        self.size = size
        """Where the next frame goes."""
        self.prepared = size
        """The file's own size: from `size` to here there are zeros, or what is left of an earlier life."""
        self.used_before = False
        self.pins = 0
        """Number of readers that read the file from end to end."""
        self.trimmed = False
        """Removed; its last reader closes it."""

    def filled_up(self, parts: Sequence[Buffer], end: int, page: bytes) -> list[Buffer]:
        """The parts, which end at `end`, padded with zeros to the end of the page or of the file.

        Without the padding the kernel would have to read the old content of the page before writing it.
        """
        return [*parts, page[: max(0, min(-end % len(page), self.prepared - end))]]


@cache
def zeros(count: int) -> bytes:
    """Zeros to write ahead, shared by all journals."""
    return bytes(count)
