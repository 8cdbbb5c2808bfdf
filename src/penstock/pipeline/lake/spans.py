"""Spans of places in files: the names of files with their spans, gaps and overlaps of spans. Pure.

A file holds consecutive rows of one lane: messages of a partition, or events of a shard. The place of a row in its lane
is one number: the offset of a message; of an event, its frame and its record in one number.

    <uuid of the queue>-<lane>-<first place>-<last place>-<digest of the bytes>.parquet

Files of events, and files of messages written by format 1, have no uuid. The name is in Delta's log, so the log has
queue, lane, places and checksum of every file without fields of its own for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

RECORD_BITS = 20
"""The low bits of the place of an event: its record within its frame."""
_NAME = re.compile(r"(?:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-)?(\d+)-(\d+)-(\d+)-([0-9a-f]{32})\.parquet")


class LaneSpan(NamedTuple):
    """Places `first` to `last`, both included, of a lane."""

    lane: int
    first: int
    last: int


class ParsedName(NamedTuple):
    span: LaneSpan
    digest: str
    uuid: str | None = None


def file_name(span: LaneSpan, digest: str, uuid: str | None = None) -> str:
    name = f"{span.lane}-{span.first}-{span.last}-{digest}.parquet"
    return name if uuid is None else f"{uuid}-{name}"


def parse_name(name: str) -> ParsedName | None:
    """None if it is not the name of a file that an archive wrote."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return ParsedName(LaneSpan(int(found[2]), int(found[3]), int(found[4])), found[5], found[1])


def place_of(frame: int, record: int) -> int:
    """The position of an event in the journal as one number: a later event has a greater one."""
    return frame << RECORD_BITS | record


def frame_of(place: int) -> int:
    return place >> RECORD_BITS


def overlaps(spans: Iterable[LaneSpan]) -> Iterator[tuple[LaneSpan, LaneSpan]]:
    """Pairs of neighbours in a lane that have places in common."""
    for one, other in pairwise(sorted(spans)):
        if one.lane == other.lane and other.first <= one.last:
            yield one, other


def gaps(expected: Iterable[LaneSpan], held: Iterable[LaneSpan], *, dense: bool) -> Iterator[LaneSpan]:
    """The parts of the `expected` spans, one per lane, that no span of `held` covers.

    Where places are not `dense`, a gap between two spans of `held` is normal: gaps are then only those at either end.
    """
    by_lane: dict[int, list[LaneSpan]] = {}
    for span in sorted(held):
        by_lane.setdefault(span.lane, []).append(span)
    for lane, first, last in expected:
        at = first
        for number, span in enumerate(by_lane.get(lane, ())):
            if span.first > at and (dense or number == 0):
                yield LaneSpan(lane, at, min(span.first - 1, last))
            at = max(at, span.last + 1)
        if at <= last:
            yield LaneSpan(lane, at, last)


def uncovered(spans: Iterable[LaneSpan], held: Iterable[LaneSpan]) -> Iterator[LaneSpan]:
    """The spans that neither one span of `held` contains, nor several of them that touch."""
    merged: list[LaneSpan] = []
    for span in sorted(held):
        before = merged[-1] if merged else None
        if before is not None and before.lane == span.lane and span.first <= before.last + 1:
            merged[-1] = LaneSpan(span.lane, before.first, max(before.last, span.last))
        else:
            merged.append(span)
    for span in sorted(set(spans)):
        if not any(each.lane == span.lane and each.first <= span.first and span.last <= each.last for each in merged):
            yield span


class SpanMismatch(Exception):
    """Spans that do not begin at the next place of their lane. The message names lane and places."""


def next_positions(positions: dict[int, int], spans: Sequence[LaneSpan], *, dense: bool) -> dict[int, int] | None:
    """Lane -> next place after these spans were added; None if all of them are there already.

    `positions` has the next places before. A lane that is not in it begins where its first span does. Raises
    SpanMismatch if a place would be there twice or, where places are `dense`, be left out.
    """
    if spans and all(span.last < positions.get(span.lane, 0) for span in spans):
        return None
    after = dict(positions)
    for span in sorted(spans):
        at = after.get(span.lane)
        if at is not None and (span.first < at or (dense and span.first > at)):
            raise SpanMismatch(f"lane {span.lane} goes on at {at}, and this begins at {span.first}")
        after[span.lane] = span.last + 1
    return after


def mergeable(spans: Sequence[tuple[LaneSpan, int]], target: int, *, dense: bool) -> Iterator[list[int]]:
    """The groups of (span, bytes) to merge: neighbours, each smaller than half of `target`.

    Yields lists of indexes, each of two or more in the order of places.
    """
    bundle: list[int] = []
    size = 0
    for index in sorted(range(len(spans)), key=lambda each: spans[each][0]):
        span, length = spans[index]
        before = spans[bundle[-1]][0] if bundle else None
        apart = before is not None and (before.lane != span.lane or (dense and before.last + 1 != span.first))
        if length >= target // 2 or apart or size + length > target:
            if len(bundle) > 1:
                yield bundle
            bundle, size = [], 0
        if length < target // 2:
            bundle.append(index)
            size += length
    if len(bundle) > 1:
        yield bundle
