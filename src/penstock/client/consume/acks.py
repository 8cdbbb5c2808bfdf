"""Acks of one consumer on their way, with asyncio: gathered, sent along with a lease or by themselves, answered.

Acks that are handed over wait for the next lease call, but not longer than `ACK_LINGER_S`; one that is awaited is sent
at once. What comes while a call is under way shares the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TypeAlias

from penstock.client.calls import api as calls
from penstock.client.consume.options import ACK_LINGER_S, Terms, lost_in
from penstock.client.messages.spans import AckBatch, PendingAcks, Span, common, stale_error
from penstock.client.tracing import settling
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.retry import Retry
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

log = logging.getLogger("penstock.client")
Acks: TypeAlias = "AckBatch[asyncio.Future[None] | None]"
"""As many as one call carries; with a future where somebody waits for them."""


class AckSender:
    def __init__(self, carrier: Carrier, terms: Terms):
        self._carrier = carrier
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._pending: PendingAcks[asyncio.Future[None] | None] = PendingAcks()
        self._linger: asyncio.TimerHandle | None = None
        self.sending: asyncio.Task[None] | None = None
        """Where acks are being sent without a lease call."""
        self.hands_over = False
        """The last ack of a batch was handed over, not awaited."""
        self.unheard: PenstockError | None = None
        """The first failure for which nobody waited; the loop hears of it when it next waits for messages."""

    def __bool__(self) -> bool:
        """True if there is something to send."""
        return bool(self._pending)

    def awaited(self, spans: Sequence[Span]) -> asyncio.Future[None]:
        """Done when these are acked. They are to be sent now: the caller knows with what."""
        self.hands_over = False
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._pending.add(spans, waiter)
        return waiter

    def one_soon(self, prefix: str, offset: int) -> None:
        self._pending.add_one(prefix, offset)
        if self._linger is None:
            self._linger = self._loop.call_later(ACK_LINGER_S, self.flush)

    def soon(self, spans: Sequence[Span]) -> None:
        self.hands_over = True
        self._pending.add(spans, None)
        if self._linger is None:
            self._linger = self._loop.call_later(ACK_LINGER_S, self.flush)

    def take(self) -> Acks | None:
        """As many as one call can carry, for whoever sends one."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        return self._pending.take() if self._pending else None

    def flush(self) -> None:
        """Send what is pending without waiting for a lease call; if that is being done already, it takes this along."""
        if self.sending is None and self._pending:
            self.sending = self._loop.create_task(self._send_all(), name=f"penstock ack {self._terms.queue}")

    async def _send_all(self) -> None:
        tracing, terms = self._carrier.tracing, self._terms
        try:
            while (acks := self.take()) is not None:
                retry = self._carrier.new_retry()
                try:
                    with settling(tracing, "ack", terms.queue, terms.group, acks.spans, alone=True):
                        results = await self._carrier.request(calls.ack(acks.receipts), retry)
                except PenstockError as error:
                    self.failed(acks, error)
                else:
                    self.answered(acks, results, retry)
        finally:
            self.sending = None

    def answered(self, acks: Acks, results: list[Settled], retry: Retry) -> None:
        lost = lost_in(results, retry)
        for spans, waiter in acks.entries:
            gone = common(spans, lost) if lost else []
            if waiter is None:
                if gone:
                    log.warning("%s: %s", self._terms.queue, stale_error(gone, sum(span.size for span in spans)))
            elif not waiter.done():
                if gone:
                    waiter.set_exception(stale_error(gone, sum(span.size for span in spans)))
                else:
                    waiter.set_result(None)

    def failed(self, acks: Acks, error: PenstockError) -> None:
        for spans, waiter in acks.entries:
            if waiter is None:
                self.unheard = self.unheard or error
                log.warning("%s: ack of %d messages failed: %s", self._terms.queue, sum(s.size for s in spans), error)
            elif not waiter.done():
                waiter.set_exception(error)

    def stop(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
