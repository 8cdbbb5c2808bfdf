"""Files of a lake by their names: what they hold, whether they fit together, which may become one."""

from __future__ import annotations

import pytest

from penstock.pipeline.lake.spans import (
    Mismatch,
    Named,
    Span,
    bundles,
    file_name,
    frame_of,
    gaps,
    next_positions,
    overlaps,
    parse_name,
    place_of_event,
    uncovered,
)

DIGEST = "0123456789abcdef" * 2


def test_a_name_says_what_a_file_holds():
    span = Span(3, 100, 2**40)
    assert parse_name(file_name(span, DIGEST)) == Named(span, DIGEST)
    uuid = "0e8a1a2c-55aa-5f0e-8d1c-0123456789ab"
    assert parse_name(file_name(span, DIGEST, uuid)) == Named(span, DIGEST, uuid)
    assert parse_name("part-00001-c000.zstd.parquet") is None
    assert parse_name(f"1-2-{DIGEST}.parquet") is None


def test_places_of_events_are_in_the_order_of_the_journal():
    assert place_of_event(7, 2**20 - 1) < place_of_event(8, 0)
    assert frame_of(place_of_event(8, 5)) == 8


def test_gaps_and_overlaps_are_found_in_each_lane():
    spans = [Span(0, 0, 9), Span(0, 12, 20), Span(1, 5, 9), Span(0, 18, 30), Span(1, 10, 11)]
    assert list(gaps([Span(0, 0, 30), Span(1, 5, 11)], spans, dense=True)) == [Span(0, 10, 11)]
    assert list(overlaps(spans)) == [(Span(0, 12, 20), Span(0, 18, 30))]
    assert list(overlaps([Span(0, 0, 9), Span(0, 0, 9)])) == [(Span(0, 0, 9), Span(0, 0, 9))]


def test_gaps_at_either_end_and_lanes_without_files_are_found():
    held = [Span(0, 5, 9), Span(0, 20, 29)]
    expected = [Span(0, 3, 34), Span(1, 0, 4)]
    ends = [Span(0, 3, 4), Span(0, 30, 34), Span(1, 0, 4)]
    assert list(gaps(expected, held, dense=False)) == ends
    assert sorted(gaps(expected, held, dense=True)) == sorted([*ends, Span(0, 10, 19)])


def test_removed_files_are_uncovered_unless_others_hold_their_places():
    held = [Span(0, 0, 9), Span(0, 10, 19), Span(0, 30, 39)]
    removed = [Span(0, 5, 14), Span(0, 15, 25), Span(0, 30, 39), Span(1, 0, 3)]
    assert list(uncovered(removed, held)) == [Span(0, 15, 25), Span(1, 0, 3)]


def test_what_comes_next_is_taken_once():
    first = next_positions({}, [Span(0, 5, 9), Span(0, 10, 14), Span(1, 0, 0)], dense=True)
    assert first == {0: 15, 1: 1}
    assert next_positions(first, [Span(0, 10, 14)], dense=True) is None
    assert next_positions(first, [Span(0, 15, 15)], dense=True) == {0: 16, 1: 1}


@pytest.mark.parametrize("span", [Span(0, 14, 20), Span(0, 16, 20)])
def test_what_would_be_twice_or_missing_is_refused(span):
    with pytest.raises(Mismatch, match="goes on at 15"):
        next_positions({0: 15}, [span], dense=True)


def test_events_may_leave_places_out_but_not_repeat_them():
    assert next_positions({0: 15}, [Span(0, 99, 120)], dense=False) == {0: 121}
    with pytest.raises(Mismatch):
        next_positions({0: 15}, [Span(0, 10, 120)], dense=False)


def test_small_neighbours_become_one_file():
    files = [(Span(0, 0, 9), 10), (Span(0, 20, 29), 10), (Span(0, 10, 19), 10), (Span(1, 0, 5), 10)]
    assert list(bundles(files, 100, dense=True)) == [[0, 2, 1]]
    assert list(bundles(files, 25, dense=True)) == [[0, 2]]


def test_large_files_and_holes_end_a_bundle():
    files = [(Span(0, 0, 9), 10), (Span(0, 10, 19), 60), (Span(0, 20, 29), 10), (Span(0, 31, 39), 10)]
    assert list(bundles(files, 100, dense=True)) == []
    assert list(bundles(files, 100, dense=False)) == [[2, 3]]
