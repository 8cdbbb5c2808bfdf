"""When a cron expression fires: pure questions about calendars, asked with UTC epoch milliseconds.

The answers are those of Debian's cron, by way of `cronsim`: five fields, or six with seconds in front. Where clocks are
set forward, a time of day that does not exist fires at the first moment that does; where they are set back, a time of
day that comes twice fires the first time. Expressions whose minute or hour begins with `*` follow real time through
both changes.

An answer depends on the time zone database of the machine. Whoever needs it again later writes it down.
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
    except (AssertionError, TypeError, ValueError):  # what its parser did not foresee
        raise _refused("cron", f"{expression!r} is not a cron expression") from None


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
            # A time of day that the clock shows twice is found again by whoever begins between the two.
            if fire_ms > last_ms:
                yield fire_ms
                last_ms = fire_ms
    except (OverflowError, ValueError):
        return  # the calendar ends with the year 9999


def latest_fire(expression: str, timezone: str, from_ms: int, until_ms: int) -> int | None:
    """The last fire time from `from_ms` to `until_ms`, both included; None if there is none.

    Looks back over twice the time with each step, so that what fires often is found in a short look and what fires
    seldom in few.
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
        # `UTC` itself, because calendars without clock changes have a shorter way.
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise _refused("timezone", f"{name[:64]!r} is not a time zone of the IANA database") from None


def _refused(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {reason}", details={"field": field})
