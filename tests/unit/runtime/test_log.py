"""Where messages lie: whatever was stored is found again, by offset, by id and by time, hot or cold."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core.records import Published, QueueDeleted, QueuePurged
from penstock.engines.memory import MemoryEngine
from penstock.journal.codec import encode
from penstock.journal.frame import HEADER, FrameWriter
from penstock.runtime.index import PartitionIndex, StoredPiece
from penstock.runtime.log import RECORD_BYTES, MessageLog, StoredRun, cut_record
from penstock.runtime.node_memory import NodeMemory
from penstock.runtime.stored import DamagedMessages

START_MS = 1_760_000_000_000


class Shelf:
    """A log over a journal in memory, and a dictionary that says what is in it."""

    def __init__(self, hot_bytes: int, memory: NodeMemory | None = None):
        self.journal = asyncio.run(MemoryEngine().acquire(0, bytes(16)))
        self.writer = FrameWriter(bytes(16), 1)
        self.log = MessageLog(self.journal, memory or NodeMemory(hot_bytes))
        self.stored: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {}
        """Place -> (id, time, payload) by offset."""
        self.bytes: Counter[tuple[int, int]] = Counter()
        self.next_id = START_MS << 80
        self.now_ms = START_MS
        self.gap = 0
        """Between the ids of two batches."""

    def commit(self, batches: list[tuple[tuple[int, int], list[bytes]]], *, wait_ms: int = 0) -> None:
        """One frame with these batches."""
        self.now_ms += wait_ms
        self.next_id = max(self.next_id, self.now_ms << 80)
        made = []
        for place, payloads in batches:
            known = self.stored.setdefault(place, [])
            batch = Batch.open(build(payloads, kind=layout.KIND_BYTES))
            self.next_id += self.gap
            made.append(Published(self.now_ms, *place, len(known), self.next_id, batch))
            known += [(self.next_id + row, self.now_ms, payload) for row, payload in enumerate(payloads)]
            self.next_id += len(payloads)
        parts = [b"".join(part or b"" for part in encode(record)) for record in made]
        index = self.writer.next_index
        locator = asyncio.run(self.journal.append(index, [self.writer.seal(self.now_ms, parts), *parts]))
        at = HEADER.size
        for record, part in zip(made, parts, strict=True):
            self.log.add(record, locator, at, len(part))
            self.bytes[record.queue, record.partition] += len(part)
            at += len(part)

    def read(self, place: tuple[int, int], first: int, stop: int) -> list[tuple[int, int, bytes]]:
        found, expected_at = [], None
        for record, begin, end in self.log.runs(*place, first, stop):
            assert expected_at is None or begin >= expected_at, "runs go forward"
            expected_at = end
            for offset in range(begin, end):
                row = offset - record.offset
                found.append((record.id + row, record.at, record.batch.payload(row)))
        return found


PLACES = [(1, 0), (1, 1), (7, 0)]
commits = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(PLACES), st.lists(st.binary(max_size=600), min_size=1, max_size=5)),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([0, 0, 1, 1000]),
    ),
    min_size=1,
    max_size=12,
)


@given(commits, st.sampled_from([0, 700, 5000, 10**6]), st.sampled_from([0, 1, 1 << 65]), st.data())
def test_what_was_stored_is_found_by_offset_by_id_and_by_time(history, hot_bytes, gap, data):
    shelf = Shelf(hot_bytes)
    shelf.gap = gap
    for batches, wait_ms in history:
        shelf.commit(batches, wait_ms=wait_ms)
    for place, known in shelf.stored.items():
        first = data.draw(st.integers(0, len(known)))
        stop = data.draw(st.integers(first, len(known)))
        assert shelf.read(place, first, stop) == known[first:stop]
        assert shelf.read(place, 0, len(known)) == known
        assert shelf.log.ends[place] == len(known)
        assert sum(shelf.log.indexes[place].sizes) == shelf.bytes[place], "whatever lies in between"
        offset = data.draw(st.integers(0, len(known) - 1))
        assert shelf.log.find(*place, known[offset][0]) == offset
        assert shelf.log.finder(*place)(offset) == next(shelf.log.runs(*place, offset, offset + 1)).record
        assert shelf.log.finder(*place)(len(known)) is None
        for moment in {time_ms for _, time_ms, _ in known} | {START_MS - 1, shelf.now_ms + 1}:
            expected = next((at for at, (_, time_ms, _) in enumerate(known) if time_ms >= moment), None)
            assert shelf.log.offset_at(*place, moment) == expected
    assert shelf.log.find(1, 0, shelf.next_id + 5) is None
    assert shelf.log.find(1, 0, 0) is None
    assert shelf.log.find(99, 0, shelf.next_id) is None
    assert list(shelf.log.runs(99, 0, 0, 10)) == []
    assert shelf.log.finder(99, 0)(0) is None


@given(commits, st.integers(1, 3000), st.data())
def test_a_reply_is_cut_near_its_room_and_never_to_nothing(history, room, data):
    shelf = Shelf(0)
    for batches, _ in history:
        shelf.commit(batches)
    for place, known in shelf.stored.items():
        first = data.draw(st.integers(0, len(known) - 1))
        stop = data.draw(st.integers(first + 1, len(known)))
        fits, used = shelf.log.fit(*place, first, stop, room)
        assert first < fits <= stop
        assert used <= max(room, 0)
        assert fits == stop or used == room
        assert fits - first == 1 or sum(len(payload) for _, _, payload in known[first:fits]) <= room + 3500


@given(commits, st.integers(1, 30), st.integers(1, 20_000), st.booleans(), st.data())
def test_what_surely_fits_does(history, count, room, restarted, data):
    shelf = Shelf(0)
    for batches, _ in history:
        shelf.commit(batches)
    if restarted:
        for place, index in shelf.log.indexes.items():
            shelf.log.indexes[place] = PartitionIndex.load(index.dump())
    places = {place: known for place, known in shelf.stored.items() if place[0] == 1}
    sure = shelf.log.surely_fit(1, 2, count, room)
    assert sure or room < count * 800, "small messages are not weighed one by one"
    if sure and places:
        wanted = data.draw(st.lists(st.sampled_from(sorted(places)), min_size=count, max_size=count))
        left = room
        for place in wanted:
            offset = data.draw(st.integers(0, len(places[place]) - 1))
            left -= shelf.log.fit(*place, offset, offset + 1, room)[1]
        assert left >= 0


@given(commits)
def test_an_index_survives_its_bytes(history):
    shelf = Shelf(0)
    for batches, _ in history:
        shelf.commit(batches)
    for place, index in shelf.log.indexes.items():
        shelf.log.indexes[place] = PartitionIndex.load(index.dump())
    for place, known in shelf.stored.items():
        assert shelf.read(place, 0, len(known)) == known


def test_the_index_grows_with_bytes_not_with_messages():
    shelf = Shelf(0)
    shelf.commit([((1, 0), [b"x"]) for _ in range(1000)])
    assert len(shelf.log.indexes[1, 0]) < 40


def test_what_is_kept_in_memory_is_bounded():
    shelf = Shelf(10_000)
    for _ in range(100):
        shelf.commit([((1, 0), [bytes(500)]), ((2, 0), [bytes(500)])])
    hot = sum(len(record.batch.frame) for records in shelf.log._hot.values() for record in records.since(0))
    assert hot <= 10_000


def test_read_cache_is_bounded_over_all_shards_of_a_node():
    """One large piece of each of many queues would otherwise stay in memory for good."""
    memory = NodeMemory(0, read_bytes=100_000)
    for _ in range(3):
        read_one_of_each_queue(Shelf(0, memory))
    cached = memory.read._cached.values()
    assert 0 < sum(len(record.batch.frame) for piece in cached for record in piece.records) <= 100_000


def read_one_of_each_queue(shelf):
    places = [(queue, 0) for queue in range(1, 101)]
    for place in places:
        shelf.commit([(place, [bytes(10_000)])])
    for place in places:
        assert len(shelf.read(place, 0, 1)) == 1


def test_recent_messages_are_bounded_over_all_shards_of_a_node():
    """The oldest message of any shard is dropped first, and a log that is closed gives its memory back."""
    memory = NodeMemory(50_000)
    shelves = [Shelf(0, memory) for _ in range(3)]
    for _ in range(10):
        for shelf in shelves:
            shelf.commit([((1, 0), [bytes(10_000)])])
    assert [len(shelf.log._hot[1, 0]) for shelf in shelves] == [1, 1, 2]
    shelves[2].log.close()
    for _ in range(2):
        shelves[0].commit([((1, 0), [bytes(10_000)])])
    assert [len(shelf.log._hot.get((1, 0), ())) for shelf in shelves] == [3, 1, 0]


def test_messages_in_memory_are_checked_without_reading_older_ones():
    shelf = Shelf(25_000)
    for _ in range(10):
        shelf.commit([((1, 0), [bytes(10_000)])])
    shelf.log.pieces._journal = reads = Reads(shelf.journal)
    assert list(shelf.log.damaged(1, 0, 8, 10)) == []
    assert reads.count == 0
    assert list(shelf.log.damaged(1, 0, 7, 10)) == []
    assert reads.count == 1


def test_let_go_means_not_found():
    shelf = Shelf(0)
    shelf.commit([((1, 0), [b"a", b"b"]), ((1, 1), [b"c"]), ((7, 0), [b"d"])])
    shelf.log.let_go(QueuePurged(0, 1, [2, 0]))
    assert (shelf.read((1, 0), 0, 2), len(shelf.read((1, 1), 0, 1))) == ([], 1)
    shelf.log.let_go(QueueDeleted(0, 1))
    assert shelf.read((1, 1), 0, 1) == []
    assert len(shelf.read((7, 0), 0, 1)) == 1


def test_bytes_that_changed_are_not_served():
    shelf = Shelf(0)
    shelf.commit([((1, 0), [b"something"])])
    frame = shelf.journal._store.frames[0]
    for at in range(HEADER.size, len(frame)):
        shelf.journal._store.frames[0] = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
        shelf.log.pieces.clear()
        with pytest.raises(DamagedMessages, match="frame 1 in memory, offset"):
            shelf.read((1, 0), 0, 1)


def test_a_cut_of_a_record_is_a_record():
    batch = Batch.open(build([b"a", b"b", b"c", b"d"], columns={layout.KEY: [b"1", b"2", b"3", b"4"]}))
    record = Published(5, 1, 2, 100, 1000, batch, "producer", 3, [0, 4])
    cut = cut_record(StoredRun(record, 101, 103))
    assert (cut.at, cut.queue, cut.partition, cut.offset, cut.id) == (5, 1, 2, 101, 1001)
    assert (cut.batch.payloads(), cut.batch.strings(layout.KEY)) == ([b"b", b"c"], [b"2", b"3"])
    assert cut_record(StoredRun(record, 100, 104)) is record


class Reads:
    """Counts what is read of a journal."""

    def __init__(self, journal):
        self.count = 0
        self._journal = journal

    def peek(self, locator, skip, length):
        self.count += 1
        return self._journal.peek(locator, skip, length)


def test_an_id_is_found_with_one_read_among_thousands_of_its_millisecond():
    """Ids of one millisecond in hundreds of pieces, of which some have gaps; and next to none of them is read twice."""
    shelf = Shelf(0)
    for number in range(300):
        shelf.commit([((1, 0), [bytes(3000)] * 2), ((7, 0), [b"other"]), ((1, 0), [bytes(10)])])
        shelf.next_id += number % 7 if number % 3 else 1 << 66 + number % 3
    known = shelf.stored[1, 0]
    assert len(shelf.log.indexes[1, 0]) >= 300
    shelf.log._journal = reads = Reads(shelf.journal)
    for offset in range(0, len(known), 17):
        before = reads.count
        assert shelf.log.find(1, 0, known[offset][0]) == offset
        assert reads.count - before <= 1
    taken = {message_id for message_id, _, _ in known}
    for message_id in [known[offset][0] + 2 for offset in range(len(known))]:
        before = reads.count
        assert (shelf.log.find(1, 0, message_id) is not None) == (message_id in taken)
        assert reads.count - before <= 1


def test_ids_of_whole_batches_are_found_without_reading_anything():
    shelf = Shelf(0)
    for _ in range(20):
        shelf.commit([((1, 0), [bytes(100)] * 100)])
        shelf.next_id += 12345
    shelf.log._journal = None
    for offset, (message_id, _, _) in enumerate(shelf.stored[1, 0]):
        assert shelf.log.find(1, 0, message_id) == offset
        assert shelf.log.find(1, 0, message_id + 10_000) is None


@given(commits, st.booleans(), st.data())
def test_an_index_of_an_earlier_version_is_as_good(history, second, data):
    """It had six columns, and of the ids only the times. Of the second, which had eight, only sizes are missing."""
    shelf = Shelf(0)
    for batches, wait_ms in history:
        shelf.commit(batches, wait_ms=wait_ms)
    for place, index in shelf.log.indexes.items():
        times = array("q", [index.time_of(piece) for piece in range(len(index))])
        columns = [index.ends, index.firsts, index.lengths, index.locators, index.skips, times]
        shelf.log.indexes[place] = PartitionIndex.load(
            index.dump()[:-1] if second else [column.tobytes() for column in columns]
        )
    for batches, wait_ms in history:
        shelf.commit(batches, wait_ms=1 + wait_ms)
    for place, known in shelf.stored.items():
        assert shelf.read(place, 0, len(known)) == known
        offset = data.draw(st.integers(0, len(known) - 1))
        assert shelf.log.find(*place, known[offset][0]) == offset


@given(st.lists(st.tuples(st.sampled_from(["gone", "moved"]), st.integers(0, 11)), max_size=6), st.integers(0, 12))
def test_pieces_that_moved_stand_in_the_place_of_the_old_ones(changes, below):
    index = PartitionIndex()
    for number in range(12):
        index.add(10 * number, 10 * number + 10, 1000 + number, 0, 5000, number << 80)
    fresh = PartitionIndex()
    moved = sorted({number for what, number in changes if what == "moved"})
    for number in moved:
        fresh.add(10 * number, 10 * number + 10, -5, 8000 * number, 7000, number << 80)
    gone = sorted({number for _, number in changes})
    purged = index.at(10 * below)
    index.drop_before(10 * below)  # meanwhile: what is not there any more is no matter
    index.replace([StoredPiece(1000 + number, 0, 5000, 10 * number + 10) for number in gone], fresh)
    left = [number for number in range(12) if number in moved or (number not in gone and number >= purged)]
    assert list(index.firsts) == [10 * number for number in left]
    assert list(index.locators) == [-5 if number in moved else 1000 + number for number in left]
    assert [index.time_of(piece) for piece in range(len(index))] == left
    # The rest of a piece may be its largest messages.
    assert index.each_max == index.places().each_max == (701 if moved else 501)
    read = PartitionIndex.load(index.dump())
    for twin in (read, index.places(), index.since(0)):
        assert (twin.count, twin.sealed_count) == (10 * len(left), 10 * len(moved))
        assert (twin.size, twin.sealed_size) == (sum(index.sizes), 7000 * len(moved))
    assert (index.count, index.sealed_count) == (read.count, read.sealed_count)
    assert (index.size, index.sealed_size) == (read.size, read.sealed_size)


def test_small_records_in_memory_are_bounded_with_their_objects():
    shelf = Shelf(hot_bytes=10_000)
    for _ in range(100):
        shelf.commit([((1, 0), [b"x"])])
    assert sum(map(len, shelf.log._hot.values())) * RECORD_BYTES < 10_000


def test_messages_in_memory_are_checked_for_damage_without_a_read(monkeypatch):
    shelf = Shelf(hot_bytes=3_000)
    for _ in range(20):
        shelf.commit([((1, 0), [b"x" * 300])])
    read = []
    monkeypatch.setattr(shelf.log.pieces, "read", lambda *where: read.append(where))
    assert list(shelf.log.damaged(1, 0, 19, 20)) == []
    assert read == []
