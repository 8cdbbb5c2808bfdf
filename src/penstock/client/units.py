"""Checked conversions of the values that users pass: durations, moments, texts. All raise InvalidRequest."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TypeAlias

from penstock import limits
from penstock.errors import InvalidRequest

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""
Moment: TypeAlias = datetime | float
"""An aware datetime, or seconds since the epoch."""
Position: TypeAlias = int | str | datetime
"""A position in the log of a partition: an offset, a word of the API ("earliest", "latest", …), or a time."""


def seconds(name: str, duration: Duration) -> float:
    """Not negative; infinity is allowed."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise invalid(name, f"{duration!r} is neither a number of seconds nor a timedelta, or it is negative")
    return value


def milliseconds(name: str, duration: Duration, ms_max: int, ms_min: int = 0) -> int:
    """As the whole milliseconds of the API, within bounds."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise invalid(name, f"{duration!r} is neither a number of seconds nor a timedelta")
    value = round(value * 1000)
    if not ms_min <= value <= ms_max:
        raise invalid(name, f"{duration} s is outside {ms_min / 1000} to {ms_max / 1000} seconds")
    return value


def moment(name: str, when: Moment) -> int:
    """As epoch milliseconds."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise invalid(name, "a datetime needs a time zone, for example datetime.now(timezone.utc)")
        when = when.timestamp()
    return milliseconds(name, when, limits.TIME_MS_MAX)


def position(name: str, where: Position) -> int | str:
    """As the API writes it. A time means the first message that was published then or later."""
    return f"at:{moment(name, where)}" if isinstance(where, datetime) else where


def bounded(name: str, value: int, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise invalid(name, f"{value!r} is not an integer from {low} to {high}")
    return value


def text_bytes(name: str, value: str, size_max: int) -> bytes:
    if not isinstance(value, str):
        raise invalid(name, f"{value!r} is not a string")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise invalid(name, "is not valid Unicode") from None
    if not 1 <= len(data) <= size_max:
        raise invalid(name, f"{len(data)} bytes are not from 1 to {size_max}")
    return data


def invalid(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{name}: {reason}", details={"field": name})
