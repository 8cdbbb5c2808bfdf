"""First come, first served, and what comes later than its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.order.fifo import Line, partition_and_offset, place_of


def everything(_place: int) -> bool:
    return True


def drained(line: Line, valid=everything) -> list[int]:
    places = []
    while (place := line.pop(valid)) is not None:
        places.append(place)
    return places


@given(st.integers(0, 255), st.integers(0, 2**47 - 1), st.integers(0, 255))
def test_a_place_says_where_and_sorts_by_age_first(partition, offset, age):
    place = place_of(partition, offset, age)
    assert partition_and_offset(place) == (partition, offset)
    assert 0 <= place < 2**63, "it fits into eight bytes"
    assert place_of(255, 2**47 - 1, age) < place_of(0, 0, age + 1)


def test_what_comes_back_goes_before_what_is_younger_and_after_what_is_older():
    line = Line()
    for place in (10, 20, 30):
        line.push(place, 0, fresh=True)
    line.push(25, 0, fresh=False)
    line.push(5, 0, fresh=False)
    assert list(line) == [5, 10, 20, 25, 30]
    assert drained(line) == [5, 10, 20, 25, 30]


def test_the_row_keeps_the_order_of_publishing_across_partitions():
    line = Line()
    line.push_all([700, 3, 500], [0, 0, 0])
    assert drained(line) == [700, 3, 500]


def test_what_is_no_longer_valid_is_dropped_wherever_it_stands():
    line = Line()
    line.push_all(list(range(0, 100, 2)), [0] * 50)
    for place in range(1, 100, 2):
        line.push(place, 0, fresh=False)
    assert drained(line, lambda place: place % 3 == 0) == list(range(0, 100, 3))
    assert len(line) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=200))
def test_a_line_is_its_row_merged_with_what_came_back(steps):
    line, row, back, number = Line(), [], [], 0
    for push, value in steps:
        if push:
            number += 1
            row.append(number * 100)
            line.push(number * 100, 0, fresh=True)
        else:
            back.append(value * 100 + 1)
            line.push(value * 100 + 1, 0, fresh=False)
        if value % 5 == 0:
            expected = min([*row[:1], *back], default=None)
            assert line.pop(everything) == expected
            (row if row and expected == row[0] else back).remove(expected)
        assert len(line) == len(row) + len(back)
    assert drained(line) == sorted(row + back)
