"""A message or batch that is settled once, by the session of its consumer.

The classes that users see add the public calls: coroutines in `consume.messages`, blocking ones in `blocking.messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from penstock import limits
from penstock.client.consume.options import lease_milliseconds
from penstock.client.consume.renewal import Holder
from penstock.client.messages.leased import LeasedBatch, LeasedMessage, LeasedRun, error_text
from penstock.client.messages.spans import Span
from penstock.client.publish.transactions import Outbox, Transacted
from penstock.client.runtime import Runtime
from penstock.client.tracing import Tracing
from penstock.client.units import milliseconds
from penstock.errors import PenstockError, StaleReceipt
from penstock.wire.delivery import Settled

TRACED_BY_WORKER = object()
"""The work on a message that a worker has begun to trace, and ends to trace."""


class SettlingSession(Protocol):
    """The session of a consumer, as its messages see it. Calls raise StaleReceipt if a lease has ended."""

    runtime: Runtime
    current: Any
    """The message or batch that the loop was given last; it is held already."""
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

    async def nack_logged(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> None: ...

    async def reject(self, spans: Sequence[Span], error: str) -> list[Settled]: ...

    async def transact(self, spans: Sequence[Span], items: Sequence[dict[str, Any]]) -> Transacted: ...

    async def extend(self, spans: Sequence[Span], lease_ms: int) -> list[Settled]: ...

    def hold(self, holder: Holder) -> None:
        """Renew the lease of this from now on."""

    def let_go(self, holder: Holder) -> None: ...


class Settling:
    """A message and a batch have this in common."""

    __slots__ = ()

    renew_at: float
    _session: SettlingSession
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
        """True inside `async with` or `with`: the lease is renewed until the block is left."""
        return self._entered

    # -- the calls ----------------------------------------------------------------------------------------------------

    async def _ack(self) -> None:
        spans = self._begin_settling()
        try:
            if spans:
                await self._session.ack(spans)
        except PenstockError as error:
            self._undo_settling(spans, error)
            raise

    async def _nack(self, delay: float | None, error: str, max_retries: int | None = None) -> list[Settled]:
        """`max_retries` is the limit of a worker, where it is lower than that of the queue."""
        delay_ms = None if delay is None else milliseconds("delay", delay, limits.DELAY_MS_MAX)
        spans = self._begin_settling()
        try:
            text = error[: limits.ERROR_CHARS_MAX]
            return await self._session.nack(spans, delay_ms, text, max_retries) if spans else []
        except PenstockError as problem:
            self._undo_settling(spans, problem)
            raise

    async def _reject(self, error: str) -> list[Settled]:
        spans = self._begin_settling()
        try:
            return await self._session.reject(spans, error[: limits.ERROR_CHARS_MAX]) if spans else []
        except PenstockError as problem:
            self._undo_settling(spans, problem)
            raise

    async def _extend(self, lease: float | None) -> None:
        lease_ms = self.lease_ms if lease is None else lease_milliseconds(lease)
        if spans := self.open_spans():
            await self._session.extend(spans, lease_ms)

    async def _transact(self, items: list[dict[str, Any]]) -> Transacted:
        self._entered = False  # type: ignore[misc]  # a slot of the subclasses
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
        self._entered = True  # type: ignore[misc]
        if self._session.current is not self:
            self._session.hold(self)
        if self._session.tracing is not None:
            self._begin_work()

    async def _leave(self, error: BaseException | None) -> None:
        """A block ends: ack if it succeeded, nack if it raised."""
        self._entered = False  # type: ignore[misc]
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

    def _begin_settling(self) -> list[Span]:
        """The messages to settle, marked as settled before the call, so that they are not settled twice meanwhile."""
        spans = self.open_spans()
        self.mark(spans, settled=True)
        self._session.let_go(self)
        return spans

    def _undo_settling(self, spans: list[Span], error: PenstockError) -> None:
        if not isinstance(error, StaleReceipt):
            self.mark(spans, settled=False)

    # -- tracing ----------------------------------------------------------------------------------------------------

    def _begin_work(self) -> None:
        """A block has begun."""
        if self._session.tracing is not None and getattr(self, "_work", None) is not TRACED_BY_WORKER:
            self._work = self._session.tracing.begin(self._session.group, self)  # type: ignore[misc, arg-type]

    def _end_work(self, error: BaseException | None) -> None:
        if (work := self._traced_work()) is not None:
            self._work = None  # type: ignore[misc]
            self._session.tracing.end(work, error)  # type: ignore[union-attr]

    def _fail_work(self, error: BaseException) -> None:
        """The block fails, and the exception will not leave it."""
        if (work := self._traced_work()) is not None:
            self._session.tracing.fail(work, error)  # type: ignore[union-attr]

    def _traced_work(self) -> object | None:
        work = getattr(self, "_work", None) if self._session.tracing is not None else None
        return None if work is TRACED_BY_WORKER else work


class SettlingMessage(LeasedMessage, Settling):
    __slots__ = ("_entered", "_session", "_work")

    def __init__(self, run: LeasedRun, row: int, session: SettlingSession):
        # All slots at once, without the constructors of the base classes: one of these is made per message.
        self._run = run
        self._row = row
        self.renew_at = run.renew_at
        self._session = session
        self._entered = False

    def _leave_done(self) -> None:
        """`_leave` without an error, as almost every block ends: on the shortest way."""
        session = self._session
        self._entered = False
        if session.tracing is not None:
            self._end_work(None)
        session.let_go(self)
        run, row = self._run, self._row
        prefix = run.meta.receipt
        if prefix is not None and row not in run.settled_rows:
            run.settled_rows.add(row)
            session.ack_one_soon(prefix, run.meta.offset + row)


M = TypeVar("M", bound=SettlingMessage)


class SettlingBatch(LeasedBatch[M], Settling):
    __slots__ = ("_entered", "_session", "_work")

    def __init__(self, runs: list[LeasedRun], session: SettlingSession):
        LeasedBatch.__init__(self, runs)
        self._session = session
        self._entered = False


class SettlingTransaction(Outbox):
    __slots__ = ("_source", "result")

    def __init__(self, source: Settling):
        super().__init__()
        self._source = source
        self.result: Transacted | None = None
        """Where the messages went, once it is done."""

    @property
    def _session(self) -> SettlingSession:
        return self._source._session
