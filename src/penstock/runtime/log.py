"""The log of every partition of a shard: offset -> bytes.

The journal is the log. For each partition a sparse index (`index.py`) says which stored piece begins with which offset.
The newest records stay in memory, up to a bound; everything else is read when it is asked for, and every record read is
checked against its own CRC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from penstock.batch import layout
from penstock.core.commands import LeasedRun
from penstock.core.decide.settling import ERASED
from penstock.core.records import Published, QueueDeleted, QueuePurged
from penstock.encryption.record_cipher import RecordCipher
from penstock.errors import Unavailable
from penstock.journal.port import ShardJournal
from penstock.runtime.index import SPAN_MAX, PartitionIndex, StoredPiece, key_prints
from penstock.runtime.key_lookup import KeyLookup
from penstock.runtime.node_memory import NodeMemory, PieceKey
from penstock.runtime.stored import DamagedMessages, Piece, StoredPieces


class StoredRun(NamedTuple):
    """Consecutive messages of one partition, as they were published together (or a cut of that)."""

    record: Published
    first: int
    stop: int


RECORD_BYTES = 800
"""Memory of a record in memory beyond its frame: many small messages are bounded like a few large ones."""
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

    def __init__(self, journal: ShardJournal, memory: NodeMemory | None = None, cipher: RecordCipher | None = None):
        self._memory = memory or NodeMemory()
        self._memory.join(self)
        self.pieces = StoredPieces(journal, self._memory.read, cipher)
        self.indexes: dict[tuple[int, int], PartitionIndex] = {}
        self.ends: dict[tuple[int, int], int] = {}
        """Per partition: the offset behind the last durable message, also if its payload was dropped."""
        self._hot: dict[tuple[int, int], HotRecords] = {}
        self.keys = KeyLookup(self, self._memory)
        self.erased: set[int] = set()
        """Queues with messages whose data keys were destroyed since the start."""

    def close(self) -> None:
        """Give the memory back to the node. The log is not used any more."""
        self._memory.leave(self)
        self.pieces.clear()

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
            self._memory.recent.add(self, place, len(record.batch.frame) + RECORD_BYTES)

    def cool(self, place: tuple[int, int]) -> int:
        """Drop the oldest record of this partition from memory; returns its bytes."""
        records = self._hot[place]
        size = len(records.popleft().batch.frame) + RECORD_BYTES
        if not records:
            del self._hot[place]
        return size

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
            self.keys.drop(place)
            self.ends.pop(place, None)

    def forget(self, queues: Collection[int]) -> None:
        """Data keys of these queues were destroyed: keep none of their messages in memory."""
        self.erased |= set(queues)
        self.pieces.clear()
        self._memory.recent.forget(self, lambda place: place[0] in self.erased)

    # -- reading ------------------------------------------------------------------------------------------------------

    def runs(self, queue: int, partition: int, first: int, stop: int) -> Iterator[StoredRun]:
        """The messages of `[first, stop)` that are stored, in order. Gaps (compacted away) are passed over.

        Like all that reads here: raises DamagedMessages at a damaged message, Unavailable if the disk refuses to read.
        """
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
        place, read = (queue, partition), self.pieces.read
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
                if piece < 0 or offset >= ends[piece]:
                    return None
                records, problem, erased = read(place, locators[piece], skips[piece], lengths[piece])
                # Where messages are asked for in no order, a piece is mostly one record.
                at = bisect_right(records, offset, key=_offset_of) - 1 if len(records) > 1 else 0
                if problem and not (records and _holds(records[at], offset)) and not _within(erased, offset):
                    raise DamagedMessages(problem)
                if at < 0 or not records:
                    return None
                record = records[at]
            return record if _holds(record, offset) else None

        return find

    def not_at_hand(self, runs: list[LeasedRun], ahead_bytes: int = 0) -> list[PieceKey]:
        """The pieces with messages of these runs that have to be fetched, and up to so many bytes behind them."""
        if self.pieces.all_at_hand:
            return []
        found: dict[PieceKey, None] = {}
        for run in runs:
            place = (run.queue, run.partition)
            hot, index = self._hot.get(place), self.indexes.get(place)
            stop = run.first + run.count if not hot else min(run.first + run.count, hot.first_offset())
            piece = index.at(run.first) if index is not None else 0
            room = ahead_bytes
            while index is not None and piece < len(index):
                if index.firsts[piece] >= stop:
                    room -= index.lengths[piece] if found else ahead_bytes
                    if room <= 0:
                        break
                key = self._key(place, piece)
                if not self.pieces.is_at_hand(key):
                    found[key] = None
                piece += 1
        return list(found)

    def _key(self, place: tuple[int, int], piece: int) -> PieceKey:
        index = self.indexes[place]
        return (*place, index.locators[piece], index.skips[piece], index.lengths[piece])

    def check_stored(self, runs: list[LeasedRun]) -> None:
        """Raise DamagedMessages if one of these messages is damaged, Unavailable if it is not stored any more."""
        for run in runs:
            found = sum(
                stop - first for _, first, stop in self.runs(run.queue, run.partition, run.first, run.first + run.count)
            )
            if found < run.count:
                raise Unavailable("the messages were removed while they were read", retry_after_ms=100)

    def damaged(self, queue: int, partition: int, first: int, stop: int) -> Iterator[tuple[int, int, str]]:
        """Read `[first, stop)` ahead: (first, stop, problem) of what of it is damaged, or `ERASED`. Costs nothing for
        messages that are in memory."""
        hot = self._hot.get((queue, partition))
        index = self.indexes.get((queue, partition))
        stop = min(stop, hot.first_offset()) if hot else stop
        if index is None or first >= stop:
            return
        piece = index.at(first)
        while piece < len(index) and index.firsts[piece] < stop:
            begin, end = max(first, index.firsts[piece]), min(stop, index.ends[piece])
            found = self._load((queue, partition), piece)
            for lost, after in found.erased:
                if max(lost, begin) < min(after, end):
                    yield max(lost, begin), min(after, end), ERASED
            if found.problem:
                for lost, after in _missing(found, begin, end):
                    yield lost, after, found.problem
            piece += 1

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
            if not self.pieces.all_at_hand and not self.pieces.is_at_hand(self._key((queue, partition), piece)):
                return stop, min(room, index.lengths[piece])  # it is fetched whole
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
            for record in self._load((queue, partition), piece).records:
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
        try:
            for run in self.runs(queue, partition, offset, offset + 1):
                return run.record.at
        except Unavailable:
            index = self.indexes[queue, partition]
            return index.time_of(index.at(offset))
        return None

    def id_at(self, queue: int, partition: int, offset: int) -> int:
        """The id of a message that is in the index, without reading it: exact where the ids of its piece have no
        gap."""
        index = self.indexes[queue, partition]
        piece = index.at(offset)
        return index.id_of(piece) + offset - index.firsts[piece]

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

    def _stored(self, place: tuple[int, int], first: int, stop: int) -> Iterator[Published]:
        index = self.indexes.get(place)
        if index is None:
            return
        piece = index.at(first)
        while piece < len(index) and index.firsts[piece] < stop:
            found = self._load(place, piece)
            if found.problem:
                begin, end = max(first, index.firsts[piece]), min(stop, index.ends[piece])
                lost = next(_missing(found, begin, end), None)
                if lost is not None:
                    yield from (record for record in found.records if record.offset < lost[0])
                    raise DamagedMessages(found.problem)
            yield from found.records
            piece += 1

    def _load(self, place: tuple[int, int], piece: int) -> Piece:
        locator, skip, length, _ = self.indexes[place].stored(piece)
        return self.pieces.read(place, locator, skip, length)

    def _piece(self, place: tuple[int, int], piece: int) -> list[Published]:
        return self.records(place, self.indexes[place].stored(piece))

    def records(self, place: tuple[int, int], stored: StoredPiece) -> list[Published]:
        """The records of a piece, wherever the piece is in the index by now."""
        found = self.pieces.read(place, stored.locator, stored.skip, stored.length)
        if found.problem:
            raise DamagedMessages(found.problem)
        return found.records


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


def _holds(record: Published, offset: int) -> bool:
    return record.offset <= offset < record.offset + record.batch.count


def _within(ranges: Sequence[tuple[int, int]], offset: int) -> bool:
    return any(first <= offset < stop for first, stop in ranges)


def _missing(piece: Piece, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """The parts of `[first, stop)` that the piece neither holds nor has erased."""
    known = [(record.offset, record.offset + record.batch.count) for record in piece.records]
    for begin, end in sorted([*known, *piece.erased]):
        if first < min(begin, stop):
            yield first, min(begin, stop)
        first = max(first, end)
    if first < stop:
        yield first, stop


def _cut(record: Published, first: int, stop: int) -> StoredRun | None:
    begin, end = max(first, record.offset), min(stop, record.offset + record.batch.count)
    return StoredRun(record, begin, end) if begin < end else None
