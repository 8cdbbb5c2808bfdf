"""RangeSet against a set of integers, as ranges and, where they crumble, as bits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.offsets import ranges as module
from penstock.core.offsets.ranges import CRUMB_SPAN_MAX, CRUMBS, CrumblingSet, RangeSet, pairs, total

SPACE = 64
bounds = st.integers(0, SPACE)
ranges = st.tuples(bounds, bounds)
steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "remove_below"]), ranges), max_size=30)


@pytest.fixture(params=[CRUMBS, 2], scope="module", autouse=True)
def crumbs(request: pytest.FixtureRequest) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CRUMBS", request.param)
        yield request.param


def built(operations) -> tuple[RangeSet, set[int]]:
    subject, model = CrumblingSet(), set()
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
    assert all(stop < start for (_, stop), (start, _) in pairwise(subject)), "ranges touch"
    assert subject.ranges == len(list(subject))
    assert subject == CrumblingSet([(offset, offset + 1) for offset in sorted(model, reverse=True)])
    assert CrumblingSet.from_flat(subject.flat()) == subject
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
        assert subject.count_in(first, stop) == len(model & inside)
    assert subject.past(first) == next(offset for offset in range(first, SPACE + 2) if offset not in model)
    if first not in model:
        assert subject.next_start(first, -1) == min((offset for offset in model if offset > first), default=-1)


@given(steps, steps)
def test_copy_is_independent(operations, more):
    subject, model = built(operations)
    twin = subject.copy()
    assert twin == subject
    for _, (first, stop) in more:
        twin.add(first, stop)
    assert members(subject) == model
    assert subject.count == len(model)


@given(steps, st.integers(1, 5))
def test_the_lowest_gaps_are_closed_first(operations, most):
    subject, model = built(operations)
    before = list(subject)
    subject.close_gaps(most)
    assert subject.ranges <= most
    assert model <= members(subject)
    kept = list(subject)[1:]
    assert before[len(before) - len(kept) :] == kept


def test_a_million_acks_in_a_row_are_one_range():
    subject = CrumblingSet()
    for offset in range(0, 1_000_000, 1000):
        subject.add(offset, offset + 1000)
    assert subject.flat() == [0, 1_000_000]


def test_what_crumbles_takes_bits_and_becomes_ranges_again():
    subject, order = CrumblingSet(), list(range(0, 20_000, 2))
    Random(1).shuffle(order)
    for offset in order:
        subject.add(offset, offset + 1)
    assert not subject.starts and subject.ranges == subject.count == 10_000
    assert subject.flat()[:4] == [0, 1, 2, 3]
    assert subject.next_start(1, -1) == 2 and subject.next_start(19_999, -1) == -1
    subject.remove_below(19_997)
    assert subject.starts == [19_998]
    subject.add(19_999, 20_000)
    assert subject.flat() == [19_998, 20_000]


def test_what_lies_far_apart_stays_ranges(crumbs):
    subject = CrumblingSet()
    for number in range(crumbs + 10):
        subject.add(10 * CRUMB_SPAN_MAX * number, 10 * CRUMB_SPAN_MAX * number + 1)
    assert len(subject.starts) == crumbs + 10


def test_foreign_numbers_stay_ranges(crumbs):
    """A producer's numbers, say: bits would take room for all that lies between them."""
    subject = RangeSet()
    for number in range(0, 2 * (crumbs + 10), 2):
        subject.add(number, number + 1)
    subject.add(2**52, 2**52 + 1)
    subject.close_gaps(1)
    assert subject.flat() == [0, 2**52 + 1]
