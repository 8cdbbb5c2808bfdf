"""Calls of the public API inside the process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class ApiReply(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Headers: ...


Ask: TypeAlias = Callable[[str, str, Headers, bytes], Awaitable[ApiReply]]
"""Method, target, headers and body of a request -> its reply."""

_JSON: Headers = ((b"content-type", b"application/json"),)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class ApiError(Exception):
    """The API refused a call."""

    def __init__(self, status: int, error: dict[str, Any]):
        super().__init__(error["message"])
        self.status = status
        self.code: str = error["code"]
        self.message: str = error["message"]
        self.details: dict[str, Any] = error["details"]

    @property
    def field(self) -> str:
        """The field that the error is about; empty if it is about none."""
        return str(self.details.get("field", ""))

    @property
    def confirm(self) -> str | None:
        """The token with which a destructive call is repeated."""
        return self.details.get("confirm")


class Api:
    """The API as one visitor may use it."""

    def __init__(self, ask: Ask, headers: Headers = ()):
        """`headers` are sent with every call."""
        self._ask = ask
        self._headers = headers
        self.cookies: Headers = ()
        """Headers of replies that set cookies."""

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The decoded reply; raises ApiError. A query parameter that is None is left out."""
        given = {name: value for name, value in query.items() if value is not None}
        target = quote(path) + (f"?{urlencode(given)}" if given else "")
        data = b"" if body is None else _encode(body)
        reply = await self._ask(method, target, self._headers + (_JSON if data else ()), data)
        self.cookies += tuple(pair for pair in reply.headers if pair[0] == b"set-cookie")
        decoded: Any = _decode(reply.body) if reply.body else None
        if reply.status >= 400:
            raise ApiError(reply.status, decoded["error"])
        return decoded

    async def get(self, path: str, **query: Any) -> Any:
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Any:
        return await self.call("POST", path, body, **query)
