"""What came of a request to an endpoint."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

from penstock import limits
from penstock.wire.webhooks import Outcome

_PATIENT = frozenset((429, 502, 503, 504))
"""Answers that ask for patience rather than say that something is wrong."""


class Sent(NamedTuple):
    outcome: Outcome
    status: int | None = None
    error: str | None = None
    retry_after_ms: int | None = None


def answered(status: int, retry_after: str | None, now_ms: int) -> Sent:
    """What an answer means."""
    if 200 <= status < 300:
        return Sent("delivered", status)
    try:
        words = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        words = ""
    error = f"the endpoint answered {status}{words}"
    if status == HTTPStatus.GONE:
        return Sent("gone", status, error)
    if status in _PATIENT:
        return Sent("throttled", status, error, retry_after_ms(retry_after, now_ms))
    if 300 <= status < 400:
        error += ", and redirects are not followed"
    return Sent("failed", status, error)


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """Seconds, or a date; not more than a day. None for what is neither."""
    if value is None or len(value) > 64:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        wait_ms = int(value) * 1000
    else:
        try:
            wait_ms = round(parsedate_to_datetime(value).timestamp() * 1000) - now_ms
        except (ValueError, OverflowError, OSError):
            return None
    return min(max(wait_ms, 0), limits.WEBHOOK_RETRY_AFTER_MS_MAX)
