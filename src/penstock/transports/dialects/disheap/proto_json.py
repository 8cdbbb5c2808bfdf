"""The JSON form of protocol buffers: durations, bytes, errors."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest, PenstockError
from penstock.transports.http.answer import Answer, error_answer, json_answer
from penstock.wire.status import STATUS

Duration: TypeAlias = Annotated[
    str, Meta(max_length=32, pattern=r"^[0-9]{1,12}(\.[0-9]{1,9})?s(?!\n)$", description='As in "1.5s".')
]

_CODES = {
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 5,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}
"""The numbers of gRPC status codes."""
_WEB_SAFE = str.maketrans("-_", "+/")
_BLANK = re.compile(r"\s")


def error_reply(error: PenstockError) -> Answer:
    """An error as a gRPC status in JSON; its first detail has the error code and details."""
    usual = error_answer(error)
    code = STATUS[error.code].grpc
    body = {
        "code": _CODES[code],
        "status": code,
        "message": error.message,
        "details": [{"reason": error.code, "retryable": error.retryable, **error.details}],
    }
    return json_answer(body, usual.status)._replace(headers=usual.headers)


def milliseconds(field: str, text: str, *, least: int = 0, most: int = limits.DELAY_MS_MAX) -> int:
    """Milliseconds of a valid duration, rounded up. Raises InvalidRequest if it is out of range."""
    whole, _, fraction = text[:-1].partition(".")
    ms, rest = divmod(int(whole) * 10**9 + int(fraction.ljust(9, "0")), 10**6)
    ms += bool(rest)
    if not least <= ms <= most:
        raise InvalidRequest(
            f"{field}: {text} is outside {duration(least)} to {duration(most)}", details={"field": field}
        )
    return ms


def duration(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}s" if ms % 1000 else f"{ms // 1000}s"


def base64_plain(text: str) -> str:
    """Convert to the standard alphabet with padding; accepts both alphabets, with and without padding."""
    plain = text.translate(_WEB_SAFE).rstrip("=")
    if _BLANK.search(plain):
        raise InvalidRequest("payload: is not base64", details={"field": "payload"})
    return plain + "=" * (-len(plain) % 4)
