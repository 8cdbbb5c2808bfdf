"""The calls of one consumer that settle messages. Acks are collected, and sent along with a lease or alone.

Acks that are handed over wait for the next lease call, but not longer than `ACK_LINGER_S`; one that is awaited is sent
at once. Acks that are added while a call is under way share the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

from penstock import limits
from penstock.client.calls import delivery as calls
from penstock.client.consume.options import ACK_LINGER_S, RELEASE_WITHIN_S, ConsumeOptions
from penstock.client.messages.leased import ReceiptSpan, common, merged, receipts_of, stale_error, stale_spans
from penstock.client.publish.transactions import Transacted
from penstock.client.runtime import Future, Runtime, Timer, Timers
from penstock.client.tracing import settling
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.retry import RetryState
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

AckEntry: TypeAlias = "tuple[Sequence[ReceiptSpan], Future[None] | None]"
"""Messages that are acked together, and the future of a caller that awaits it."""

log = logging.getLogger("penstock.client")


class AckBatch(NamedTuple):
    """Acks that travel in one call."""

    receipts: list[str]
    entries: list[AckEntry]

    @property
    def spans(self) -> list[ReceiptSpan]:
        return [span for spans, _ in self.entries for span in spans]


class PendingAcks:
    """Acks that have not been sent yet. Without I/O."""

    __slots__ = ("_entries", "_first", "_next", "_prefix")

    def __init__(self) -> None:
        self._entries: list[AckEntry] = []
        self._prefix = ""
        """The lease of neighbours that were added one by one; empty if there are none."""
        self._first = self._next = 0

    def __bool__(self) -> bool:
        return bool(self._entries) or bool(self._prefix)

    def add(self, spans: Sequence[ReceiptSpan], waiter: Future[None] | None) -> None:
        self._entries.append((spans, waiter))

    def add_one(self, prefix: str, offset: int) -> None:
        """An ack without a waiter. Neighbours, as a loop acks them, grow together to one span."""
        if offset == self._next and prefix == self._prefix:
            self._next += 1
            return
        self._close_span()
        self._prefix, self._first, self._next = prefix, offset, offset + 1

    def _close_span(self) -> None:
        if self._prefix:
            self._entries.append(([ReceiptSpan(self._prefix, self._first, self._next - 1)], None))
            self._prefix = ""

    def take(self) -> AckBatch:
        """As many as one call may carry; the others stay."""
        self._close_span()
        if len(self._entries) == 1:
            taken = self._entries
            self._entries = []
        else:
            room = limits.RECEIPTS_MAX
            stop = 0
            while stop < len(self._entries) and (room := room - len(self._entries[stop][0])) >= 0:
                stop += 1
            taken, self._entries = self._entries[: max(stop, 1)], self._entries[max(stop, 1) :]
        spans = [span for entry, _ in taken for span in entry]
        return AckBatch(receipts_of(merged(spans) if len(spans) > 1 else spans), taken)

    def put_back(self, acks: AckBatch) -> None:
        self._entries = [*acks.entries, *self._entries]


class AckSender:
    def __init__(self, carrier: Carrier, options: ConsumeOptions, runtime: Runtime, timers: Timers):
        self._carrier = carrier
        self._options = options
        self._runtime = runtime
        self._timers = timers
        self._pending = PendingAcks()
        self._linger: Timer | None = None
        self.sending = runtime.jobs()
        """The job that sends acks without a lease call."""
        self.hands_over = False
        """The last ack of a batch was handed over, not awaited."""
        self.unreported: PenstockError | None = None
        """The first failure without a waiter; the consumer raises it when it next waits for messages."""

    def __bool__(self) -> bool:
        """True if there is an ack to send."""
        return bool(self._pending)

    def awaited(self, spans: Sequence[ReceiptSpan]) -> Future[None]:
        """Done when these are acked. The caller sends them."""
        self.hands_over = False
        waiter: Future[None] = self._runtime.future()
        self._pending.add(spans, waiter)
        return waiter

    def one_soon(self, prefix: str, offset: int) -> None:
        self._pending.add_one(prefix, offset)
        if self._linger is None:
            self._start_linger()

    def soon(self, spans: Sequence[ReceiptSpan]) -> None:
        self.hands_over = True
        self._pending.add(spans, None)
        if self._linger is None:
            self._start_linger()

    def _start_linger(self) -> None:
        self._linger = self._timers.call_at(self._runtime.time() + ACK_LINGER_S, self.flush)

    def take(self) -> AckBatch | None:
        """As many as one call can carry; the caller sends them, then calls `answered`, `failed` or `put_back`."""
        self.stop()
        return self._pending.take() if self._pending else None

    def put_back(self, acks: AckBatch) -> None:
        """The call was interrupted."""
        self._pending.put_back(acks)

    def flush(self) -> None:
        """Send the pending acks without waiting for a lease call, unless that is being done already."""
        if self._pending and not self.sending:
            self.sending.start(self._send_all(), f"penstock ack {self._options.source}")

    async def _send_all(self) -> None:
        tracing, options = self._carrier.tracing, self._options
        while (acks := self.take()) is not None:
            retry = self._carrier.new_retry()
            try:
                with settling(tracing, "ack", options.source, options.group, acks.spans, alone=True):
                    results = await self._carrier.request(calls.settle("ack", acks.receipts), retry)
            except PenstockError as error:
                self.failed(acks, error)
            except BaseException:
                self.put_back(acks)
                raise
            else:
                self.answered(acks, results, retry)

    def answered(self, acks: AckBatch, results: list[Settled], retry: RetryState) -> None:
        lost = lost_spans(results, retry)
        for spans, waiter in acks.entries:
            gone = common(spans, lost) if lost else []
            if waiter is None:
                if gone:
                    log.warning("%s: %s", self._options.source, stale_error(gone, sum(span.size for span in spans)))
            elif not waiter.done():
                if gone:
                    waiter.set_exception(stale_error(gone, sum(span.size for span in spans)))
                else:
                    waiter.set_result(None)

    def failed(self, acks: AckBatch, error: PenstockError) -> None:
        for spans, waiter in acks.entries:
            if waiter is None:
                self.unreported = self.unreported or error
                count = sum(span.size for span in spans)
                log.warning("%s: ack of %d messages failed: %s", self._options.source, count, error)
            elif not waiter.done():
                waiter.set_exception(error)

    def stop(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None


def lost_spans(results: Sequence[Settled], retry: RetryState) -> list[ReceiptSpan]:
    """The messages that were not leased to this consumer any more when it settled them.

    After an answer was lost, a stale receipt most likely says that the first attempt had counted. If it does not, the
    message comes again, as at-least-once always may. Either way there is nothing left to do, so nothing is reported.
    """
    return [] if retry.uncertain else stale_spans(results)


class SettleCalls:
    """The other calls that settle. Each raises StaleReceipt for messages that were not leased any more."""

    def __init__(self, carrier: Carrier, options: ConsumeOptions):
        self._carrier = carrier
        self._options = options
        self.tracing = carrier.tracing
        self.runtime = carrier.runtime()
        self.group = options.group
        self._settling = self.runtime.jobs()

    async def settle(self, verb: str, spans: Sequence[ReceiptSpan], **fields: Any) -> list[Settled]:
        """`verb` is a call of the API, `fields` are those of its request besides the receipts."""
        with self._traced(verb, spans if verb != "extend" else ()):
            retry = self._carrier.new_retry()
            results = await self._carrier.request(calls.settle(verb, receipts_of(spans), **fields), retry)
            if lost := lost_spans(results, retry):
                raise stale_error(lost, sum(span.size for span in spans))
            return results

    async def nack_logged(self, spans: Sequence[ReceiptSpan], delay_ms: int | None, error: str) -> None:
        """For a caller that has a more important exception to raise: waits for the answer and logs failures.

        Cancelling the caller does not cancel the nack.
        """
        nack = self._settle_logged("nack", spans, delay_ms=delay_ms, error=error)
        task = self._settling.start(nack, f"penstock nack {self._options.source}")
        if task is not None:
            await self.runtime.wait([task])

    async def _settle_logged(self, verb: str, spans: Sequence[ReceiptSpan], **fields: Any) -> None:
        try:
            await self.settle(verb, spans, **fields)
        except PenstockError as problem:
            log.warning("%s: %s failed: %s", self._options.source, verb, problem)

    async def transact(self, spans: Sequence[ReceiptSpan], items: Sequence[dict[str, Any]]) -> Transacted:
        with self._traced("transact", spans):
            return await self._carrier.transact(receipts_of(spans), items)

    async def give_back(self, spans: Sequence[ReceiptSpan]) -> None:
        """Messages that were leased ahead and never handled; no attempt is counted. Failures are logged."""
        if spans:
            try:
                retry = self._carrier.new_retry(within_s=RELEASE_WITHIN_S)
                await self._carrier.request(calls.settle("release", receipts_of(spans)), retry)
            except PenstockError as error:
                log.warning("%s: could not give back what was leased ahead: %s", self._options.source, error)

    def _traced(
        self, verb: str, spans: Sequence[ReceiptSpan], *, alone: bool = False
    ) -> AbstractContextManager[object]:  # fmt: skip
        return settling(self.tracing, verb, self._options.source, self._options.group, spans, alone=alone)
