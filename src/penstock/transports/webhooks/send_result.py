"""The result of a request to an endpoint."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

from penstock import limits
from penstock.wire.webhooks import Outcome

_BACK_OFF = frozenset((429, 502, 503, 504))
"""Statuses of an endpoint that is overloaded or temporarily unavailable."""


class SendResult(NamedTuple):
    outcome: Outcome
    status: int | None = None
    error: str | None = None
    retry_after_ms: int | None = None


def result_of_status(status: int, retry_after: str | None, now_ms: int) -> SendResult:
    if 200 <= status < 300:
        return SendResult("delivered", status)
    try:
        phrase = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        phrase = ""
    error = f"the endpoint answered {status}{phrase}"
    if status == HTTPStatus.GONE:
        return SendResult("gone", status, error)
    if status in _BACK_OFF:
        return SendResult("throttled", status, error, retry_after_ms(retry_after, now_ms))
    if 300 <= status < 400:
        error += ", and redirects are not followed"
    return SendResult("failed", status, error)


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """Parse `Retry-After`: seconds or a date, capped at a day. None for any other value."""
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
