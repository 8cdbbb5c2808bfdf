"""Consuming without asyncio: the same rules as in `_consumer.py`, in the caller's own thread.

The buffer is refilled when it is empty, and that call carries the acks of what came before: one round trip per batch.
What cannot wait for the caller is done by one helper thread per consumer: it renews leases and sends acks that nobody
waits for when the next lease call is not near. It starts with the first message and ends with the consumer.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Self

from penstock import limits
from penstock.client.blocking.attendance import Attendance
from penstock.client.blocking.carrier import Carrier
from penstock.client.blocking.messages import Message, MessageBatch
from penstock.client.calls import api as calls
from penstock.client.consume.options import ACK_LINGER_S, RELEASE_WITHIN_S, Terms, lost_in, receipts_of
from penstock.client.messages.leased import LeasedRun
from penstock.client.messages.spans import (
    AckBatch,
    DueRenewal,
    Holder,
    LeaseKeeper,
    PendingAcks,
    Span,
    common,
    renew_at,
    stale_error,
)
from penstock.client.publish.transactions import Transacted
from penstock.client.tracing import settling
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

log = logging.getLogger("penstock.client")


class Session:
    """Everything that one consumer holds.

    `_lock` guards the buffer, the pending acks, the keeper and the times of the helper; it is never held during a call.
    `_fetch_lock` lets one thread at a time ask for messages.
    """

    def __init__(self, carrier: Carrier, terms: Terms):
        self._carrier = carrier
        self._terms = terms
        self.tracing = carrier.tracing
        self._ready: deque[LeasedRun] = deque()
        self._ready_count = 0
        self._current: Message | MessageBatch | None = None
        self._handed_out = 0
        self._fetch_lock = threading.Lock()
        self._lock = threading.Condition()
        self._acks: PendingAcks[None] = PendingAcks()
        self._keeper = LeaseKeeper()
        self._flush_at: float | None = None
        self._helper: threading.Thread | None = None
        self._helper_until = 0.0
        """When the helper looks around next; it need not be woken for anything that is due later."""
        seat = terms.new_seat()
        self._attendance = None if seat is None else Attendance(carrier, seat, self._drop)
        self._error: PenstockError | None = None
        self._closed = False
        self._stopped = False

    # -- out of the buffer ------------------------------------------------------------------------------------

    def next_message(self) -> Message | None:
        """The next message, or None if none came for as long as the terms allow."""
        self._move_on()
        while self._ready or self._fill():
            with self._lock:
                if not self._ready:
                    continue  # its partition has moved on just now
                run = self._ready[0]
                row = run.next_row
                # Somebody's Ctrl-C may come between any two lines: what leaves the buffer is known as handed out.
                message = self._current = Message(run, row, self)
                run.next_row += 1
                self._ready_count -= 1
                if run.next_row == run.batch.count:
                    self._ready.popleft()
                    self._keeper.remove(run)
            if row not in run.lost_rows:
                self._hand_out(message)
                return message
            self._current = None
        return None

    def next_batch(self) -> MessageBatch | None:
        """All that the buffer has, or None if nothing came for as long as the terms allow."""
        self._move_on()
        while self._ready or self._fill():
            runs = self._empty()
            if runs := [run for run in runs if not run.lost_rows]:
                batch = MessageBatch(runs, self)
                self._hand_out(batch)
                return batch
        return None

    def _empty(self) -> list[LeasedRun]:
        """All that the buffer has."""
        with self._lock:
            runs = list(self._ready)
            self._ready.clear()
            self._ready_count = 0
            for run in runs:
                self._keeper.remove(run)
        return runs

    def _hand_out(self, current: Message | MessageBatch) -> None:
        self._current = current
        self._handed_out += 1
        self.hold(current)

    def _move_on(self) -> None:
        if self._current is not None and not self._current.entered:
            self.let_go(self._current)
        self._current = None

    # -- into the buffer --------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Wait for messages. False if none came in time; raises what a call in the background failed with."""
        since = time.monotonic()
        while not self._closed:
            with self._lock:
                error, self._error = self._error, None
            if error is not None:
                raise error
            with self._fetch_lock:
                if not self._ready:
                    self._fetch([], self._terms.poll_s(time.monotonic() - since))
            if self._ready:
                return True
            if self._terms.is_over(time.monotonic() - since):
                break
        return False

    def _fetch(self, spans: Sequence[Span], wait_s: float) -> list[Span]:
        """Lease more and ack `spans` on the way; returns what of them was lost. Needs `_fetch_lock`.

        A call that carries acks does not wait at the server: they are answered within one round trip.
        """
        if self._attendance is not None:
            self._attend(self._attendance)
        with self._soon(spans) as acks:
            retry = self._carrier.new_retry()
            wait_ms = 0 if acks.receipts else round(wait_s * 1000)
            seat = self._attendance.seat if self._attendance is not None else None
            call = self._terms.lease(self._terms.size - self._ready_count, wait_ms, acks.receipts, seat)
            began_ns = time.time_ns()
            try:
                with self._watched("ack", acks.spans, alone=True):
                    leased = self._carrier.request(call, retry)
            except PenstockError as error:
                # A call that carries acks is not refused for the sake of its lease.
                if acks.receipts or self._attendance is None or not self._attendance.put_out(error):
                    raise
                return []
            acks.lost = lost_in(leased.results, retry)
        if self.tracing is not None and leased.runs:
            self.tracing.received(self._terms.queue, self._terms.group, began_ns, leased.runs)
        now = time.monotonic()
        with self._lock:
            for run in leased.runs:
                run.renew_at = renew_at(now, run.lease_ms)
                self._ready.append(run)
                self._ready_count += run.batch.count
                if run.leased:
                    self.hold(run)
        if self._closed:
            self._give_back(self._empty())
        elif self._attendance is not None:
            # What came of partitions that were lost meanwhile goes back; what is new is heard now.
            self._drop({run.meta.partition for run in leased.runs} - set(self._attendance.seat.partitions))
            self._attendance.catch_up(leased.generation)
        return acks.lost

    # -- partitions that come and go --------------------------------------------------------------------------

    def _attend(self, attendance: Attendance) -> None:
        """Be a member, with the helper to stay one."""
        attendance.ensure()
        if attendance.beat_at is not None:
            with self._lock:
                self._wake_helper(attendance.beat_at)

    def _drop(self, partitions: Collection[int]) -> None:
        """These are no longer ours: what was not handed out goes to the next owner, without counting as an attempt."""
        with self._lock:
            gone = [run for run in self._ready if run.leased and run.meta.partition in partitions]
            self._ready = deque(run for run in self._ready if run not in gone)
            self._ready_count -= sum(run.batch.count - run.next_row for run in gone)
            for run in gone:
                self._keeper.remove(run)
        self._give_back(gone)

    # -- acks -------------------------------------------------------------------------------------------------

    def ack(self, spans: Sequence[Span]) -> None:
        """Returns when the ack is durable; raises StaleReceipt for messages that were no longer leased."""
        # With an empty buffer the same round trip can bring the next messages, unless another thread is at it. Not the
        # first one: who takes one batch and leaves shall not have leased another.
        seated = self._attendance is None or self._attendance.seat.joined
        more = seated and self._handed_out > 1 and not self._ready and not self._closed
        if more and self._fetch_lock.acquire(blocking=False):
            try:
                lost = self._fetch(spans, 0.0)
            finally:
                self._fetch_lock.release()
        else:
            lost = self._flush(spans)
        if gone := common(spans, lost):
            raise stale_error(gone, sum(span.size for span in spans))

    def ack_soon(self, spans: Sequence[Span]) -> None:
        """Send the ack with the next call or within milliseconds, whichever comes first; failures are logged."""
        with self._lock:
            self._acks.add(spans, None)
            if self._flush_at is None:
                self._flush_at = time.monotonic() + ACK_LINGER_S
                self._wake_helper(self._flush_at)

    def _flush(self, spans: Sequence[Span] = ()) -> list[Span]:
        """Ack `spans` and what is pending; returns what was lost."""
        with self._soon(spans) as acks:
            if acks.receipts:
                retry = self._carrier.new_retry()
                with self._watched("ack", acks.spans, alone=not spans):
                    acks.lost = lost_in(self._carrier.request(calls.ack(acks.receipts), retry), retry)
        return acks.lost

    @contextmanager
    def _soon(self, spans: Sequence[Span]) -> Iterator[_Acks]:
        """Pending acks that travel with `spans`; they go back if the call fails. What is lost of them is logged."""
        with self._lock:
            taken = self._acks.take() if self._acks else None
            self._flush_at = None
        if taken is not None and len(taken.receipts) + len(spans) > limits.RECEIPTS_MAX:
            self._put_back(taken)
            taken = None
        acks = _Acks(
            [*receipts_of(spans), *(taken.receipts if taken else ())], [*spans, *(taken.spans if taken else ())]
        )
        try:
            yield acks
        except BaseException:
            if taken is not None:
                self._put_back(taken)
            raise
        for pending, _ in taken.entries if taken else ():
            if gone := common(pending, acks.lost):
                log.warning("%s: %s", self._terms.queue, stale_error(gone, sum(span.size for span in pending)))

    def _put_back(self, acks: AckBatch[None]) -> None:
        with self._lock:
            for spans, waiter in acks.entries:
                self._acks.add(spans, waiter)
            self._flush_at = time.monotonic() + ACK_LINGER_S

    # -- other settlements ------------------------------------------------------------------------------------

    def nack(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> list[Settled]:
        with self._watched("nack", spans):
            return self._settle(calls.nack(receipts_of(spans), delay_ms=delay_ms, error=error), spans)

    def reject(self, spans: Sequence[Span], error: str) -> list[Settled]:
        with self._watched("reject", spans):
            return self._settle(calls.reject(receipts_of(spans), error=error), spans)

    def transact(self, spans: Sequence[Span], items: Sequence[dict[str, Any]]) -> Transacted:
        with self._watched("transact", spans):
            return self._carrier.transact(receipts_of(spans), items)

    def extend(self, spans: Sequence[Span], lease_ms: int) -> list[Settled]:
        return self._settle(calls.extend(receipts_of(spans), lease_ms=lease_ms), spans)

    def nack_quietly(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> None:
        """For someone who has a more important exception at hand: failures are logged."""
        try:
            self.nack(spans, delay_ms, error)
        except PenstockError as problem:
            log.warning("%s: nack failed: %s", self._terms.queue, problem)

    def _watched(self, verb: str, spans: Sequence[Span], *, alone: bool = False) -> AbstractContextManager[object]:
        return settling(self.tracing, verb, self._terms.queue, self._terms.group, spans, alone=alone)

    def _settle(self, call: calls.Call[list[Settled]], spans: Sequence[Span]) -> list[Settled]:
        retry = self._carrier.new_retry()
        results = self._carrier.request(call, retry)
        if lost := lost_in(results, retry):
            raise stale_error(lost, sum(span.size for span in spans))
        return results

    # -- the helper -------------------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        return self._terms.group

    def hold(self, holder: Holder) -> None:
        """Keep the lease of this alive from now on."""
        with self._lock:
            self._keeper.add(holder)
            self._wake_helper(holder.renew_at)

    def let_go(self, holder: Holder) -> None:
        with self._lock:
            self._keeper.remove(holder)

    def _wake_helper(self, at: float) -> None:
        """Make sure that the helper looks around at this time. Needs `_lock`."""
        if self._helper is None:
            self._helper = threading.Thread(target=self._help, name=f"penstock {self._terms.queue}", daemon=True)
            self._helper_until = at
            self._helper.start()
        elif at < self._helper_until:
            self._lock.notify()

    def _help(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                renew_at = self._keeper.next_at()
                beat_at = self._attendance.beat_at if self._attendance is not None and not self._closed else None
                times = [at for at in (self._flush_at, renew_at, beat_at) if at is not None]
                if self._stopped or (self._closed and not times):
                    self._helper = None
                    return
                self._helper_until = min(times, default=math.inf)
                if self._helper_until > now:
                    self._lock.wait(min(self._helper_until - now, threading.TIMEOUT_MAX))
                    continue
                flush = self._flush_at is not None and self._flush_at <= now
                renew = renew_at is not None and renew_at <= now
                renewals = self._keeper.due(now) if renew else []
                beat = beat_at is not None and beat_at <= now
            if flush:
                self._flush_quietly()
            for due in renewals:
                self._renew(due, now)
            if beat and self._attendance is not None:
                self._attendance.beat_quietly()

    def _flush_quietly(self) -> None:
        try:
            self._flush()
        except PenstockError as error:
            log.warning("%s: ack failed: %s", self._terms.queue, error)
            with self._lock:
                self._flush_at = None  # the next lease call takes them along, or raises this
                self._error = error

    def _renew(self, due: DueRenewal, now: float) -> None:
        results: list[Settled] = []
        try:
            for at in range(0, len(due.spans), limits.RECEIPTS_MAX):
                receipts = receipts_of(due.spans[at : at + limits.RECEIPTS_MAX])
                results += self._carrier.request(calls.extend(receipts, lease_ms=due.lease_ms))
        except PenstockError as error:
            log.warning("%s: renewal of %d leases failed: %s", self._terms.queue, len(due.holders), error)
            with self._lock:
                self._keeper.not_renewed(due, time.monotonic())
        else:
            with self._lock:
                self._keeper.renewed(due, now, results)

    # -- the end ----------------------------------------------------------------------------------------------

    def close(self, *, interrupted: bool = False) -> None:
        """Give back what was not handed out, send every ack, then return. What is being handled stays leased, and may
        be settled later: calling this again sends that. Unless the loop was interrupted: then what it had not begun,
        with a `with`, goes back as well."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            current = self._current
            self._move_on()
            if interrupted and current is not None and not current.entered:
                self._give_back([*self._empty(), current])
            else:
                self._give_back(self._empty())
        try:
            self._flush()
        except PenstockError as error:
            log.warning("%s: ack failed: %s", self._terms.queue, error)
        if not first:
            return
        if self._attendance is not None:
            self._attendance.leave()
        with self._lock:
            self._lock.notify()

    def stop(self) -> None:
        """No more calls: the client goes away. After `close`."""
        with self._lock:
            self._stopped = True
            self._lock.notify()

    def _give_back(self, held: Sequence[LeasedRun | Message | MessageBatch]) -> None:
        if spans := [
            span for each in held for span in (each.spans() if isinstance(each, LeasedRun) else each.open_spans())
        ]:
            try:
                self._carrier.request(
                    calls.release(receipts_of(spans)), self._carrier.new_retry(within_s=RELEASE_WITHIN_S)
                )
            except PenstockError as error:
                log.warning("%s: could not give back what was leased ahead: %s", self._terms.queue, error)


class _Acks:
    """Acks of one call and what became of them."""

    __slots__ = ("lost", "receipts", "spans")

    def __init__(self, receipts: list[str], spans: list[Span]):
        self.receipts = receipts
        self.spans = spans
        self.lost: list[Span] = []


class _Iterator:
    """What the two iterators share. Leaving the loop early closes the session as soon as the iterator is dropped."""

    def __init__(self, session: Session):
        self._session = session

    def close(self) -> None:
        """Stop: messages that were not handed out go back to the queue, and every ack is sent before this returns.

        What goes back is there for others at once, and does not count as attempted.
        """
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.close(interrupted=isinstance(error, KeyboardInterrupt | SystemExit))

    def __iter__(self) -> Self:
        return self

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._session.close()


class Consumer(_Iterator):
    """Iterator of messages; made by `Queue.consume`."""

    def __next__(self) -> Message:
        try:
            message = self._session.next_message()
        except PenstockError:
            self._session.close()
            raise
        if message is None:
            self._session.close()
            raise StopIteration
        return message


class BatchConsumer(_Iterator):
    """Iterator of batches; made by `Queue.consume_batches`."""

    def __next__(self) -> MessageBatch:
        try:
            batch = self._session.next_batch()
        except PenstockError:
            self._session.close()
            raise
        if batch is None:
            self._session.close()
            raise StopIteration
        return batch
