"""Checked conversions of what users pass: seconds to milliseconds, text to bytes. All raise InvalidRequest."""

from __future__ import annotations

import math
from datetime import datetime

from penstock import limits
from penstock.errors import InvalidRequest


def milliseconds(name: str, seconds: float, ms_max: int, ms_min: int = 0) -> int:
    """Seconds as the API's whole milliseconds, within bounds."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds):
        raise invalid(name, f"{seconds!r} is not a number of seconds")
    value = round(seconds * 1000)
    if not ms_min <= value <= ms_max:
        raise invalid(name, f"{seconds} s is outside {ms_min / 1000} to {ms_max / 1000} seconds")
    return value


def moment(when: datetime | float) -> int:
    """An aware datetime or epoch seconds as epoch milliseconds."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise invalid("deliver_at", "a datetime needs a time zone, for example datetime.now(timezone.utc)")
        when = when.timestamp()
    return milliseconds("deliver_at", when, limits.TIME_MS_MAX)


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
