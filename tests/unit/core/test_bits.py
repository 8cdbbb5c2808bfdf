"""OffsetBits against a set of integers, across pages and far away from zero."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.offsets.bits import OffsetBits

# Pages cover 1,024 offsets: ranges around their edges, and a few pages long.
bounds = st.integers(0, 40).flatmap(lambda near: st.sampled_from([near, 1004 + near, 2028 + near, 3072 + near]))
steps = st.lists(st.tuples(st.booleans(), bounds, bounds), max_size=20)


@pytest.mark.parametrize("base", [0, 2**50 + 17])
@given(operations=steps, window=st.tuples(bounds, bounds))
def test_it_is_a_set_of_integers(base, operations, window):
    subject, model = OffsetBits(), set()
    for adding, first, stop in operations:
        change = set(range(base + first, base + stop))
        if adding:
            subject.add(base + first, base + stop)
            model |= change
        else:
            subject.remove(base + first, base + stop)
            model -= change
    assert subject.count == len(model)
    first, stop = base + window[0], base + window[1]
    assert list(subject.within(first, stop)) == sorted(model & set(range(first, stop)))
    assert list(subject.within(base, base + 5000)) == sorted(model)
    free = [offset for start, after in subject.gaps(first, stop) for offset in range(start, after)]
    assert free == [offset for offset in range(first, stop) if offset not in model]
    assert all(after < start for (_, after), (start, _) in pairwise(subject.gaps(first, stop))), "gaps touch"
    assert subject.covers(first, stop) == (set(range(first, stop)) <= model)
    assert [offset in subject for offset in range(first, stop)] == [offset in model for offset in range(first, stop)]


@given(before=st.sets(bounds), offsets=st.sets(bounds, min_size=1))
def test_many_at_once_are_as_one_by_one(before, offsets):
    subject = OffsetBits()
    for offset in before:
        subject.add(offset, offset + 1)
    subject.add_all(sorted(offsets))
    assert list(subject.within(0, 5000)) == sorted(before | offsets)
    assert subject.count == len(before | offsets)


@given(first=bounds, size=st.integers(1, 2_000), holes=st.sets(st.integers(0, 2_000), max_size=40))
def test_a_stretch_with_holes_is_as_one_by_one(first, size, holes):
    offsets = [first + row for row in range(size) if row not in holes] or [first]
    subject = OffsetBits()
    subject.add_all(offsets)
    assert list(subject.within(0, 10_000)) == offsets
    assert subject.count == len(offsets)


@given(
    before=st.tuples(bounds, bounds),
    ranges=st.lists(st.tuples(bounds, st.integers(0, 1100)).map(lambda each: (each[0], sum(each))), max_size=8),
)
def test_many_ranges_are_removed_as_one_by_one(before, ranges):
    subject = OffsetBits()
    subject.add(*before)
    subject.remove_all(ranges)
    left = set(range(*before)).difference(*(range(*each) for each in ranges))
    assert list(subject.within(0, 5000)) == sorted(left)
    assert subject.count == len(left)


def test_what_was_emptied_takes_no_memory():
    subject = OffsetBits()
    subject.add(0, 100_000)
    subject.remove(0, 100_000)
    assert subject.count == 0
    assert not subject._pages
