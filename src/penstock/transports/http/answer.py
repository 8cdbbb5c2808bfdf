"""HTTP answers: status, body and headers; and the conversion of errors to answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from functools import cache, lru_cache
from http import HTTPStatus
from time import time
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError, UpgradeRequired
from penstock.transports.http.request import JSON_TYPE
from penstock.wire.status import STATUS

_encoder = msgspec.json.Encoder()
_RETRY_LATER = frozenset((429, 503, 507))


class StreamProtocol(asyncio.Protocol):
    """Takes over a connection whose answer has no end."""

    on_lost: Callable[[], None] | None = None
    """Called once, when the connection is lost."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.on_lost is not None:
            self.on_lost()


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()
    on_sent: Callable[[], None] | None = None
    """Called when the answer is durable and sent, to count it."""
    stream: Callable[[asyncio.Transport, set[Any]], StreamProtocol] | None = None
    """Takes over the connection when the headers are written, and writes a body without a length."""


def json_answer(value: Any, status: int = 200) -> Answer:
    return Answer(status, _encoder.encode(value))


def error_body(error: PenstockError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "details": error.details,
    }


def error_answer(error: PenstockError) -> Answer:
    status = STATUS[error.code].http
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if status in _RETRY_LATER:
        headers = ((b"retry-after", b"%d" % max(1, -(-(error.retry_after_ms or 0) // 1000))),)
    elif isinstance(error, UpgradeRequired):
        headers = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"), (b"sec-websocket-version", b"13"))
    elif status == 401:
        headers = ((b"www-authenticate", b"Bearer"),)
    elif "allow" in error.details:
        headers = ((b"allow", ", ".join(error.details["allow"]).encode()),)
    return Answer(status, _encoder.encode({"error": error_body(error)}), JSON_TYPE, headers)


def answer_head(answer: Answer, *, close: bool) -> bytes:
    """Status line and headers."""
    head = _head_start(answer.status, answer.content_type) + _date(int(time()))
    if answer.status != 204 and answer.stream is None:
        head += b"content-length: %d\r\n" % len(answer.body)
    for name, value in answer.headers:
        head += b"%b: %b\r\n" % (name, value)
    return head + (b"connection: close\r\n\r\n" if close else b"\r\n")


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()


@cache
def _head_start(status: int, content_type: bytes) -> bytes:
    line = b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
    return line if status == 204 else b"%bcontent-type: %b\r\n" % (line, content_type)
