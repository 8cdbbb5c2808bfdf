"""One HTTP request: what its headers ask for, and a body that is bounded in size and in patience."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from penstock import limits
from penstock.errors import InvalidRequest, TooLarge
from penstock.transports.http.fields import Fields

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

JSON_TYPE = b"application/json"
FORM_TYPE = b"application/x-www-form-urlencoded"
BATCH_TYPE = b"application/vnd.penstock.batch"


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


class SaidAll(ClientGone):
    """The client closed its half of the connection. Whoever has an answer all the same may give it."""


class Request:
    """What came in."""

    __slots__ = ("_body", "_receive", "fields", "gone", "method", "must_close", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        fields: Fields,
        body: bytes | None,
        receive: Receive | None = None,
    ):
        """Without a `body` it is still to come, through `receive`."""
        self.method = method
        self.path = path
        self.query = query
        self.fields = fields
        self.must_close = False
        """Set when the rest of the body is of no use to anyone; the answer then ends the connection."""
        self.gone: Callable[[], Awaitable[bool]] = self._disconnected
        """Returns when the client has closed the connection: True if only its half of it.

        Only to be asked after the body was read.
        """
        self._body = body
        self._receive = receive

    @property
    def wants_batch(self) -> bool:
        return BATCH_TYPE in self.fields.accept

    async def json_body(self, size_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """The body of a call that takes JSON. No content type at all is taken for JSON, another one is refused.

        Except what `curl -d` says of whatever it sends. Pages in browsers, whose forms say the same, also say where
        they come from.
        """
        said = self.fields.content_type
        by_hand = said == FORM_TYPE and self.fields.origin is None
        if said not in (JSON_TYPE, b"") and not by_hand:
            raise InvalidRequest(
                f"content type {said.decode('latin-1')[:100]!r} is not taken here, send application/json",
                details={"field": "content-type"},
            )
        return await self.body(size_max)

    async def body(self, size_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """Raises TooLarge, as early as the size is known; InvalidRequest if it stops coming; ClientGone."""
        if self.fields.content_encoding not in (b"", b"identity"):
            raise InvalidRequest(
                "encoded bodies are not taken, send it as it is", details={"field": "content-encoding"}
            )
        if self._body is not None:
            if len(self._body) > size_max:
                raise self._too_large(size_max)
            return self._body
        if self.fields.content_length > size_max:
            if self.fields.content_length <= limits.DISCARD_BYTES_MAX and not self.fields.expects_continue:
                await self._discard()
            raise self._too_large(size_max)
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            event = await self._next()
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            more = event.get("more_body", False)
            if size > size_max:
                if more:
                    await self._discard()
                raise self._too_large(size_max)
        # What was read can be read again: of a path with two meanings the body says which one it is.
        self._body = b"".join(parts)
        return self._body

    async def _disconnected(self) -> bool:
        assert self._receive is not None
        while (await self._receive())["type"] != "http.disconnect":
            pass
        return False

    async def _next(self) -> Event:
        assert self._receive is not None
        try:
            async with asyncio.timeout(limits.BODY_STALL_MS / 1000):
                event = await self._receive()
        except TimeoutError:
            self.must_close = True
            raise body_stalled() from None
        if event["type"] == "http.disconnect":
            raise ClientGone
        return event

    async def _discard(self) -> None:
        """Let the sender finish, if that is not far: most clients only listen for an answer then."""
        discarded, more = 0, True
        while more and discarded <= limits.DISCARD_BYTES_MAX:
            event = await self._next()
            discarded += len(event.get("body", b""))
            more = event.get("more_body", False)

    def _too_large(self, size_max: int) -> TooLarge:
        self.must_close = True
        return TooLarge(f"a body of more than {size_max} bytes is not taken here; send it in parts")


def body_stalled() -> InvalidRequest:
    return InvalidRequest(
        f"nothing more of the body came for {limits.BODY_STALL_MS // 1000} s", details={"field": "body"}
    )
