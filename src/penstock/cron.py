"""Compute the fire times of a cron expression, in UTC epoch milliseconds. Pure functions.

The rules are those of Debian's cron, implemented by `cronsim`: five fields, or six with seconds in front. If clocks are
set forward, a skipped time of day fires at the first existing time after it; if they are set back, a repeated time of
day fires the first time. Expressions with a minute or hour that begins with `*` follow real time through both changes.

Schedules with one expression come due together, so the latest answers are kept: parsing costs more than all else.

The result depends on the time zone database of the machine, so callers store a fire time instead of recomputing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock import limits
from penstock.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIRST_LOOK_BACK_MS = 60_000


def check(expression: str, timezone: str) -> None:
    """Raises InvalidRequest with the field's name: `cron` or `timezone`."""
    zone = _zone(timezone)
    if len(expression) > limits.CRON_CHARS_MAX:
        raise _refused("cron", f"is longer than {limits.CRON_CHARS_MAX} characters")
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=zone))
    except CronSimError as error:
        raise _refused("cron", f"{expression!r} is not a cron expression: {error}") from None
    except (AssertionError, TypeError, ValueError):  # cronsim raises other errors for some invalid input
        raise _refused("cron", f"{expression!r} is not a cron expression") from None


@lru_cache(maxsize=64)
def next_fire(expression: str, timezone: str, after_ms: int) -> int | None:
    """The first fire time later than `after_ms`; None if there is none within fifty years."""
    return next(fires(expression, timezone, after_ms), None)


def fires(expression: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Every fire time later than `after_ms`, ascending. The expression and the zone have been checked."""
    last_ms = after_ms
    try:
        start = (_EPOCH + timedelta(milliseconds=after_ms)).astimezone(_zone(timezone))
        for moment in CronSim(expression, start):
            fire_ms = (moment.astimezone(UTC) - _EPOCH) // _SECOND * 1000
            # An iteration that starts between the two occurrences of a repeated time of day would return it again.
            if fire_ms > last_ms:
                yield fire_ms
                last_ms = fire_ms
    except (OverflowError, ValueError):
        return  # the calendar ends with the year 9999


def latest_fire(expression: str, timezone: str, from_ms: int, until_ms: int) -> int | None:
    """The last fire time from `from_ms` to `until_ms`, both included; None if there is none.

    Each step doubles the range that is searched backwards, so frequent schedules need a short search and rare ones few
    steps.
    """
    look_ms = _FIRST_LOOK_BACK_MS
    while True:
        begin_ms = max(from_ms, until_ms - look_ms)
        latest = None
        for fire_ms in fires(expression, timezone, begin_ms - 1):
            if fire_ms > until_ms:
                break
            latest = fire_ms
        if latest is not None or begin_ms == from_ms:
            return latest
        look_ms *= 2


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    try:
        # cronsim has a faster path for `UTC`, which has no clock changes.
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise _refused("timezone", f"{name[:64]!r} is not a time zone of the IANA database") from None


def _refused(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {reason}", details={"field": field})
