"""A sender that is made when there is something to send.

Its HTTP client takes as long to load as the rest of the server, and most servers have no webhooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.transports.webhooks.guard import Guard
from penstock.transports.webhooks.sent import Sent


class Sends(Protocol):
    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int) -> Sent: ...
    async def close(self) -> None: ...


class LateSender:
    """Satisfies `Sends`."""

    def __init__(self, guard: Guard):
        self._guard = guard
        self._loading = asyncio.Lock()
        self._sender: Sends | None = None

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int) -> Sent:
        async with self._loading:
            if self._sender is None:
                # In a thread, so that the others have their turns meanwhile.
                made_by = await asyncio.to_thread(_load)
                self._sender = made_by(self._guard)
        assert self._sender is not None
        return await self._sender.send(url, headers, body, timeout_ms, now_ms)

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def _load() -> Callable[[Guard], Sends]:
    from penstock.transports.webhooks.sender import Sender

    return Sender
