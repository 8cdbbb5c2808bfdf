"""RangeSet against a set of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ranges import RangeSet, pairs, total

SPACE = 64
bounds = st.integers(0, SPACE)
ranges = st.tuples(bounds, bounds)
steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "remove_below"]), ranges), max_size=30)


def built(operations) -> tuple[RangeSet, set[int]]:
    subject, model = RangeSet(), set()
    for operation, (first, stop) in operations:
        if operation == "add":
            subject.add(first, stop)
            model |= set(range(first, stop))
        elif operation == "remove":
            if first < stop:
                subject.remove(first, stop)
                model -= set(range(first, stop))
        else:
            subject.remove_below(first)
            model = {offset for offset in model if offset >= first}
    return subject, model


def members(parts) -> set[int]:
    return {offset for first, stop in parts for offset in range(first, stop)}


@given(steps)
def test_it_is_a_set_of_integers_in_its_one_canonical_form(operations):
    subject, model = built(operations)
    assert members(subject) == model
    assert subject.count == len(model)
    assert bool(subject) == bool(model)
    assert all(start < stop for start, stop in subject)
    assert all(stop < start for stop, start in zip(subject.stops, subject.starts[1:], strict=False)), "ranges touch"
    assert subject == RangeSet([(offset, offset + 1) for offset in sorted(model, reverse=True)])
    assert RangeSet.from_flat(subject.flat()) == subject
    assert members(pairs(subject.flat())) == model
    assert total(subject.flat()) == len(model)


@given(steps, ranges)
def test_questions_have_the_answers_of_the_set(operations, window):
    subject, model = built(operations)
    first, stop = window
    inside = set(range(first, stop))
    assert [offset in subject for offset in range(SPACE + 1)] == [offset in model for offset in range(SPACE + 1)]
    assert members(subject.within(first, stop)) == model & inside
    assert members(subject.gaps(first, stop)) == inside - model
    if first < stop:
        assert subject.overlaps(first, stop) == bool(model & inside)
    assert subject.past(first) == next(offset for offset in range(first, SPACE + 2) if offset not in model)
    if first not in model:
        assert subject.next_start(first, -1) == min((offset for offset in model if offset > first), default=-1)


@given(steps, steps)
def test_a_copy_goes_its_own_way(operations, more):
    subject, model = built(operations)
    twin = subject.copy()
    for _, (first, stop) in more:
        twin.add(first, stop)
    assert members(subject) == model
    assert subject.count == len(model)


def test_a_million_acks_in_a_row_are_one_range():
    subject = RangeSet()
    for offset in range(0, 1_000_000, 1000):
        subject.add(offset, offset + 1000)
    assert subject.flat() == [0, 1_000_000]
