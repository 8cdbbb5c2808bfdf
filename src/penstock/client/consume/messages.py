"""Messages and batches under a lease: settled once, by the session of their consumer.

`LeasedMessage` and `LeasedBatch` are the parts without public calls. `Message` and `MessageBatch` add coroutines; the
blocking client (`blocking.messages`) has the same calls without asyncio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from penstock import limits
from penstock.client.consume.options import lease_milliseconds
from penstock.client.messages.leased import LeasedRun, ReceiptSpan, error_text, merged
from penstock.client.messages.stored import MessageRun, MessageSequence, StoredMessage
from penstock.client.publish.transactions import Outbox, Transacted
from penstock.client.units import Duration, milliseconds
from penstock.errors import PenstockError, StaleReceipt
from penstock.wire.delivery import Settled

if TYPE_CHECKING:
    from penstock.client.consume.session import ConsumerSession

TRACED_BY_WORKER = object()
"""The work on a message that a worker traces."""

_first_of = attrgetter("first")
_last_of = attrgetter("last")


class Settleable(ABC):
    """The part that a message and a batch have in common. Both are holders of a lease while they are handled."""

    __slots__ = ()

    renew_at: float
    _session: ConsumerSession[Any, Any]
    entered: bool
    """True inside `async with` or `with`: the lease is renewed until the block is left."""
    _work: object | None

    @property
    @abstractmethod
    def lease_ms(self) -> int:
        """The length of the lease, as the server answered it."""

    @abstractmethod
    def open_spans(self) -> list[ReceiptSpan]:
        """The messages that are not settled."""

    @abstractmethod
    def spans(self) -> list[ReceiptSpan]:
        """The messages that are neither settled nor lost."""

    @abstractmethod
    def lost(self, spans: Sequence[ReceiptSpan]) -> None:
        """The lease of these messages has ended."""

    @abstractmethod
    def mark(self, spans: Sequence[ReceiptSpan], *, settled: bool) -> None:
        """Mark `spans`, as `open_spans` gave them, as settled or not settled."""

    async def _settle(self, verb: str, **fields: Any) -> list[Settled]:
        """Settle all that is not settled. After an error other than StaleReceipt it is as unsettled as before."""
        spans = self._begin_settling()
        try:
            return await self._session.settle(verb, spans, **fields) if spans else []
        except PenstockError as error:
            if not isinstance(error, StaleReceipt):
                self.mark(spans, settled=False)
            raise

    async def _nack(self, delay: Duration | None, error: str, max_retries: int | None = None) -> list[Settled]:
        """`max_retries` is the limit of a worker, where it is lower than that of the queue."""
        delay_ms = None if delay is None else milliseconds("delay", delay, limits.DELAY_MS_MAX)
        return await self._settle(
            "nack", delay_ms=delay_ms, error=error[: limits.ERROR_CHARS_MAX], max_retries=max_retries
        )

    async def _reject(self, error: str) -> list[Settled]:
        return await self._settle("reject", error=error[: limits.ERROR_CHARS_MAX])

    async def _transact(self, items: list[dict[str, Any]]) -> Transacted:
        self.entered = False  # type: ignore[misc]  # a slot of the subclasses
        spans = self._begin_settling()
        try:
            return await self._session.transact(spans, items)
        except StaleReceipt:
            raise
        except PenstockError as error:
            # Refused, or unknown. If it did happen, the nack finds a stale receipt and changes nothing.
            await self._session.nack_logged(spans, None, error_text(error))
            raise

    def _enter(self) -> None:
        """A block begins: keep the lease until it is left."""
        session = self._session
        self.entered = True  # type: ignore[misc]
        if session.current is not self:
            session.hold(self)
        if session.tracing is not None and self._work is None:
            self._work = session.tracing.begin(session.group, self)  # type: ignore[misc, arg-type]

    async def _leave(self, error: BaseException | None) -> None:
        """A block ends: ack if it succeeded, nack if it raised."""
        self.entered = False  # type: ignore[misc]
        self._end_work(error)
        spans = self._begin_settling()
        if not spans:
            return
        if error is None:
            self._session.ack_soon(spans)
        elif isinstance(error, Exception):
            await self._session.nack_logged(spans, None, error_text(error))
        else:
            # The handler did not fail, it was cancelled or interrupted: the message may be delivered again at once.
            await self._session.nack_logged(spans, 0, "the handler was cancelled")

    def _begin_settling(self) -> list[ReceiptSpan]:
        """The messages to settle, marked as settled before the call, so that they are not settled twice meanwhile."""
        spans = self.open_spans()
        self.mark(spans, settled=True)
        self._session.let_go(self)
        return spans

    def _end_work(self, error: BaseException | None) -> None:
        """The traced work ends."""
        work, self._work = self._work, None  # type: ignore[misc]
        if work is not None and work is not TRACED_BY_WORKER and self._session.tracing is not None:
            self._session.tracing.end(work, error)


class LeasedMessage(StoredMessage, Settleable):
    """One message that this consumer may handle until its lease ends."""

    __slots__ = ("__weakref__", "_session", "_work", "entered", "renew_at")

    _run: LeasedRun

    def __init__(self, run: LeasedRun, row: int, session: ConsumerSession[Any, Any]):
        # All slots at once, without the constructor of the base class: one of these is made per message.
        self._run = run
        self._row = row
        self.renew_at = run.renew_at
        self._session = session
        self.entered = False
        self._work = None

    @property
    def attempt(self) -> int:
        """1 on the first delivery."""
        return self._run.meta.attempt

    @property
    def receipt(self) -> str | None:
        """The handle with which the HTTP API settles this message; None if the queue delivers at most once."""
        prefix = self._run.meta.receipt
        return None if prefix is None else f"{prefix}{self.offset}"

    @property
    def settled(self) -> bool:
        """True once it was acked, nacked or rejected here, or if the queue delivers at most once."""
        return not self._run.leased or self._row in self._run.settled_rows

    @property
    def lease_lost(self) -> bool:
        """True if a renewal found the lease ended: the message is or will be delivered again, stop working on it."""
        return self._row in self._run.lost_rows

    @property
    def lease_ms(self) -> int:
        return self._run.lease_ms

    def open_spans(self) -> list[ReceiptSpan]:
        prefix = self._run.meta.receipt
        return [] if prefix is None or self.settled else [ReceiptSpan(prefix, self.offset, self.offset)]

    def spans(self) -> list[ReceiptSpan]:
        return [] if self.lease_lost else self.open_spans()

    def lost(self, spans: Sequence[ReceiptSpan]) -> None:
        self._run.lost(spans)

    def mark(self, spans: Sequence[ReceiptSpan], *, settled: bool) -> None:
        if spans:
            (self._run.settled_rows.add if settled else self._run.settled_rows.discard)(self._row)

    def _leave_done(self) -> None:
        """`_leave` without an error, as almost every block ends: on the shortest way."""
        session = self._session
        self.entered = False
        if self._work is not None:
            self._end_work(None)
        session.let_go(self)
        run, row = self._run, self._row
        prefix = run.meta.receipt
        if prefix is not None and row not in run.settled_rows:
            run.settled_rows.add(row)
            session.ack_one_soon(prefix, run.meta.offset + row)


M = TypeVar("M", bound=LeasedMessage)


class LeasedBatch(MessageSequence[M], Settleable):
    """Messages that came with one lease. Settling the batch settles those that were not settled one by one before."""

    __slots__ = ("__weakref__", "_session", "_work", "entered", "renew_at")

    _runs: list[LeasedRun]  # type: ignore[assignment]

    def __init__(self, runs: list[LeasedRun], session: ConsumerSession[Any, Any]):
        MessageSequence.__init__(self, list(runs))
        self.renew_at = min((run.renew_at for run in runs), default=0.0)
        self._session = session
        self.entered = False
        self._work = None

    @property
    def lease_ms(self) -> int:
        """The shortest lease in the batch: a batch of several queues is renewed as often as that one needs it."""
        return min((run.lease_ms for run in self._runs if run.leased), default=0)

    @property
    def settled(self) -> bool:
        return not self.open_spans()

    @property
    def lease_lost(self) -> bool:
        """True if a renewal found the lease of at least one message ended."""
        return any(run.lost_rows for run in self._runs)

    def open_spans(self) -> list[ReceiptSpan]:
        return [span for run in self._runs for span in run.spans_of(range(run.batch.count), run.settled_rows)]

    def spans(self) -> list[ReceiptSpan]:
        return [
            span
            for run in self._runs
            for span in run.spans_of(range(run.batch.count), run.settled_rows | run.lost_rows)
        ]

    def lost(self, spans: Sequence[ReceiptSpan]) -> None:
        for run, own in self._by_run(spans):
            run.lost(own)

    def mark(self, spans: Sequence[ReceiptSpan], *, settled: bool) -> None:
        for run, own in self._by_run(spans):
            (run.settle if settled else run.unsettle)(own)

    def _by_run(self, spans: Sequence[ReceiptSpan]) -> Iterator[tuple[LeasedRun, list[ReceiptSpan]]]:
        """Each run with those of the spans that concern it. A batch may have as many runs as messages."""
        by_lease: dict[str, list[ReceiptSpan]] = {}
        for span in merged(spans):
            by_lease.setdefault(span.prefix, []).append(span)
        for run in self._runs:
            of_lease = by_lease.get(run.meta.receipt or "")
            if of_lease:
                first, stop = run.meta.offset, run.meta.offset + run.batch.count
                begin, end = bisect_left(of_lease, first, key=_last_of), bisect_left(of_lease, stop, key=_first_of)
                if begin < end:
                    yield run, of_lease[begin:end]


class LeasedTransaction(Outbox):
    """Messages that are published when a message or a batch is acked."""

    __slots__ = ("_source", "result")

    def __init__(self, source: Settleable):
        super().__init__()
        self._source = source
        self.result: Transacted | None = None
        """Where the messages went, once it is done."""

    @property
    def _session(self) -> ConsumerSession[Any, Any]:
        return self._source._session


# -- with coroutines ------------------------------------------------------------------------------------------------


class SettlingCalls(Settleable):
    """The public calls that a message and a batch have in common."""

    __slots__ = ()

    async def ack(self) -> None:
        """Done: never deliver it again. Durable on return; nothing happens to what is settled already.

        Raises StaleReceipt if the lease had ended. After any other error it is unsettled still and may be acked again.
        """
        await self._settle("ack")

    async def extend(self, lease: Duration | None = None) -> None:
        """Hold it for `lease` more seconds from now (default: as long as its lease was at first).

        Raises StaleReceipt if the lease was lost.
        """
        lease_ms = self.lease_ms if lease is None else lease_milliseconds(lease)
        if spans := self.open_spans():
            await self._session.settle("extend", spans, lease_ms=lease_ms)

    def transaction(self) -> Transaction:
        """`async with message.transaction() as tx: tx.publish("out", …)`: published and acked together, or neither.

        When the block succeeds the transaction is made durable before it is left; StaleReceipt means that the lease
        was lost and nothing happened. When it raises, nothing is published and the message is nacked.
        """
        return Transaction(self)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)


class Transaction(LeasedTransaction):
    """Messages that are published in the same moment in which the message or batch that they come of is acked."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        self._source._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._source._leave(error)
            return
        try:
            self.result = await self._source._transact(self.items)
        except BaseException as problem:
            self._source._end_work(problem)
            raise
        self._source._end_work(None)


class Message(LeasedMessage, SettlingCalls):
    """A message that this consumer may handle until its lease ends.

    `async with message:` acks it when the block succeeds and nacks it with the error's text when the block raises
    (the exception goes on to you). The lease is renewed meanwhile. The ack is handed over, not waited for: it travels
    with the consumer's next call, at most milliseconds later. To wait until it is durable, `await message.ack()`.
    """

    __slots__ = ()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._leave_done()
        else:
            await self._leave(error)

    async def nack(self, *, delay: Duration | None = None, error: str = "") -> str:
        """Failed: deliver it again after `delay` seconds (default: the queue's backoff), or give it up.

        Returns "retrying", "dead_lettered", or "dropped" in a queue without dead letters. Raises like `ack`.
        """
        return _status(await self._nack(delay, error))

    async def reject(self, error: str = "") -> str:
        """Hopeless: move it to the dead letters now. Returns "dead_lettered", or "dropped" in a queue without dead
        letters. Raises like `ack`."""
        return _status(await self._reject(error))


class MessageBatch(LeasedBatch[Message], SettlingCalls):
    """Messages that were leased together: `len(batch)`, `batch[i]`, iteration, all decoded only when looked at.

    `await batch.ack()` settles all that was not settled one by one, is durable on return, and brings the next batch
    along in the same round trip. `async with batch:` acks or nacks the whole, as with a message.
    """

    __slots__ = ()

    async def nack(self, *, delay: Duration | None = None, error: str = "") -> list[Settled]:
        """Failed, all that is not settled: deliver again after `delay` seconds (default: the queue's backoff).

        Returns one entry per group of neighbours with the same outcome. Raises like `ack`.
        """
        return await self._nack(delay, error)

    async def reject(self, error: str = "") -> list[Settled]:
        """Hopeless, all that is not settled: move to the dead letters now. Returns and raises like `nack`."""
        return await self._reject(error)

    def _message(self, run: MessageRun, row: int) -> Message:
        return Message(cast(LeasedRun, run), row, self._session)


def _status(results: list[Settled]) -> str:
    return results[0].status if results else "settled"
