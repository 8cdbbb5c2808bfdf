"""Reading a journal piece by piece, for readers that come again: where each has stopped is remembered.

Without that every piece would cost reading its file from the beginning, where the chain that is checked begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.engines.local.segment import Segment
from penstock.journal.frame import BadFrame, Frame
from penstock.journal.port import Damaged

PLACES_KEPT = 64


class Place(NamedTuple):
    """Where a frame begins, and what it continues."""

    file: int
    at: int
    frame: int
    chain: bytes


class PieceReader:
    """Used by one thread, that for bulk work."""

    def __init__(
        self,
        pin: Callable[[int], list[Segment]],
        unpin: Callable[[list[Segment]], None],
        scan: Callable[[Segment, Place | None], Iterator[tuple[int, Frame]]],
    ):
        self._pin = pin
        self._unpin = unpin
        self._scan = scan
        self._places: dict[int, Place] = {}
        """Last frame of a piece -> where the next one begins."""

    def read(self, after: int, bytes_max: int) -> list[Frame]:
        """See `ShardJournal.read_frames`; blocking."""
        pinned = self._pin(after)
        found: list[Frame] = []
        try:
            for segment in pinned:
                try:
                    for at, frame in self._scan(segment, self._known_place(after, segment)):
                        if frame.index <= after:
                            continue
                        found.append(frame)
                        after, bytes_max = frame.index, bytes_max - frame.size
                        if bytes_max <= 0:
                            self._remember(after, Place(segment.first, at + frame.size, after + 1, frame.chain))
                            return found
                except BadFrame as error:
                    raise Damaged(f"{segment.path}, behind frame {after}: {error}") from None
        finally:
            self._unpin(pinned)
        return found

    def _known_place(self, after: int, segment: Segment) -> Place | None:
        place = self._places.get(after)
        return place if place is not None and place.file == segment.first else None

    def _remember(self, after: int, place: Place) -> None:
        self._places.pop(after, None)
        self._places[after] = place
        if len(self._places) > PLACES_KEPT:
            del self._places[next(iter(self._places))]
