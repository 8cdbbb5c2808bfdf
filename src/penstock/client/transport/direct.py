"""Calls without a network: handed to a function of this process, which answers as a server would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import SeparateCalls, client_is_closed
from penstock.client.transport.loop_thread import LoopThread

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class DirectReply(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def body(self) -> bytes: ...


Ask: TypeAlias = Callable[[str, str, Headers, bytes], Awaitable[DirectReply]]
"""(method, target, headers, body) -> the reply. Cancelling it withdraws the request."""


class InProcessTransport(SeparateCalls):
    """The transport of a client in the event loop of its broker."""

    reached = True

    def __init__(self, ask: Ask):
        self._ask = ask
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Response:
        if self._closed:
            raise client_is_closed()
        headers = ((b"content-type", call.content_type.encode()), (b"accept", call.accept.encode()))
        reply = await self._ask(call.method, call.target, headers, call.body)
        return Response(reply.status, dict(reply.headers), reply.body)

    async def close(self) -> None:
        self._closed = True


class OtherLoopTransport(SeparateCalls):
    """The transport of a client whose broker lives in the event loop of another thread."""

    reached = True

    def __init__(self, inner: InProcessTransport, thread: LoopThread):
        self._inner = inner
        self._thread = thread

    async def exchange(self, call: Call[Any]) -> Response:
        return await asyncio.wrap_future(self._thread.submit(self._inner.exchange(call)))

    async def close(self) -> None:
        await self._inner.close()
