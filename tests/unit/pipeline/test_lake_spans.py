"""Spans of files: names, gaps, overlaps, next positions, merges."""

from __future__ import annotations

import pytest

from penstock.pipeline.lake.spans import (
    LaneSpan,
    ParsedName,
    SpanMismatch,
    file_name,
    frame_of,
    gaps,
    mergeable,
    next_positions,
    overlaps,
    parse_name,
    place_of,
    uncovered,
)

DIGEST = "0123456789abcdef" * 2


def test_file_name_round_trip():
    span = LaneSpan(3, 100, 2**40)
    assert parse_name(file_name(span, DIGEST)) == ParsedName(span, DIGEST)
    uuid = "0e8a1a2c-55aa-5f0e-8d1c-0123456789ab"
    assert parse_name(file_name(span, DIGEST, uuid)) == ParsedName(span, DIGEST, uuid)
    assert parse_name("part-00001-c000.zstd.parquet") is None
    assert parse_name(f"1-2-{DIGEST}.parquet") is None


def test_places_of_events_are_in_the_order_of_the_journal():
    assert place_of(7, 2**20 - 1) < place_of(8, 0)
    assert frame_of(place_of(8, 5)) == 8


def test_gaps_and_overlaps_are_found_in_each_lane():
    spans = [LaneSpan(0, 0, 9), LaneSpan(0, 12, 20), LaneSpan(1, 5, 9), LaneSpan(0, 18, 30), LaneSpan(1, 10, 11)]
    assert list(gaps([LaneSpan(0, 0, 30), LaneSpan(1, 5, 11)], spans, dense=True)) == [LaneSpan(0, 10, 11)]
    assert list(overlaps(spans)) == [(LaneSpan(0, 12, 20), LaneSpan(0, 18, 30))]
    assert list(overlaps([LaneSpan(0, 0, 9), LaneSpan(0, 0, 9)])) == [(LaneSpan(0, 0, 9), LaneSpan(0, 0, 9))]


def test_gaps_at_either_end_and_lanes_without_files_are_found():
    held = [LaneSpan(0, 5, 9), LaneSpan(0, 20, 29)]
    expected = [LaneSpan(0, 3, 34), LaneSpan(1, 0, 4)]
    ends = [LaneSpan(0, 3, 4), LaneSpan(0, 30, 34), LaneSpan(1, 0, 4)]
    assert list(gaps(expected, held, dense=False)) == ends
    assert sorted(gaps(expected, held, dense=True)) == sorted([*ends, LaneSpan(0, 10, 19)])


def test_removed_files_are_uncovered_unless_others_hold_their_places():
    held = [LaneSpan(0, 0, 9), LaneSpan(0, 10, 19), LaneSpan(0, 30, 39)]
    removed = [LaneSpan(0, 5, 14), LaneSpan(0, 15, 25), LaneSpan(0, 30, 39), LaneSpan(1, 0, 3)]
    assert list(uncovered(removed, held)) == [LaneSpan(0, 15, 25), LaneSpan(1, 0, 3)]


def test_next_spans_are_accepted_once():
    first = next_positions({}, [LaneSpan(0, 5, 9), LaneSpan(0, 10, 14), LaneSpan(1, 0, 0)], dense=True)
    assert first == {0: 15, 1: 1}
    assert next_positions(first, [LaneSpan(0, 10, 14)], dense=True) is None
    assert next_positions(first, [LaneSpan(0, 15, 15)], dense=True) == {0: 16, 1: 1}


@pytest.mark.parametrize("span", [LaneSpan(0, 14, 20), LaneSpan(0, 16, 20)])
def test_overlapping_or_missing_spans_are_refused(span):
    with pytest.raises(SpanMismatch, match="goes on at 15"):
        next_positions({0: 15}, [span], dense=True)


def test_event_spans_may_have_gaps_but_no_overlaps():
    assert next_positions({0: 15}, [LaneSpan(0, 99, 120)], dense=False) == {0: 121}
    with pytest.raises(SpanMismatch):
        next_positions({0: 15}, [LaneSpan(0, 10, 120)], dense=False)


def test_small_neighbours_are_merged():
    files = [(LaneSpan(0, 0, 9), 10), (LaneSpan(0, 20, 29), 10), (LaneSpan(0, 10, 19), 10), (LaneSpan(1, 0, 5), 10)]
    assert list(mergeable(files, 100, dense=True)) == [[0, 2, 1]]
    assert list(mergeable(files, 25, dense=True)) == [[0, 2]]


def test_large_files_and_gaps_are_not_merged():
    files = [(LaneSpan(0, 0, 9), 10), (LaneSpan(0, 10, 19), 60), (LaneSpan(0, 20, 29), 10), (LaneSpan(0, 31, 39), 10)]
    assert list(mergeable(files, 100, dense=True)) == []
    assert list(mergeable(files, 100, dense=False)) == [[2, 3]]
