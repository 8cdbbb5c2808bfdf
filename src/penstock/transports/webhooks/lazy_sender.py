"""A sender that is created on first use.

The import of its HTTP client takes as long as that of the rest of the server, and most servers have no webhooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.transports.webhooks.guard import Guard
from penstock.transports.webhooks.send_result import SendResult


class SenderProtocol(Protocol):
    async def send(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int
    ) -> SendResult: ...
    async def close(self) -> None: ...


class LazySender:
    """Creates a `Sender` with the first request."""

    def __init__(self, guard: Guard):
        self._guard = guard
        self._loading = asyncio.Lock()
        self._sender: SenderProtocol | None = None

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int) -> SendResult:
        async with self._loading:
            if self._sender is None:
                # The import runs in a thread, so that it does not block the event loop.
                sender_class = await asyncio.to_thread(_load)
                self._sender = sender_class(self._guard)
        assert self._sender is not None
        return await self._sender.send(url, headers, body, timeout_ms, now_ms)

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def _load() -> Callable[[Guard], SenderProtocol]:
    from penstock.transports.webhooks.sender import Sender

    return Sender
