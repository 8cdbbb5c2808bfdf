"""One file of the journal, as the journal that has it open knows it."""

from __future__ import annotations


class Segment:
    """One journal file."""

    __slots__ = ("first", "handle", "path", "pins", "size", "trimmed", "zeroed")

    def __init__(self, path: str, handle: int, first: int, size: int):
        self.path = path
        self.handle = handle
        self.first = first
        self.size = size
        """Where the next frame goes."""
        self.zeroed = size
        """The file's own size: from `size` to here it is filled with zeros."""
        self.pins = 0
        """Those who are reading it from end to end."""
        self.trimmed = False
        """Removed; whoever reads it last closes it."""
