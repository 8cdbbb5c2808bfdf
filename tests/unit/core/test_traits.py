"""Columns of numbers by offset, and hashes that never change."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core.config import parse_config
from penstock.core.offsets.ranges import RangeSet
from penstock.core.state.traits import Column, Traits, hash_of

PUTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 700)), min_size=1, max_size=8)


@given(PUTS, st.integers(0, 3000))
def test_a_column_is_a_list_with_holes(puts, bound):
    column, model, end = Column(), {}, 0
    for gap, count in puts:
        first = end + gap * 50
        values = array("q", range(first * 7 + 1, first * 7 + 1 + count))
        column.put(first, values)
        model.update(enumerate(values, first))
        end = first + count
    bound = min(bound, end - 1)
    assert [column[offset] for offset in range(end)] == [model.get(offset, 0) for offset in range(end)]
    assert list(column.get_all(range(end))) == [model.get(offset, 0) for offset in range(end)]
    assert list(column.get_all(range(0, end, 3))) == [model.get(offset, 0) for offset in range(0, end, 3)]
    column.drop_below(bound)
    assert all(column[offset] == model.get(offset, 0) for offset in range(bound, end))
    for first in range(0, end, 512):
        column.keep(first, first + 512, RangeSet([(end - 1, end)]))
    assert column[end - 1] == model[end - 1]
    assert list(column.pages()) == [(end - 1) >> 8]


def test_only_what_the_order_asks_for_is_kept_and_comes_back_from_a_dump():
    batch = Batch.open(
        build([b"a", b"b"], columns={layout.PRIORITY: [3, -4], layout.KEY: [b"", b"k"], layout.TENANT: [b"t", b""]})
    )
    for values, names in (
        ({}, set()),
        ({"order": "lanes"}, {"priority"}),
        ({"ordered_keys": True}, {"key"}),
        ({"order": "heap", "fair_share": {"enabled": True}}, {"priority", "tenant"}),
    ):
        config = parse_config(values)
        traits, again = Traits(config), Traits(config)
        traits.note(300, batch)
        assert {name for name, _ in traits.columns()} == names
        again.load(
            {
                name: [(at, cells.tobytes()) for at, cells in column.capture().items()]
                for name, column in traits.columns()
            }
        )
        for name, column in again.columns():
            expected = {"priority": [3, -4], "key": [0, hash_of(b"k")], "tenant": [hash_of(b"t"), 0]}[name]
            assert [column[300], column[301]] == expected


@given(PUTS, PUTS, st.integers(0, 3000))
def test_a_capture_does_not_change(before, after, bound):
    column, end = Column(), 0
    for number, (gap, count) in enumerate(before + after):
        if number == len(before):
            captured = column.capture()
            expected = {page: cells[:] for page, cells in captured.items()}
        first = end + gap
        column.put(first, array("q", range(first + 1, first + 1 + count)))
        end = first + count
        assert column[end - 1] == end
    column.drop_below(min(bound, end - 1))
    assert captured == expected
    assert column.capture()[(end - 1) >> 8][(end - 1) & 255] == end


def test_hashes_are_the_same_forever():
    assert hash_of(b"") == 0
    assert (hash_of(b"user-42"), hash_of(b"a")) == (-6417657526719176593, 3405396810240292928)
