"""The locations of the messages of a partition: a sparse index from offsets to stored pieces.

A piece is a stretch of a journal frame, or of a sealed segment, with the records that lie side by side in it. It is at
least 4 KiB where they are small, so the index grows with bytes, not with messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import floordiv, sub
from typing import NamedTuple
from zlib import crc32

from penstock import limits
from penstock.batch import Batch, layout


class StoredPiece(NamedTuple):
    """Where a piece lies, whatever its place in the index is by now."""

    locator: int
    skip: int
    length: int
    end: int
    """Behind its last offset."""


_COLUMNS = {
    "firsts": "q", "ends": "q", "locators": "q", "skips": "q", "lengths": "q", "ids_high": "Q", "ids_low": "Q",
    "spans": "q", "sizes": "q",
}  # fmt: skip
SPAN_MAX = 2**63 - 1
_LOW = 2**64 - 1


class PartitionIndex:
    """Pieces in ascending order of their first offset, in parallel arrays of integers."""

    __slots__ = (
        "count", "each_max", "ends", "firsts", "ids_high", "ids_low", "lengths", "locators", "prints", "sealed_count",
        "sealed_size", "size", "sizes", "skips", "spans",
    )  # fmt: skip

    def __init__(self) -> None:
        self.firsts = array("q")
        self.ends = array("q")
        self.locators = array("q")
        """Of the journal if positive; otherwise minus the number of a sealed segment."""
        self.skips = array("q")
        self.lengths = array("q")
        """From its first byte to its last; records of others may lie in between."""
        self.sizes = array("q")
        """Of its own records."""
        self.ids_high = array("Q")
        """The first message's id: ids grow within a partition. Of pieces from before ids were kept, only the time."""
        self.ids_low = array("Q")
        self.spans = array("q")
        """From the first message's id to behind the last one's, or `SPAN_MAX` if that is more or unknown.

        The number of messages, if the ids have no gap."""
        self.prints: dict[tuple[int, int], bytes] = {}
        """(locator, skip) of a piece -> `key_prints` of all of its messages, where they are known."""
        self.each_max = 0
        """No piece in here has larger messages than this, on average. Does not fall when pieces go."""
        self.count = 0
        """Messages in all pieces."""
        self.size = 0
        """Bytes of those messages."""
        self.sealed_count = 0
        """Messages in pieces of sealed segments."""
        self.sealed_size = 0
        """Bytes of those."""

    def add(
        self, first: int, end: int, locator: int, skip: int, length: int, message_id: int,
        prints: bytes | None = None,
    ) -> None:  # fmt: skip
        self.each_max = max(self.each_max, length // (end - first) + 1)
        self.count += end - first
        self.size += length
        if locator < 0:
            self.sealed_count += end - first
            self.sealed_size += length
        if (
            self.firsts
            and self.locators[-1] == locator
            and self.ends[-1] == first
            and self.skips[-1] + self.lengths[-1] <= skip
            and skip + length - self.skips[-1] <= limits.SPARSE_INDEX_BYTES
        ):
            self.ends[-1] = end
            self.lengths[-1] = skip + length - self.skips[-1]
            self.sizes[-1] += length
            self.spans[-1] = min(message_id + end - first - self.id_of(len(self.firsts) - 1), SPAN_MAX)
            known = self.prints.get((locator, self.skips[-1]))
            if known is not None and prints is not None:
                self.prints[locator, self.skips[-1]] = known + prints
            elif known is not None:
                del self.prints[locator, self.skips[-1]]
            return
        if prints is not None:
            self.prints[locator, skip] = prints
        self.firsts.append(first)
        self.ends.append(end)
        self.locators.append(locator)
        self.skips.append(skip)
        self.lengths.append(length)
        self.sizes.append(length)
        self.ids_high.append(message_id >> 64)
        self.ids_low.append(message_id & _LOW)
        self.spans.append(end - first)

    def id_of(self, piece: int) -> int:
        """Of its first message."""
        return self.ids_high[piece] << 64 | self.ids_low[piece]

    def time_of(self, piece: int) -> int:
        """Milliseconds in the first message's id: never falls within a partition."""
        return self.ids_high[piece] >> 16

    def until(self, time_ms: int) -> int:
        """How many pieces begin with a message of this time or before."""
        return bisect_right(self.ids_high, time_ms << 16 | 0xFFFF)

    def with_id(self, message_id: int) -> int:
        """The last piece that begins with this id or a lower one; -1 if there is none."""
        high, low = message_id >> 64, message_id & _LOW
        begin = bisect_left(self.ids_high, high)
        return bisect_right(self.ids_low, low, begin, bisect_right(self.ids_high, high, begin)) - 1

    def at(self, offset: int) -> int:
        """The piece that holds this offset, or the first one behind it."""
        piece = bisect_right(self.firsts, offset) - 1
        return piece if piece >= 0 and offset < self.ends[piece] else piece + 1

    def size_from(self, piece: int, offset: int) -> int:
        """About how many bytes of this piece belong to messages at `offset` and above. Messages that are only kept
        for a lease below the start of the log do not count."""
        first, end, size = self.firsts[piece], self.ends[piece], self.sizes[piece]
        return size if offset <= first else size * max(0, end - offset) // (end - first)

    def stored(self, piece: int) -> StoredPiece:
        return StoredPiece(self.locators[piece], self.skips[piece], self.lengths[piece], self.ends[piece])

    def replace(self, gone: Sequence[StoredPiece], fresh: PartitionIndex | None = None) -> None:
        """Without these pieces, which are in order, and with the fresh ones in their place.

        Costs what is gone and what is fresh, and moving what comes behind; or one copy of the rest, if they do not lie
        side by side. Those that are not here any more are no matter.
        """
        kept, added = self._without(gone), fresh or PartitionIndex()
        begin = 0
        for first, stop in kept:
            self._uncount(begin, first)
            begin = stop
        if (gap := self._gap(kept, added)) is not None:
            for name in _COLUMNS:
                getattr(self, name)[gap] = getattr(added, name)
        else:
            parts = self._woven(kept, added)
            for name, kind in _COLUMNS.items():
                values = array(kind)
                for source, begin, stop in parts:
                    values += getattr(source, name)[begin:stop]
                setattr(self, name, values)
        for piece in gone:
            self.prints.pop((piece.locator, piece.skip), None)
        if fresh is not None:
            self.prints |= fresh.prints
            self.each_max = max(self.each_max, fresh.each_max)
            self.count += fresh.count
            self.size += fresh.size
            self.sealed_count += fresh.sealed_count
            self.sealed_size += fresh.sealed_size

    def _uncount(self, begin: int, stop: int) -> None:
        """These pieces are about to be taken out."""
        for piece in range(begin, stop):
            messages = self.ends[piece] - self.firsts[piece]
            self.count -= messages
            self.size -= self.sizes[piece]
            if self.locators[piece] < 0:
                self.sealed_count -= messages
                self.sealed_size -= self.sizes[piece]

    def _without(self, gone: Sequence[StoredPiece]) -> list[tuple[int, int]]:
        """The stretches of pieces between these."""
        kept: list[tuple[int, int]] = []
        begin = 0
        for piece in gone:
            at = bisect_left(self.ends, piece.end, begin)
            if at < len(self) and (self.locators[at], self.skips[at]) == (piece.locator, piece.skip):
                if begin < at:
                    kept.append((begin, at))
                begin = at + 1
        return [*kept, (begin, len(self))]

    def _gap(self, kept: list[tuple[int, int]], fresh: PartitionIndex) -> slice | None:
        """The gap between the ranges that are kept, if there is one gap and all new entries belong there."""
        if len(kept) > 2 or (len(kept) == 2 and kept[0][0]):
            return None
        first, stop = kept[0][1] if len(kept) == 2 else 0, kept[-1][0]
        if fresh and first and self.ends[first - 1] > fresh.firsts[0]:
            return None
        if fresh and stop < len(self) and fresh.ends[-1] > self.firsts[stop]:
            return None
        return slice(first, stop)

    def _woven(self, kept: list[tuple[int, int]], fresh: PartitionIndex) -> list[tuple[PartitionIndex, int, int]]:
        """Stretches of ours and of the fresh ones, by their first offsets."""
        parts: list[tuple[PartitionIndex, int, int]] = []
        at = 0
        for begin, stop in kept:
            while begin < stop:
                before = bisect_left(fresh.firsts, self.firsts[begin], at)
                if at < before:
                    parts.append((fresh, at, before))
                    at = before
                until = stop if at == len(fresh) else bisect_left(self.firsts, fresh.firsts[at], begin, stop)
                parts.append((self, begin, until))
                begin = until
        return [*parts, (fresh, at, len(fresh))]

    def places(self) -> PartitionIndex:
        """A copy for a caller that reads it piece by piece while the index changes; without prints."""
        twin = PartitionIndex()
        for name in _COLUMNS:
            setattr(twin, name, getattr(self, name)[:])
        twin.each_max, twin.count, twin.size = self.each_max, self.count, self.size
        twin.sealed_count, twin.sealed_size = self.sealed_count, self.sealed_size
        return twin

    def since(self, offset: int) -> PartitionIndex:
        """A copy without the pieces before this offset."""
        twin = self.places()
        twin.prints = self.prints.copy()
        twin.drop_before(offset)
        return twin

    def drop_before(self, offset: int) -> None:
        piece = self.at(offset)
        if piece:
            self._uncount(0, piece)
            for place in zip(self.locators[:piece], self.skips[:piece], strict=True):
                self.prints.pop(place, None)
            for name in _COLUMNS:
                del getattr(self, name)[:piece]

    def __len__(self) -> int:
        return len(self.firsts)

    def until_locator(self, locator: int) -> int:
        """How many pieces there were when the journal ended with the frame at this locator."""
        pieces = len(self)
        while pieces and self.locators[pieces - 1] > locator:
            pieces -= 1
        return pieces

    def dump(self, pieces: int | None = None) -> list[bytes]:
        """The first so many pieces, or all."""
        return [getattr(self, name)[:pieces].tobytes() for name in _COLUMNS]

    def dump_prints(self, locator: int) -> list[tuple[int, int, bytes]]:
        """Those of pieces up to the frame at this locator."""
        return [(*place, prints) for place, prints in self.prints.items() if place[0] <= locator]

    def load_prints(self, values: list[tuple[int, int, bytes]]) -> None:
        self.prints = {(locator, skip): prints for locator, skip, prints in values}

    @classmethod
    def load(cls, columns: list[bytes]) -> PartitionIndex:
        index = cls()
        if len(columns) == len(_COLUMNS_BEFORE_IDS):
            for name, column in zip(_COLUMNS_BEFORE_IDS, columns, strict=True):
                getattr(index, name).frombytes(column)
            index.ids_high = array("Q", [time_ms << 16 for time_ms in index.ids_high])
            index.ids_low = array("Q", bytes(8 * len(index)))
            index.spans = array("q", [SPAN_MAX]) * len(index)
            index.sizes = index.lengths[:]
            index._weigh()
            return index
        names = list(_COLUMNS)
        if len(columns) == len(names) - 1:
            columns = [*columns, columns[names.index("lengths")]]  # the format had no sizes beside lengths
        for name, column in zip(names, columns, strict=True):
            getattr(index, name).frombytes(column)
        index._weigh()
        return index

    def _weigh(self) -> None:
        counts = array("q", map(sub, self.ends, self.firsts))
        self.each_max = 1 + max(map(floordiv, self.sizes, counts), default=0)
        self.count, self.size = sum(counts), sum(self.sizes)
        sealed = [locator < 0 for locator in self.locators]
        self.sealed_count = sum(compress(counts, sealed))
        self.sealed_size = sum(compress(self.sizes, sealed))


def key_prints(batch: Batch) -> bytes:
    """Four bytes for each key of a batch: messages with the same key have the same, others hardly ever."""
    return array("I", map(crc32, batch.strings(layout.KEY))).tobytes() if batch.has(layout.KEY) else b""


def rows_with_print(prints: bytes, key: bytes) -> Iterator[int]:
    """The rows of these prints that this key may be in."""
    wanted = array("I", [crc32(key)]).tobytes()
    at = prints.find(wanted)
    while at >= 0:
        if at % 4 == 0:
            yield at // 4
        at = prints.find(wanted, at + 1)


_COLUMNS_BEFORE_IDS = ("ends", "firsts", "lengths", "locators", "skips", "ids_high")
"""Of snapshots of the first version; the last one held milliseconds."""
