"""Settling in a thread what a session of the event loop leased: for handlers that are plain functions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from penstock.client.blocking.messages import Message as SyncMessage
from penstock.client.consume.messages import Desk, Message
from penstock.client.messages.spans import Holder, Span
from penstock.client.publish.transactions import Transacted
from penstock.client.tracing import Tracing
from penstock.wire.delivery import Settled

T = TypeVar("T")


class ThreadDesk:
    """The desk of a blocking message. Every method is called in a thread and done in the loop of the session."""

    tracing: Tracing | None = None
    """The worker has told whoever traces; the handler runs inside of that."""

    def __init__(self, desk: Desk, loop: asyncio.AbstractEventLoop):
        self._desk = desk
        self._loop = loop

    @property
    def group(self) -> str:
        return self._desk.group

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def ack(self, spans: Sequence[Span]) -> None:
        self._wait_for(self._desk.ack(spans))

    def ack_soon(self, spans: Sequence[Span]) -> None:
        self._loop.call_soon_threadsafe(self._desk.ack_soon, spans)

    def nack(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> list[Settled]:
        return self._wait_for(self._desk.nack(spans, delay_ms, error))

    def nack_quietly(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> None:
        self._wait_for(self._desk.nack_quietly(spans, delay_ms, error))

    def reject(self, spans: Sequence[Span], error: str) -> list[Settled]:
        return self._wait_for(self._desk.reject(spans, error))

    def transact(self, spans: Sequence[Span], items: Sequence[dict[str, Any]]) -> Transacted:
        return self._wait_for(self._desk.transact(spans, items))

    def extend(self, spans: Sequence[Span], lease_ms: int) -> list[Settled]:
        return self._wait_for(self._desk.extend(spans, lease_ms))

    def hold(self, holder: Holder) -> None:
        """Nothing to do: the worker holds the message for as long as the handler runs."""

    def let_go(self, holder: Holder) -> None: ...


def for_thread(message: Message, loop: asyncio.AbstractEventLoop) -> SyncMessage:
    """The same message, to be used and settled without asyncio. What is settled here is settled there."""
    return SyncMessage(message._run, message._row, ThreadDesk(message._desk, loop))
