"""Calls without a network: handed to a function of this process, which answers as a server would.

The broker itself is none of this package's business: whoever has one says how to ask it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from penstock.client.calls.api import Call
from penstock.client.transport.http1 import Response
from penstock.client.transport.loop_thread import Background
from penstock.client.transport.separate import SeparateCalls
from penstock.errors import PenstockError

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Reply(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def body(self) -> bytes: ...


Ask: TypeAlias = Callable[[str, str, Headers, bytes], Awaitable[Reply]]
"""(method, target, headers, body) -> the reply. Cancelling it withdraws the question."""


class Direct(SeparateCalls):
    """The transport of a client in the event loop of its broker."""

    reached = True
    sends_at_once = False

    def __init__(self, ask: Ask):
        self._ask = ask
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Response:
        if self._closed:
            raise PenstockError("this client is closed")
        headers = ((b"content-type", call.content_type.encode()), (b"accept", call.accept.encode()))
        reply = await self._ask(call.method, call.target, headers, call.body)
        return Response(reply.status, dict(reply.headers), reply.body, True)

    async def close(self) -> None:
        self._closed = True


class Across(SeparateCalls):
    """The transport of a client whose broker lives in the event loop of another thread."""

    reached = True
    sends_at_once = False

    def __init__(self, direct: Direct, home: Background):
        self._direct = direct
        self._home = home

    async def exchange(self, call: Call[Any]) -> Response:
        return await asyncio.wrap_future(self._home.submit(self._direct.exchange(call)))

    async def close(self) -> None:
        await self._direct.close()


class SyncAcross:
    """The same for the blocking shell."""

    reached = True

    def __init__(self, direct: Direct, home: Background):
        self._direct = direct
        self._home = home

    def exchange(self, call: Call[Any]) -> Response:
        return self._home.run(self._direct.exchange(call))

    def close(self) -> None:
        with suppress(PenstockError):  # its broker may have gone before it
            self._home.run(self._direct.close())
