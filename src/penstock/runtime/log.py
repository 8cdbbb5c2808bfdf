"""Where messages lie: offset -> bytes, for every partition of a shard.

The journal is the log. For each partition a sparse index (`index.py`) says which stored piece begins with which offset.
The newest records stay in memory, up to a bound; everything else is read when it is asked for, and every record read is
checked against its own CRC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from penstock import limits
from penstock.batch import layout
from penstock.core.records import Published, QueueDeleted, QueuePurged
from penstock.journal.codec import UnknownRecord, decode_at
from penstock.journal.port import Damaged, ShardJournal
from penstock.runtime.index import SPAN_MAX, PartitionIndex, StoredPiece, has_print, key_prints

SCAN_PIECES = 200
"""Pieces looked through by the prints of their keys between two turns of the event loop."""


class StoredRun(NamedTuple):
    """Consecutive messages of one partition, as they were published together (or a cut of that)."""

    record: Published
    first: int
    stop: int


_DELAYS = layout.DELAY_MS | layout.DELIVER_AT_MS


class HotRecords:
    """The newest records of a partition, oldest first: a list with a moving head."""

    __slots__ = ("head", "offsets", "records")

    def __init__(self) -> None:
        self.records: list[Published] = []
        self.offsets: list[int] = []
        self.head = 0

    def append(self, record: Published) -> None:
        self.records.append(record)
        self.offsets.append(record.offset)

    def popleft(self) -> Published:
        record = self.records[self.head]
        self.head += 1
        if self.head * 2 > len(self.records) + 16:
            del self.records[: self.head], self.offsets[: self.head]
            self.head = 0
        return record

    def since(self, offset: int) -> Iterator[Published]:
        """From the record that holds `offset` on."""
        for at in range(max(self.head, bisect_right(self.offsets, offset) - 1), len(self.records)):
            yield self.records[at]

    def first_offset(self) -> int:
        return self.offsets[self.head]

    def __len__(self) -> int:
        return len(self.records) - self.head


class MessageLog:
    """The bytes of one shard's messages."""

    def __init__(self, journal: ShardJournal, hot_bytes: int = limits.HOT_BYTES_MAX):
        self._journal = journal
        self.indexes: dict[tuple[int, int], PartitionIndex] = {}
        self.ends: dict[tuple[int, int], int] = {}
        """Per partition: the offset behind the last durable message, also if its payload was dropped."""
        self._hot: dict[tuple[int, int], HotRecords] = {}
        self._hot_order: deque[tuple[int, int]] = deque()
        self._hot_room = hot_bytes
        self._last_piece: dict[tuple[int, int], tuple[int, int, int, list[Published]]] = {}
        """Per partition, the one that was read longest ago first: (locator, skip, bytes, its records)."""
        self._last_room = limits.LAST_READ_BYTES_MAX

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, record: Published, locator: int, skip: int, length: int, *, hot: bool = True) -> None:
        """A published record is durable at this place."""
        place = (record.queue, record.partition)
        index = self.indexes.get(place)
        if index is None:
            index = self.indexes[place] = PartitionIndex()
        end = record.offset + record.batch.count
        # Delayed messages are cancelled by key; the keys of others are read on demand.
        delayed = record.batch.columns & _DELAYS and record.batch.has(layout.KEY)
        prints = key_prints(record.batch) if delayed else None
        index.add(record.offset, end, locator, skip, length, record.id, prints)
        self.ends[place] = end
        if hot:
            hot_records = self._hot.get(place)
            if hot_records is None:
                hot_records = self._hot[place] = HotRecords()
            hot_records.append(record)
            self._hot_order.append(place)
            self._hot_room -= len(record.batch.frame)
            while self._hot_room < 0:
                self._cool()

    def _cool(self) -> None:
        place = self._hot_order.popleft()
        records = self._hot[place]
        self._hot_room += len(records.popleft().batch.frame)
        if not records:
            del self._hot[place]

    def let_go(self, record: QueueDeleted | QueuePurged) -> None:
        """Nothing that was stored in this queue before will be asked for again."""
        if isinstance(record, QueuePurged):
            for partition, end in enumerate(record.ends):
                index = self.indexes.get((record.queue, partition))
                if index is not None:
                    index.drop_before(end)
            return
        for place in [place for place in self.indexes if place[0] == record.queue]:
            del self.indexes[place]
            self._forget_piece(place)
            self.ends.pop(place, None)

    # -- reading ------------------------------------------------------------------------------------------------------

    def runs(self, queue: int, partition: int, first: int, stop: int) -> Iterator[StoredRun]:
        """The messages of `[first, stop)` that are stored, in order. Gaps (compacted away) are passed over."""
        place = (queue, partition)
        hot = self._hot.get(place)
        hot_from = hot.first_offset() if hot else stop
        if first < hot_from:
            for record in self._stored(place, first, min(stop, hot_from)):
                cut = _cut(record, first, min(stop, hot_from))
                if cut is not None:
                    yield cut
        if hot and stop > hot_from:
            for record in hot.since(max(first, hot_from)):
                if record.offset >= stop:
                    break
                cut = _cut(record, first, stop)
                if cut is not None:
                    yield cut

    def finder(self, queue: int, partition: int) -> Callable[[int], Published | None]:
        """Offset -> the record that this message is stored in, if it is. For many of them, as long as nothing else
        happens."""
        place, read = (queue, partition), self._read
        hot = self._hot.get(place)
        hot_from = hot.first_offset() if hot else SPAN_MAX
        hot_offsets, hot_records = (hot.offsets, hot.records) if hot else ([], [])
        index = self.indexes.get(place) or PartitionIndex()
        firsts, ends, locators, skips, lengths = index.firsts, index.ends, index.locators, index.skips, index.lengths

        def find(offset: int) -> Published | None:
            if offset >= hot_from:
                record = hot_records[bisect_right(hot_offsets, offset) - 1]
            else:
                piece = bisect_right(firsts, offset) - 1
                if piece < 0 or offset >= (end := ends[piece]):
                    return None
                records = read(place, locators[piece], skips[piece], lengths[piece], end)
                # Where messages are asked for in no order, a piece is mostly one record.
                at = bisect_right(records, offset, key=_offset_of) - 1 if len(records) > 1 else 0
                if at < 0 or not records:
                    return None
                record = records[at]
            return record if record.offset <= offset < record.offset + record.batch.count else None

        return find

    def fit(self, queue: int, partition: int, first: int, stop: int, room: int) -> tuple[int, int]:
        """How far a reply of about `room` bytes may go from `first`, at least one message; and what that takes."""
        index = self.indexes.get((queue, partition))
        if index is None:
            return stop, 0
        used = 0
        piece = index.at(first)
        if stop - first == 1:
            # Where an order scatters what it gives, one message at a time is asked about.
            if piece == len(index) or first < index.firsts[piece]:
                return stop, 0
            return stop, min(room, index.sizes[piece] // (index.ends[piece] - index.firsts[piece]) + 1)
        while piece < len(index) and index.firsts[piece] < stop:
            begin, end = max(first, index.firsts[piece]), min(stop, index.ends[piece])
            each = index.sizes[piece] // (index.ends[piece] - index.firsts[piece]) + 1
            if used + each * (end - begin) > room:
                return max(first + 1, begin + (room - used) // each), room
            used += each * (end - begin)
            piece += 1
        return stop, used

    def surely_fit(self, queue: int, partitions: int, count: int, room: int) -> bool:
        """True if any `count` messages of a queue fit into `room`: then their sizes need not be added up."""
        places = [self.indexes.get((queue, partition)) for partition in range(partitions)]
        return count * max([index.each_max for index in places if index is not None], default=0) <= room

    def offset_at(self, queue: int, partition: int, time_ms: int) -> int | None:
        """The first stored offset published at or after this time; None if there is none."""
        index = self.indexes.get((queue, partition))
        if index is None:
            return None
        piece = max(0, index.until(time_ms - 1) - 1)
        while piece < len(index):
            for record in self._piece((queue, partition), piece):
                if record.at >= time_ms:
                    return record.offset
            piece += 1
        return None

    def offset_from_id(self, queue: int, partition: int, message_id: int) -> int | None:
        """The first stored offset whose message has this id or a later one; None if there is none."""
        index = self.indexes.get((queue, partition))
        if index is None:
            return None
        piece = max(0, index.with_id(message_id))
        while piece < len(index):
            for record in self._piece((queue, partition), piece):
                if record.id + record.batch.count > message_id:
                    return record.offset + max(0, message_id - record.id)
            piece += 1
        return None

    def published_at(self, queue: int, partition: int, offset: int) -> int | None:
        """When this message was published; None if it is not stored."""
        for run in self.runs(queue, partition, offset, offset + 1):
            return run.record.at
        return None

    def find(self, queue: int, partition: int, message_id: int) -> int | None:
        """The offset of the message with this id, if it is still stored. Reads at most one piece, and mostly none."""
        index = self.indexes.get((queue, partition))
        if index is None:
            return None
        piece = index.with_id(message_id)
        while piece >= 0:
            beyond, count = message_id - index.id_of(piece), index.ends[piece] - index.firsts[piece]
            if index.spans[piece] == count:
                return index.firsts[piece] + beyond if beyond < count else None
            if beyond < index.spans[piece] or index.spans[piece] == SPAN_MAX:
                for record in self._piece((queue, partition), piece):
                    if record.id <= message_id < record.id + record.batch.count:
                        return record.offset + message_id - record.id
            # Pieces of snapshots of the first version know no more than the millisecond in which they begin.
            if index.spans[piece] != SPAN_MAX or index.time_of(piece) < message_id >> 80:
                return None
            piece -= 1
        return None

    def with_key(self, queue: int, partition: int, key: bytes, first: int) -> Iterator[Published | None]:
        """Stored records from offset `first` on that may hold this key, and None now and then, to yield to other work.

        A piece is read if its prints say so, or if it has none yet; then it gets them, as long as there is room.
        """
        place = (queue, partition)
        held = sum(len(prints) for index in self.indexes.values() for prints in index.prints.values())
        offset, steps = first, 0
        while (index := self.indexes.get(place)) is not None and (piece := index.at(offset)) < len(index):
            stored = index.stored(piece)
            offset, steps = stored.end, steps + 1
            prints = index.prints.get((stored.locator, stored.skip))
            if prints is None:
                records = self._read(place, *stored)
                prints = b"".join([key_prints(record.batch) for record in records])
                if held + len(prints) <= limits.KEY_PRINTS_BYTES_MAX:
                    index.prints[stored.locator, stored.skip] = prints
                    held += len(prints)
                steps = SCAN_PIECES
            if has_print(prints, key):
                yield from self._read(place, *stored)
                steps = SCAN_PIECES
            if steps >= SCAN_PIECES:
                yield None
                steps = 0

    def _stored(self, place: tuple[int, int], first: int, stop: int) -> Iterator[Published]:
        index = self.indexes.get(place)
        if index is None:
            return
        piece = index.at(first)
        while piece < len(index) and index.firsts[piece] < stop:
            yield from self._piece(place, piece)
            piece += 1

    def _piece(self, place: tuple[int, int], piece: int) -> list[Published]:
        return self._read(place, *self.indexes[place].stored(piece))

    def _read(self, place: tuple[int, int], locator: int, skip: int, length: int, end: int) -> list[Published]:
        """The records of one piece that belong to its partition; the last one read is remembered."""
        last = self._last_piece.pop(place, None)
        if last is not None:
            if last[0] == locator and last[1] == skip and last[3] and last[3][-1].offset < end:
                self._last_piece[place] = last
                return last[3]
            self._last_room += last[2]
        if locator > 0:
            data = self._journal.read(locator, skip, length)
        else:
            data = self._journal.read_blob(segment_name(-locator), skip, length)
        at = 0
        records: list[Published] = []
        try:
            while at < length:
                record, at = decode_at(data, at)
                if type(record) is Published and (record.queue, record.partition) == place:
                    records.append(record)
        except UnknownRecord as error:
            where = self._journal.where(locator, skip) if locator > 0 else f"{segment_name(-locator)}, offset {skip}"
            raise Damaged(f"{where}: {error}") from None
        self._last_piece[place] = (locator, skip, length, records)
        self._last_room -= length
        while self._last_room < 0 and len(self._last_piece) > 1:
            self._forget_piece(next(iter(self._last_piece)))
        return records

    def _forget_piece(self, place: tuple[int, int]) -> None:
        last = self._last_piece.pop(place, None)
        if last is not None:
            self._last_room += last[2]

    def records(self, place: tuple[int, int], stored: StoredPiece) -> list[Published]:
        """The records of a piece, wherever the piece is in the index by now."""
        return self._read(place, *stored)


@lru_cache(maxsize=1_024)
def segment_name(number: int) -> str:
    return f"segment-{number:012d}"


def cut_record(run: StoredRun) -> Published:
    """The run as a record of its own."""
    record, first, stop = run
    if first == record.offset and stop == first + record.batch.count:
        return record
    row = first - record.offset
    return Published(
        record.at, record.queue, record.partition, first, record.id + row, record.batch.run(row, row + stop - first)
    )


def _offset_of(record: Published) -> int:
    return record.offset


def _cut(record: Published, first: int, stop: int) -> StoredRun | None:
    begin, end = max(first, record.offset), min(stop, record.offset + record.batch.count)
    return StoredRun(record, begin, end) if begin < end else None
