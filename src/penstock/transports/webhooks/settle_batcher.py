"""Settles leased messages in batches: one broker call for all pending receipts with the same settlement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.errors import PenstockError
from penstock.logs import get_logger
from penstock.transports.webhooks.envelope import WebhookMessage

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_log = get_logger("penstock.webhooks")


class _Settlement(NamedTuple):
    kind: Literal["ack", "nack", "reject", "release"]
    delay_ms: int = 0
    error: str = ""


class SettleBatcher:
    """The settlements of one webhook. If a call fails, its messages are delivered again when their leases expire."""

    def __init__(self, broker: Broker):
        self._broker = broker
        self._pending: dict[_Settlement, list[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def ack(self, message: WebhookMessage) -> None:
        self._add(message, _Settlement("ack"))

    def nack(self, message: WebhookMessage, delay_ms: int, error: str) -> None:
        self._add(message, _Settlement("nack", delay_ms, error))

    def reject(self, message: WebhookMessage, error: str) -> None:
        self._add(message, _Settlement("reject", error=error))

    def release(self, message: WebhookMessage) -> None:
        self._add(message, _Settlement("release"))

    async def drain(self) -> None:
        """Wait until all settlements were sent."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _add(self, message: WebhookMessage, settlement: _Settlement) -> None:
        if message.receipt is None:
            return
        self._pending.setdefault(settlement, []).append(message.receipt)
        if self._task is None:
            self._task = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                for settlement, receipts in pending.items():
                    try:
                        await self._settle(settlement, receipts)
                    except PenstockError as error:
                        _log.warning("webhook_settle_failed", kind=settlement.kind, reason=error.message)
        finally:
            self._task = None

    async def _settle(self, settlement: _Settlement, receipts: list[str]) -> None:
        if settlement.kind == "ack":
            await self._broker.messages.ack(receipts)
        elif settlement.kind == "nack":
            await self._broker.messages.nack(receipts, delay_ms=settlement.delay_ms, error=settlement.error)
        elif settlement.kind == "reject":
            await self._broker.messages.reject(receipts, error=settlement.error)
        else:
            await self._broker.messages.release(receipts)
