"""What became of leased messages, told to the broker: of each kind all that is known by then, in one call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.errors import PenstockError
from penstock.logs import get_logger
from penstock.transports.webhooks.envelope import Message

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_log = get_logger("penstock.webhooks")


class _Verdict(NamedTuple):
    kind: Literal["ack", "nack", "reject", "release"]
    delay_ms: int = 0
    error: str = ""


class Settling:
    """Of one webhook. What cannot be told comes again when its lease has run out, as with any consumer that fails."""

    def __init__(self, broker: Broker):
        self._broker = broker
        self._pending: dict[_Verdict, list[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def ack(self, message: Message) -> None:
        self._add(message, _Verdict("ack"))

    def nack(self, message: Message, delay_ms: int, error: str) -> None:
        self._add(message, _Verdict("nack", delay_ms, error))

    def reject(self, message: Message, error: str) -> None:
        self._add(message, _Verdict("reject", error=error))

    def release(self, message: Message) -> None:
        self._add(message, _Verdict("release"))

    async def flushed(self) -> None:
        """Wait until everything was told."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _add(self, message: Message, verdict: _Verdict) -> None:
        if message.receipt is None:
            return
        self._pending.setdefault(verdict, []).append(message.receipt)
        if self._task is None:
            self._task = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                for verdict, receipts in pending.items():
                    try:
                        await self._told(verdict, receipts)
                    except PenstockError as error:
                        _log.warning("what was sent could not be settled", kind=verdict.kind, reason=error.message)
        finally:
            self._task = None

    async def _told(self, verdict: _Verdict, receipts: list[str]) -> None:
        if verdict.kind == "ack":
            await self._broker.ack(receipts)
        elif verdict.kind == "nack":
            await self._broker.nack(receipts, delay_ms=verdict.delay_ms, error=verdict.error)
        elif verdict.kind == "reject":
            await self._broker.reject(receipts, error=verdict.error)
        else:
            await self._broker.release(receipts)
