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
    assert len(column.dump()) == 1


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
        again.load(traits.dump())
        for name, column in again.columns():
            expected = {"priority": [3, -4], "key": [0, hash_of(b"k")], "tenant": [hash_of(b"t"), 0]}[name]
            assert [column[300], column[301]] == expected


def test_hashes_are_the_same_forever():
    assert hash_of(b"") == 0
    assert (hash_of(b"user-42"), hash_of(b"a")) == (-6417657526719176593, 3405396810240292928)
