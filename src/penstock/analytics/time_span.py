"""The time span, its steps, and the queues that a query of the analytics is about. Pure."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import InvalidRequest

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
POINTS = 300
"""About so many points, if the length of a step is not given."""
POINTS_MAX = 5_000
_STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440)
"""Lengths of a step that divide an hour or a day, in minutes."""


class TimeSpan(NamedTuple):
    from_ms: int
    to_ms: int
    step_ms: int


class QueueFilter(NamedTuple):
    """One queue, or the queues whose path begins with `prefix`."""

    queue: str | None = None
    prefix: str = ""


def time_span(from_ms: int | None, to_ms: int | None, step_ms: int | None, now_ms: int) -> TimeSpan:
    """A span of whole minutes; the last one is that of `to_ms`. Raises InvalidRequest if it is empty or too long."""
    end = _up(to_ms if to_ms is not None else now_ms + 1, MINUTE_MS)
    begin = (from_ms if from_ms is not None else end - DAY_MS) // MINUTE_MS * MINUTE_MS
    if begin >= end:
        raise InvalidRequest(f"from_ms: {begin} is not before to_ms, {end}", details={"field": "from_ms"})
    if step_ms is None:
        minutes = -(-(end - begin) // (MINUTE_MS * POINTS))
        step = next((each for each in _STEPS_MIN if each >= minutes), _up(minutes, 1_440)) * MINUTE_MS
    else:
        step = _up(step_ms, MINUTE_MS)
    if (end - begin) // step > POINTS_MAX:
        raise InvalidRequest(
            f"step_ms: from {begin} to {end} would be {(end - begin) // step} steps, and {POINTS_MAX} is the limit; "
            "ask for longer steps",
            details={"field": "step_ms"},
        )
    return TimeSpan(max(0, begin), end, step)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
