"""Which offsets a read is about, and how they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.offsets import JournalOffset, QueueOffset, Range, admit, between, split

positions = st.dictionaries(st.integers(0, 7), st.integers(0, 1_000), max_size=8)


def total(ranges):
    return sum(map(len, ranges))


@given(positions, positions, st.integers(1, 500), st.none() | st.integers(1, 20))
def test_what_is_cut_is_what_there_was(start, end, at_most, at_least):
    ranges = between(start, end)
    cut = split(ranges, at_most=at_most, at_least=at_least)
    offsets = [(part.partition, offset) for part in cut for offset in range(part.first, part.stop)]
    assert offsets == [(part.partition, offset) for part in ranges for offset in range(part.first, part.stop)]
    assert all(0 < len(part) <= at_most for part in cut)
    if at_least is not None:
        assert len(cut) >= min(at_least, total(ranges))


@given(positions, positions, st.integers(1, 3_000))
def test_a_limit_holds_and_lets_something_through(start, end, most):
    end = {partition: max(offset, start.get(partition, 0)) for partition, offset in end.items()}
    admitted = admit(start, end, most)
    assert set(admitted) == set(end)
    for partition, offset in admitted.items():
        assert min(start.get(partition, 0), end[partition]) <= offset <= end[partition]
    assert total(between(start, admitted)) == min(most, total(between(start, end)))


def test_every_partition_gets_its_share():
    assert admit({}, {0: 900, 1: 100}, 100) == {0: 90, 1: 10}
    assert admit({0: 5}, {0: 5, 1: 100}, 10) == {0: 5, 1: 10}


def test_partitions_that_came_later_begin_at_their_beginning():
    assert between({0: 3}, {0: 5, 1: 2}) == [Range(0, 3, 5), Range(1, 0, 2)]


def test_queue_offset_survives_a_checkpoint():
    offset = QueueOffset("a/b/c", {2: 5, 0: 1}, "uuid", "broker")
    assert QueueOffset.from_json(offset.to_json()) == offset
    assert list(offset.to_json()["offsets"]) == ["0", "2"]
    assert QueueOffset.from_json({"v": 1, "queue": "a/b/c", "offsets": {"0": 7}}) == QueueOffset("a/b/c", {0: 7})
    with pytest.raises(ValueError, match="version 9"):
        QueueOffset.from_json({"v": 9})


def test_journal_offset_survives_a_checkpoint():
    offset = JournalOffset(17, "broker")
    assert JournalOffset.from_json(offset.to_json()) == offset
    assert JournalOffset.from_json({"v": 1, "shards": {"0": 7}}) == JournalOffset(7)
    with pytest.raises(ValueError, match="version 9"):
        JournalOffset.from_json({"v": 9})


def test_offsets_of_the_other_table_are_refused():
    with pytest.raises(ValueError, match="not one of the table `messages`"):
        QueueOffset.from_json(JournalOffset(17, "broker").to_json())
    with pytest.raises(ValueError, match="not one of the table `events`"):
        JournalOffset.from_json(QueueOffset("a/b/c", {0: 1}, "uuid", "broker").to_json())
