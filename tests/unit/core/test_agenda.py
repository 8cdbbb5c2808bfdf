"""Agenda against a sorted list: due times from a millisecond to a century, in any order, as time passes."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.offsets import agenda
from penstock.core.offsets.agenda import (
    CHUNK_ENTRIES_MAX,
    FAR_LEVEL,
    LEADS_MS,
    SHIFTS,
    SPLIT_ENTRIES,
    SPLIT_EVERY_MS,
    Agenda,
    Chunk,
)
from penstock.limits import DELAY_MS_MAX

YEAR_MS = 366 * 86_400_000
START_MS = 1_760_000_000_000

waits = st.one_of(
    st.integers(-5_000, 5_000),
    st.tuples(st.integers(0, 40), st.sampled_from(SHIFTS)).map(lambda step: (step[0] << step[1]) - step[0]),
    st.integers(0, 100 * YEAR_MS),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), waits, st.integers(1, 5)),
        st.tuples(st.just("pass"), waits.map(abs), st.just(0)),
        st.tuples(st.sampled_from(["write", "restart"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Model:
    """A list, sorted on every read."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []

    def take_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        due = sorted(entry for entry in self.entries if entry[0] <= now_ms)
        self.entries = [entry for entry in self.entries if entry[0] > now_ms]
        return due


class Disk:
    """Where chunks go."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self.reads = 0

    def write(self, subject: Agenda, entries_min: int = 1) -> None:
        for piece in subject.freeze(entries_min):
            flat = piece.flat
            assert flat is not None
            self.blobs.append(flat.tobytes())
            piece.chunk = Chunk(len(self.blobs) - 1, 0, len(flat) // 3, sum(flat[2::3]), 0, piece.min_due)
            piece.flat = None

    def read(self, chunk: Chunk) -> bytes:
        self.reads += 1
        return self.blobs[chunk.blob]


def restored(subject: Agenda, now_ms: int) -> Agenda:
    """As a snapshot would: through bytes."""
    again, flat = Agenda(), array("q")
    entries, flats, chunks = subject.copy()
    for entry in entries:
        flat.extend(entry)
    flat.frombytes(b"".join(flats))
    again.restore(flat, chunks, now_ms)
    return again


def drive(operations) -> None:
    subject, model, disk, now_ms, offset = Agenda(), Model(), Disk(), START_MS, 0
    for operation, wait, count in operations:
        if operation == "add":
            subject.add(now_ms + wait, offset, count, now_ms)
            model.entries.append((now_ms + wait, offset, count))
            offset += count
        elif operation == "pass":
            now_ms += wait
            assert subject.take_due(now_ms, disk.read) == model.take_due(now_ms)
        elif operation == "write":
            disk.write(subject)
        elif operation == "restart":
            subject = restored(subject, now_ms)
        upcoming = subject.next_ms()
        assert (upcoming is None) == (not model.entries)
        assert upcoming is None or upcoming <= min(model.entries)[0], "a timer would be late"
        assert subject.count == sum(count for _, _, count in model.entries)
        assert sorted(subject.entries(disk.read)) == sorted(model.entries)
    assert subject.take_due(now_ms + 9_000 * YEAR_MS, disk.read) == model.take_due(now_ms + 9_000 * YEAR_MS)
    assert subject.next_ms() is None
    assert subject.count == 0


@given(steps)
# The next time was read when only a distant one existed, and then a nearer one was added.
@example([("add", 10 * YEAR_MS, 1), ("restart", 0, 0), ("add", 5 * YEAR_MS, 1), ("pass", 6 * YEAR_MS, 0)])
@settings(max_examples=3 * settings.default.max_examples)
def test_it_is_a_sorted_list(operations):
    with pytest.MonkeyPatch.context() as patch:
        # Pieces of one entry, so that a few dozen entries are many pieces, in memory and elsewhere.
        patch.setattr(agenda, "CHUNK_ENTRIES_MAX", 2)
        patch.setattr(agenda, "SPLIT_ENTRIES", 1)
        drive(operations)


@given(st.lists(st.integers(1, DELAY_MS_MAX), min_size=1, max_size=40), st.booleans())
def test_next_deadline_is_neither_early_nor_late(waits, written):
    """The loop of a shard, for the longest delays: sleep until `next_ms`, take due entries, sleep again."""
    subject, disk, now_ms = Agenda(), Disk(), START_MS
    dues = sorted(START_MS + wait for wait in waits)
    for offset, due in enumerate(dues):
        subject.add(due, offset, 1, START_MS)
    if written:
        disk.write(subject)
    taken: list[int] = []
    wakes = 0
    while (upcoming := subject.next_ms()) is not None:
        now_ms, wakes = max(now_ms, upcoming), wakes + 1
        found = subject.take_due(now_ms, disk.read)
        assert all(due == now_ms for due, _, _ in found), "woken for its preparation only, or at its very moment"
        taken += [due for due, _, _ in found]
    assert taken == dues
    assert wakes <= (2 * len(SHIFTS) + 1) * len(dues)


def test_a_crowded_stretch_is_prepared_in_steps_before_its_time():
    subject, disk = Agenda(), Disk()
    shift, lead = SHIFTS[FAR_LEVEL], LEADS_MS[FAR_LEVEL]
    begins = ((START_MS >> shift) + 5) << shift
    entries = 3 * CHUNK_ENTRIES_MAX
    for offset in range(entries):
        subject.add(begins + offset * 300, offset, 1, START_MS)
    disk.write(subject)
    assert not subject.take_due(begins - lead - 1, disk.read)
    assert disk.reads == 0, "not read before its time"
    now_ms, steps = begins - lead, 0
    while subject._splitting or not steps:
        assert subject.next_ms() <= now_ms
        before = in_near_stretches(subject)
        assert not subject.take_due(now_ms, disk.read)
        assert in_near_stretches(subject) - before <= SPLIT_ENTRIES
        now_ms, steps = now_ms + SPLIT_EVERY_MS, steps + 1
    assert steps == entries // SPLIT_ENTRIES
    assert disk.reads == 3
    assert now_ms < begins, "and all of it before the first is due"
    for offset in range(entries):
        assert subject.take_due(begins + offset * 300) == [(begins + offset * 300, offset, 1)]


def in_near_stretches(subject: Agenda) -> int:
    return sum(len(stretch.tail) // 3 for level in subject._stretches[:FAR_LEVEL] for stretch in level.values())


def test_what_is_far_takes_no_memory_once_it_is_written():
    """Whatever the horizon: entries over a hundred years leave a chunk per stretch that has enough of them."""
    subject, disk, chance = Agenda(), Disk(), Random(1)
    for offset in range(50_000):
        subject.add(START_MS + chance.randint(2 << SHIFTS[FAR_LEVEL], 100 * YEAR_MS), offset, 1, START_MS)
    disk.write(subject, 64)
    entries, flats, chunks = subject.copy()
    assert len(entries) + sum(map(len, flats)) // 24 < 50_000 // 100
    assert sum(chunk.entries for chunk in chunks) > 49_000
    assert len(chunks) < 50_000 // 64 // 2
    assert subject.count == 50_000


def test_what_comes_due_by_a_time_is_found_without_taking_it():
    subject, disk = Agenda(), Disk()
    for offset in range(1_000):
        subject.add(START_MS + offset * 100_000, offset, 1, START_MS)
    disk.write(subject)
    now_ms = START_MS + 50_000_000
    subject.bring(now_ms, disk.read)
    assert sorted(subject.due_by(now_ms)) == [(START_MS + n * 100_000, n, n + 1) for n in range(501)]
    assert len(list(subject.entries(disk.read))) == subject.count == 1_000
