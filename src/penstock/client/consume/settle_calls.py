"""The calls of a consumer that settle messages, except the ack, which travels with its leases."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from penstock.client.calls import lease as calls
from penstock.client.calls.call import Call
from penstock.client.consume.acks import lost_spans
from penstock.client.consume.options import RELEASE_WITHIN_S, ConsumeOptions
from penstock.client.messages.spans import ReceiptSpan, receipts_of, stale_error
from penstock.client.publish.transactions import Transacted
from penstock.client.tracing import settling
from penstock.client.transport.carrier import Carrier
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

log = logging.getLogger("penstock.client")


class SettleCalls:
    """Each raises StaleReceipt for messages that were not leased to this consumer any more."""

    def __init__(self, carrier: Carrier, options: ConsumeOptions):
        self._carrier = carrier
        self._options = options
        self.tracing = carrier.tracing
        self.runtime = carrier.runtime()
        self._settling = self.runtime.jobs()

    @property
    def group(self) -> str:
        return self._options.group

    async def nack(
        self, spans: Sequence[ReceiptSpan], delay_ms: int | None, error: str, max_retries: int | None = None
    ) -> list[Settled]:
        with self._traced("nack", spans):
            call = calls.nack(receipts_of(spans), delay_ms=delay_ms, error=error, max_retries=max_retries)
            return await self._settle(call, spans)

    async def nack_logged(self, spans: Sequence[ReceiptSpan], delay_ms: int | None, error: str) -> None:
        """For a caller that has a more important exception to raise: waits for the answer and logs failures.

        Cancelling the caller does not cancel the nack.
        """
        task = self._settling.start(self._nack_logged(spans, delay_ms, error), f"penstock nack {self._options.source}")
        if task is not None:
            await self.runtime.wait([task])

    async def _nack_logged(self, spans: Sequence[ReceiptSpan], delay_ms: int | None, error: str) -> None:
        try:
            await self.nack(spans, delay_ms, error)
        except PenstockError as problem:
            log.warning("%s: nack failed: %s", self._options.source, problem)

    async def reject(self, spans: Sequence[ReceiptSpan], error: str) -> list[Settled]:
        with self._traced("reject", spans):
            return await self._settle(calls.reject(receipts_of(spans), error=error), spans)

    async def transact(self, spans: Sequence[ReceiptSpan], items: Sequence[dict[str, Any]]) -> Transacted:
        with self._traced("transact", spans):
            return await self._carrier.transact(receipts_of(spans), items)

    async def extend(self, spans: Sequence[ReceiptSpan], lease_ms: int) -> list[Settled]:
        return await self._settle(calls.extend(receipts_of(spans), lease_ms=lease_ms), spans)

    async def give_back(self, spans: Sequence[ReceiptSpan]) -> None:
        """Messages that were leased ahead and never handled. Failures are logged."""
        if spans:
            try:
                retry = self._carrier.new_retry(within_s=RELEASE_WITHIN_S)
                await self._carrier.request(calls.release(receipts_of(spans)), retry)
            except PenstockError as error:
                log.warning("%s: could not give back what was leased ahead: %s", self._options.source, error)

    def _traced(
        self, verb: str, spans: Sequence[ReceiptSpan], *, alone: bool = False
    ) -> AbstractContextManager[object]:
        return settling(self.tracing, verb, self._options.source, self._options.group, spans, alone=alone)

    async def _settle(self, call: Call[list[Settled]], spans: Sequence[ReceiptSpan]) -> list[Settled]:
        retry = self._carrier.new_retry()
        results = await self._carrier.request(call, retry)
        if lost := lost_spans(results, retry):
            raise stale_error(lost, sum(span.size for span in spans))
        return results
