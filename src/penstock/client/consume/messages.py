"""What a consumer of the asyncio shell hands out: messages and batches that can be settled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self, cast

from penstock import limits
from penstock.client.messages.leased import LeasedBatch, LeasedMessage, LeasedRun, error_text
from penstock.client.messages.spans import Holder, Span
from penstock.client.messages.stored import DeliveredRun
from penstock.client.publish.frames import milliseconds
from penstock.client.publish.transactions import Outbox, Transacted
from penstock.client.tracing import Tracing
from penstock.errors import PenstockError, StaleReceipt
from penstock.wire.delivery import Settled


class Desk(Protocol):
    """Where messages are settled: the consumer's session. Every method raises StaleReceipt for lost messages."""

    current: Any
    """What the loop is at, and therefore held already."""
    tracing: Tracing | None

    @property
    def group(self) -> str: ...

    async def ack(self, spans: Sequence[Span]) -> None:
        """Returns when the ack is durable."""

    def ack_one_soon(self, prefix: str, offset: int) -> None:
        """`ack_soon` for the message with this receipt."""

    def ack_soon(self, spans: Sequence[Span]) -> None:
        """Send the ack with the next call or within milliseconds, whichever comes first; failures are logged."""

    async def nack(
        self, spans: Sequence[Span], delay_ms: int | None, error: str, max_retries: int | None = None
    ) -> list[Settled]: ...

    async def nack_quietly(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> None:
        """For someone who has a more important exception at hand: waits for the answer, logs failures."""

    async def reject(self, spans: Sequence[Span], error: str) -> list[Settled]: ...

    async def transact(self, spans: Sequence[Span], items: Sequence[dict[str, Any]]) -> Transacted: ...

    async def extend(self, spans: Sequence[Span], lease_ms: int) -> list[Settled]: ...

    def hold(self, holder: Holder) -> None:
        """Keep the lease of this alive from now on."""

    def let_go(self, holder: Holder) -> None: ...


class _Settling:
    """What a message and a batch have in common: they are settled once, and `async with` does it for you."""

    __slots__ = ()

    renew_at: float
    _desk: Desk
    _entered: bool
    _work: object

    @property
    def lease_ms(self) -> int:
        raise NotImplementedError

    def open_spans(self) -> list[Span]:
        raise NotImplementedError

    def spans(self) -> list[Span]:
        raise NotImplementedError

    def lost(self, spans: Sequence[Span]) -> None:
        raise NotImplementedError

    def mark(self, spans: Sequence[Span], *, settled: bool) -> None:
        raise NotImplementedError

    @property
    def entered(self) -> bool:
        """True inside `async with`: the lease is kept alive until the block is left."""
        return self._entered

    async def ack(self) -> None:
        """Done: never deliver it again. Durable on return; nothing happens to what is settled already.

        Raises StaleReceipt if the lease had ended. After any other error it is unsettled still and may be acked again.
        """
        spans = self._begin()
        try:
            if spans:
                await self._desk.ack(spans)
        except PenstockError as error:
            self._undo(spans, error)
            raise

    async def _nack(self, delay: float | None, error: str, max_retries: int | None = None) -> list[Settled]:
        delay_ms = None if delay is None else milliseconds("delay", delay, limits.DELAY_MS_MAX)
        spans = self._begin()
        try:
            return await self._desk.nack(spans, delay_ms, error[: limits.ERROR_CHARS_MAX], max_retries) if spans else []
        except PenstockError as problem:
            self._undo(spans, problem)
            raise

    async def _reject(self, error: str) -> list[Settled]:
        spans = self._begin()
        try:
            return await self._desk.reject(spans, error[: limits.ERROR_CHARS_MAX]) if spans else []
        except PenstockError as problem:
            self._undo(spans, problem)
            raise

    async def extend(self, lease: float | None = None) -> None:
        """Hold it for `lease` more seconds from now (default: as long as its lease was at first).

        Raises StaleReceipt if the lease was lost.
        """
        if lease is not None:
            lease_ms = milliseconds("lease", lease, limits.LEASE_MS_MAX, limits.LEASE_MS_MIN)
        else:
            lease_ms = self.lease_ms
        if spans := self.open_spans():
            await self._desk.extend(spans, lease_ms)

    def transaction(self) -> Transaction:
        """`async with message.transaction() as tx: tx.publish("out", …)`: published and acked together, or neither.

        When the block succeeds the transaction is made durable before it is left; StaleReceipt means that the lease
        was lost and nothing happened. When it raises, nothing is published and the message is nacked.
        """
        return Transaction(self)

    async def _transact(self, items: list[dict[str, Any]]) -> Transacted:
        self._entered = False  # type: ignore[misc]
        spans = self._begin()
        try:
            return await self._desk.transact(spans, items)
        except StaleReceipt:
            raise
        except PenstockError as error:
            # Refused, or nobody knows. If it did happen, this finds a stale receipt and changes nothing.
            await self._desk.nack_quietly(spans, None, error_text(error))
            raise

    async def __aenter__(self) -> Self:
        self._entered = True  # type: ignore[misc]  # a slot of the subclasses
        self._desk.hold(self)
        self._begin_work()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False  # type: ignore[misc]
        self._end_work(error)
        spans = self._begin()
        if not spans:
            return
        if error is None:
            self._desk.ack_soon(spans)
        elif isinstance(error, asyncio.CancelledError):
            # The handler did not fail, it was stopped: somebody else may have the message at once.
            await self._desk.nack_quietly(spans, 0, "the handler was cancelled")
        else:
            await self._desk.nack_quietly(spans, None, error_text(error))

    def _begin_work(self) -> None:
        """Tell whoever traces that a block has begun."""
        if self._desk.tracing is not None:
            self._work = self._desk.tracing.begin(self._desk.group, self)  # type: ignore[misc, arg-type]

    def _end_work(self, error: BaseException | None) -> None:
        if self._desk.tracing is not None and (work := getattr(self, "_work", None)) is not None:
            self._work = None  # type: ignore[misc]
            self._desk.tracing.end(work, error)

    def _failed_with(self, error: BaseException) -> None:
        """For whoever handles an exception inside the block: those who trace should know of it."""
        if self._desk.tracing is not None and (work := getattr(self, "_work", None)) is not None:
            self._desk.tracing.fail(work, error)

    def _begin(self) -> list[Span]:
        """What there is to settle; noted as settled before the call, so that nobody settles it twice meanwhile."""
        spans = self.open_spans()
        self.mark(spans, settled=True)
        self._desk.let_go(self)
        return spans

    def _undo(self, spans: list[Span], error: PenstockError) -> None:
        if not isinstance(error, StaleReceipt):
            self.mark(spans, settled=False)


class Transaction(Outbox):
    """What comes of a message or a batch, published in the same moment in which that is acked."""

    __slots__ = ("_source", "result")

    def __init__(self, source: _Settling):
        super().__init__()
        self._source = source
        self.result: Transacted | None = None
        """Where the messages went, once it is done."""

    async def __aenter__(self) -> Self:
        await self._source.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._source.__aexit__(kind, error, traceback)
            return
        try:
            self.result = await self._source._transact(self.items)
        except BaseException as problem:
            self._source._end_work(problem)
            raise
        self._source._end_work(None)


class Message(LeasedMessage, _Settling):
    """A message that this consumer may handle until its lease ends.

    `async with message:` acks it when the block succeeds and nacks it with the error's text when the block raises
    (the exception goes on to you). The lease is renewed meanwhile. The ack is handed over, not waited for: it travels
    with the consumer's next call, at most milliseconds later. To wait until it is durable, `await message.ack()`.
    """

    __slots__ = ("_desk", "_entered", "_work")

    def __init__(self, run: LeasedRun, row: int, desk: Desk):
        # All slots at once, without the constructors of the base classes: one of these is made per message.
        self._run = run
        self._row = row
        self.renew_at = run.renew_at
        self._desk = desk
        self._entered = False

    async def __aenter__(self) -> Self:
        self._entered = True
        if self._desk.current is not self:
            self._desk.hold(self)
        if self._desk.tracing is not None:
            self._begin_work()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            await super().__aexit__(kind, error, traceback)
            return
        # What happens to almost every message, on the shortest way.
        self._entered = False
        if self._desk.tracing is not None:
            self._end_work(None)
        self._desk.let_go(self)
        run, row = self._run, self._row
        prefix = run.meta.receipt
        if prefix is not None and row not in run.settled_rows:
            run.settled_rows.add(row)
            self._desk.ack_one_soon(prefix, run.meta.offset + row)

    async def nack(self, *, delay: float | None = None, error: str = "") -> str:
        """Failed: deliver it again after `delay` seconds (default: the queue's backoff), or give it up.

        Returns "retrying" or "dead_lettered". Raises like `ack`.
        """
        return _status(await self._nack(delay, error))

    async def reject(self, error: str = "") -> str:
        """Hopeless: move it to the dead letters now. Returns "dead_lettered". Raises like `ack`."""
        return _status(await self._reject(error))


class MessageBatch(LeasedBatch[Message], _Settling):
    """Messages that were leased together: `len(batch)`, `batch[i]`, iteration, all decoded only when looked at.

    `await batch.ack()` settles all that was not settled one by one, is durable on return, and brings the next batch
    along in the same round trip. `async with batch:` acks or nacks the whole, as with a message.
    """

    __slots__ = ("_desk", "_entered", "_work")

    def __init__(self, runs: list[LeasedRun], desk: Desk):
        LeasedBatch.__init__(self, runs)
        self._desk = desk
        self._entered = False

    async def nack(self, *, delay: float | None = None, error: str = "") -> list[Settled]:
        """Failed, all that is not settled: deliver again after `delay` seconds (default: the queue's backoff).

        Returns one entry per group of neighbours with the same outcome. Raises like `ack`.
        """
        return await self._nack(delay, error)

    async def reject(self, error: str = "") -> list[Settled]:
        """Hopeless, all that is not settled: move to the dead letters now. Returns and raises like `nack`."""
        return await self._reject(error)

    def _message(self, run: DeliveredRun, row: int) -> Message:
        return Message(cast(LeasedRun, run), row, self._desk)


def _status(results: list[Settled]) -> str:
    return results[0].status if results else "settled"
