"""One HTTP request, whole: its headers and its body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock import limits
from penstock.errors import InvalidRequest, TooLarge, UnsupportedMediaType
from penstock.transports.http.fields import Fields

JSON_TYPE = b"application/json"
FORM_TYPE = b"application/x-www-form-urlencoded"
BATCH_TYPE = b"application/vnd.penstock.batch"


class ClientGone(Exception):
    """The client closed the connection: no answer can reach it."""


class ClientHalfClosed(ClientGone):
    """The client closed its half of the connection. An answer that is there all the same may be given."""


async def never_gone() -> bool:
    """`Request.gone` of a caller that has no connection to close."""
    await asyncio.get_running_loop().create_future()
    return False


class Request:
    """A request with its whole body."""

    __slots__ = ("_body", "fields", "gone", "method", "must_close", "path", "query")

    def __init__(self, method: str, path: str, query: bytes, fields: Fields, body: bytes):
        self.method = method
        self.path = path
        self.query = query
        self.fields = fields
        self.must_close = False
        """True: the answer ends the connection."""
        self.gone: Callable[[], Awaitable[bool]] = never_gone
        """Returns when the client has closed the connection: True if only its half of it."""
        self._body = body

    @property
    def size(self) -> int:
        """Of the body, in bytes."""
        return len(self._body)

    @property
    def wants_batch(self) -> bool:
        return BATCH_TYPE in self.fields.accept

    def json_body(self, size_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """The body of a call that takes JSON. A request without a content type is taken for JSON.

        So is one with the content type of `curl -d`, unless it comes from a page of a browser: forms have the same.
        """
        said = self.fields.content_type
        by_hand = said == FORM_TYPE and self.fields.origin is None
        if said not in (JSON_TYPE, b"") and not by_hand:
            raise UnsupportedMediaType(
                f"content type {said.decode('latin-1')[:100]!r} is not taken here, send application/json",
                details={"field": "content-type"},
            )
        return self.body(size_max)

    def body(self, size_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """Raises TooLarge, or UnsupportedMediaType for a body that is encoded."""
        if self.fields.content_encoding not in (b"", b"identity"):
            raise UnsupportedMediaType(
                "encoded bodies are not taken, send it as it is", details={"field": "content-encoding"}
            )
        if len(self._body) > size_max:
            raise TooLarge(f"a body of more than {size_max} bytes is not taken here; send it in parts")
        return self._body


def body_stalled() -> InvalidRequest:
    return InvalidRequest(
        f"nothing more of the body came for {limits.BODY_STALL_MS // 1000} s", details={"field": "body"}
    )
