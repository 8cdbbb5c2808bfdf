"""Consuming with asyncio: a buffer that is refilled ahead of need, acks that ride along, leases that do not run out.

One `Session` per consumer does the work; `Consumer` and `BatchConsumer` are the iterators around it. The rules:

- A lease call that carries acks never waits at the server, so an ack is answered within one round trip; only when
  there is nothing to carry does the call become a long poll. A busy consumer's loop is thus one call per batch.
- An awaited ack is sent at once. Acks that are handed over (`async with`) wait for the next lease call, but not longer
  than `ACK_LINGER_S`. What finishes while a call is under way shares the next one.
- Who has emptied the buffer while such a call is under way sends the next one behind it, if there is room for what both
  may bring: server and client then work at the same time instead of waiting for each other in turns. Both travel on one
  connection, so that the first is handled first and messages come in their order.
- Batches are leased one by one as they are asked for, or ahead for who is quick: while one is handled the next is on
  its way, and carries the acks of the one before.
- The lease of a message is kept alive while it waits in the buffer, while it is the one that the loop is at, and
  inside `async with`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from penstock.client.calls import api as calls
from penstock.client.consume.acks import Acks, AckSender
from penstock.client.consume.attendance import Attendance
from penstock.client.consume.messages import Message, MessageBatch
from penstock.client.consume.options import RELEASE_WITHIN_S, Terms, lost_in, receipts_of
from penstock.client.consume.renewal import Renewal
from penstock.client.messages.leased import LeasedRun
from penstock.client.messages.spans import Span, renew_at, stale_error
from penstock.client.publish.transactions import Transacted
from penstock.client.tracing import settling
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.retry import Retry
from penstock.eager import Finished, begin, rest_of
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

CLOSE_GRACE_S = 0.05
"""How long a closing consumer waits for a long poll whose answer may be on its way."""

AHEAD_WITHIN_S = 0.05
"""Who handles batches faster than this, and hands their acks over, gets the next ones leased while they handle one."""

log = logging.getLogger("penstock.client")


class _Fetch:
    """A lease call that is under way."""

    __slots__ = ("behind", "call", "failed", "most", "retry", "task")

    def __init__(self, call: calls.Call[calls.Leased], most: int, retry: Retry, behind: _Fetch | None):
        self.call = call
        self.behind = behind
        """The one that it was sent behind, if it was."""
        self.failed = asyncio.Event()
        """Its first attempt has."""
        self.most = most
        """Messages that it may bring."""
        self.retry = retry
        self.task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> bool:
        """True for a long poll."""
        return self.call.wait_ms > 0

    async def over(self) -> None:
        if self.task is not None:
            await asyncio.wait({self.task})


class Session:
    """Everything that one consumer holds. Lives until `aclose`, also when its iterator is gone."""

    def __init__(self, carrier: Carrier, terms: Terms, *, low_water: int):
        """Refills in the background when no more than `low_water` messages are left; -1: only when asked."""
        self._carrier = carrier
        self._terms = terms
        self.tracing = carrier.tracing
        self._low_water = low_water
        self._loop = asyncio.get_running_loop()
        self._ready: deque[LeasedRun] = deque()
        self._ready_count = 0
        self.current: Message | MessageBatch | None = None
        """What the loop is at. Its lease is kept alive."""
        self._handed_out = 0
        self._handed_at = 0.0
        self._is_quick = False
        """The last batch was handled so fast that the next one might as well have been here already."""
        self._acks = AckSender(carrier, terms)
        # Called for every message: handed on as they are.
        self.ack_one_soon, self.ack_soon = self._acks.one_soon, self._acks.soon
        self._renewal = Renewal(carrier, terms)
        self.hold, self.let_go = self._renewal.hold, self._renewal.let_go
        self._fetches: list[_Fetch] = []
        """Under way, at most two, the second behind the first."""
        self._settling: set[asyncio.Task[list[Settled]]] = set()
        seat = terms.new_seat()
        self._attendance = None if seat is None else Attendance(carrier, seat, self._drop)
        self._error: PenstockError | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def group(self) -> str:
        return self._terms.group

    # -- out of the buffer ------------------------------------------------------------------------------------

    def take_message(self) -> Message | None:
        """The next message that is here already, or None if the buffer is empty.

        This is what a loop costs per message, so it calls as little as it can.
        """
        if self.current is not None:
            self._move_on()
        while self._ready and self._closing is None:
            run = self._ready[0]
            row = run.next_row
            run.next_row = row + 1
            self._ready_count -= 1
            if row + 1 == run.batch.count:
                self._ready.popleft()
                self.let_go(run)
            if self._ready_count <= self._low_water and not self._fetches:
                self._start_fetch(self._terms.poll_s())
            if row not in run.lost_rows:
                self.current = message = Message(run, row, self)
                self._handed_out += 1
                self.hold(message)
                return message
        return None

    async def next_message(self) -> Message | None:
        """The next message, or None if none came for as long as the terms allow."""
        while (message := self.take_message()) is None:
            if not await self._fill():
                return None
        return message

    async def next_batch(self) -> MessageBatch | None:
        """What the buffer has, up to a whole batch, or None if nothing came for as long as the terms allow."""
        if self.current is not None:
            self._is_quick = self._acks.hands_over and self._loop.time() - self._handed_at < AHEAD_WITHIN_S
        self._move_on()
        while (self._ready and self._closing is None) or await self._fill():
            runs = [self._ready.popleft()]
            count = runs[0].batch.count
            while self._ready and count + self._ready[0].batch.count <= self._terms.size:
                count += self._ready[0].batch.count
                runs.append(self._ready.popleft())
            self._ready_count -= count
            for run in runs:
                self.let_go(run)
            if runs := [run for run in runs if not run.lost_rows]:
                batch = MessageBatch(runs, self)
                self._hand_out(batch)
                if self._is_quick and self._terms.size > 1 and not self._fetches and self._closing is None:
                    self._start_fetch(self._terms.poll_s())
                return batch
        return None

    def _hand_out(self, current: Message | MessageBatch) -> None:
        self.current = current
        self._handed_at = self._loop.time()
        self._handed_out += 1
        self.hold(current)

    def _move_on(self) -> None:
        """The loop is no longer at what it was given last; that keeps its lease only inside `async with`."""
        if self.current is not None and not self.current.entered:
            self.let_go(self.current)
        self.current = None

    # -- into the buffer --------------------------------------------------------------------------------------

    async def _fill(self) -> bool:
        """Wait for messages. False if none came in time; raises what the last lease call failed with."""
        since = self._loop.time()
        while self._closing is None:
            if not self._fetches:
                self._start_fetch(self._terms.poll_s(self._loop.time() - since))
            elif self._may_follow(self._fetches[0]):
                self._start_fetch(0.0, behind=self._fetches[0])
            if self._fetches:
                await self._fetches[0].over()
            if self._ready:
                return True
            if (error := self._error or self._acks.unheard) is not None:
                self._error = self._acks.unheard = None
                raise error
            if self._terms.is_over(self._loop.time() - since):
                break
        return False

    def _may_follow(self, first: _Fetch) -> bool:
        """True if another call had better not wait for this one's answer. It has acks to carry, so it never waits."""
        return (
            len(self._fetches) == 1
            and self._room() > 0
            and bool(self._acks)
            and not first.waits
            and self._attendance is None
            and self.tracing is None
            and self._carrier.can_follow(first.call)
        )

    def _room(self) -> int:
        """How many messages another call may bring. Batches come whole: who is quick has up to two of them ahead."""
        if self._is_quick:
            return self._terms.size
        return self._terms.size - self._ready_count - sum(fetch.most for fetch in self._fetches)

    def _start_fetch(self, wait_s: float, *, behind: _Fetch | None = None) -> None:
        acks = self._acks.take()
        wait_ms = round(wait_s * 1000) if acks is None and wait_s > 0 else 0
        room = self._room()
        fetch = _Fetch(self._lease(room, wait_ms, acks), room, self._carrier.new_retry(), behind)
        self._fetches.append(fetch)
        work, name = self._fetch(fetch, acks), f"penstock lease {self._terms.queue}"
        if self._attendance is None and self.tracing is None and (behind is not None or self._carrier.sends_at_once):
            # On its way before this returns. A task would begin when the caller next waits, which a loop that finds
            # its messages in the buffer does not do before the buffer is empty.
            begun = begin(work)
            if isinstance(begun, Finished):
                return
            fetch.task = self._loop.create_task(rest_of(begun), name=name)
            fetch.task.add_done_callback(lambda _: begun.abandon())
        else:
            fetch.task = self._loop.create_task(work, name=name)
        self._acks.flush()  # in case there were more than one call can carry

    def _lease(self, most: int, wait_ms: int, acks: Acks | None) -> calls.Call[calls.Leased]:
        seat = self._attendance.seat if self._attendance is not None else None
        return self._terms.lease(most, wait_ms, acks.receipts if acks else (), seat)

    async def _turn(self, fetch: _Fetch) -> None:
        """Before a call is repeated: the other one that is under way comes first, so that messages keep their order.

        Of two that failed it is the first one's turn.
        """
        fetch.failed.set()
        if fetch.behind is not None:
            await fetch.behind.over()
        elif len(self._fetches) > 1 and (second := self._fetches[1]).task is not None:
            failed = asyncio.ensure_future(second.failed.wait())
            await asyncio.wait({second.task, failed}, return_when=asyncio.FIRST_COMPLETED)
            failed.cancel()

    async def _fetch(self, fetch: _Fetch, acks: Acks | None) -> None:
        retry, attendance = fetch.retry, self._attendance
        try:
            if attendance is not None:
                await attendance.ensure()
                fetch.call = self._lease(fetch.most, fetch.call.wait_ms, acks)  # for the seat as it is now
            began_ns = time.time_ns()
            with self._watched("ack", acks.spans if acks else (), alone=True):
                behind = fetch.behind.call if fetch.behind is not None else None
                leased = await self._carrier.request(fetch.call, retry, behind=behind, turn=lambda: self._turn(fetch))
            if self.tracing is not None and leased.runs:
                self.tracing.received(self._terms.queue, self._terms.group, began_ns, leased.runs)
        except PenstockError as error:
            withdrawn = self._closing is not None and acks is None
            if not withdrawn and (attendance is None or not await attendance.put_out(error)):
                self._error = error
            if acks is not None:
                self._acks.failed(acks, error)
        else:
            now = self._loop.time()
            for run in leased.runs:
                run.renew_at = renew_at(now, run.lease_ms)
                self._ready.append(run)
                self._ready_count += run.batch.count
                if run.leased:
                    self.hold(run)
            if acks is not None:
                self._acks.answered(acks, leased.results, retry)
            if attendance is not None:
                # What came of partitions that were lost meanwhile goes back; what is new is heard now.
                self._drop({run.meta.partition for run in leased.runs} - set(attendance.seat.partitions))
                await attendance.catch_up(leased.generation)
        finally:
            self._fetches.remove(fetch)
            fetch.behind = None  # otherwise each would keep all before it

    # -- partitions that come and go --------------------------------------------------------------------------

    def _drop(self, partitions: Collection[int]) -> None:
        """These are no longer ours: what was not handed out goes to the next owner, without counting as an attempt."""
        gone = [run for run in self._ready if run.leased and run.meta.partition in partitions]
        if not gone:
            return
        self._ready = deque(run for run in self._ready if run not in gone)
        self._ready_count -= sum(run.batch.count - run.next_row for run in gone)
        for run in gone:
            self.let_go(run)
        spans = [span for run in gone for span in run.spans()]
        task = self._loop.create_task(self._give_back(spans), name=f"penstock release {self._terms.queue}")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _give_back(self, spans: list[Span]) -> list[Settled]:
        try:
            return await self._carrier.request(
                calls.release(receipts_of(spans)), self._carrier.new_retry(within_s=RELEASE_WITHIN_S)
            )
        except PenstockError as error:
            log.warning("%s: could not give back what was leased ahead: %s", self._terms.queue, error)
            return []

    # -- acks -------------------------------------------------------------------------------------------------

    async def ack(self, spans: Sequence[Span]) -> None:
        waiter = self._acks.awaited(spans)
        if self._wants_more():
            self._start_fetch(0.0)
        else:
            self._acks.flush()
        await waiter

    def _wants_more(self) -> bool:
        """True if an ack had better bring the next messages in the same round trip.

        Not the first one: who takes one batch and leaves shall not have leased another.
        """
        room = self._ready_count <= max(self._low_water, 0)
        seated = self._attendance is None or self._attendance.seat.joined
        return room and seated and self._handed_out > 1 and not self._fetches and self._closing is None

    # -- other settlements ------------------------------------------------------------------------------------

    async def nack(
        self, spans: Sequence[Span], delay_ms: int | None, error: str, max_retries: int | None = None
    ) -> list[Settled]:
        with self._watched("nack", spans):
            call = calls.nack(receipts_of(spans), delay_ms=delay_ms, error=error, max_retries=max_retries)
            return await self._settle(call, spans)

    async def nack_quietly(self, spans: Sequence[Span], delay_ms: int | None, error: str) -> None:
        task = self._loop.create_task(self.nack(spans, delay_ms, error), name=f"penstock nack {self._terms.queue}")
        self._settling.add(task)
        task.add_done_callback(self._nacked)
        await asyncio.wait({task})

    def _nacked(self, task: asyncio.Task[list[Settled]]) -> None:
        self._settling.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.warning("%s: nack failed: %s", self._terms.queue, problem)

    async def reject(self, spans: Sequence[Span], error: str) -> list[Settled]:
        with self._watched("reject", spans):
            return await self._settle(calls.reject(receipts_of(spans), error=error), spans)

    async def transact(self, spans: Sequence[Span], items: Sequence[dict[str, Any]]) -> Transacted:
        with self._watched("transact", spans):
            return await self._carrier.transact(receipts_of(spans), items)

    async def extend(self, spans: Sequence[Span], lease_ms: int) -> list[Settled]:
        return await self._settle(calls.extend(receipts_of(spans), lease_ms=lease_ms), spans)

    def _watched(self, verb: str, spans: Sequence[Span], *, alone: bool = False) -> AbstractContextManager[object]:
        return settling(self.tracing, verb, self._terms.queue, self._terms.group, spans, alone=alone)

    async def _settle(self, call: calls.Call[list[Settled]], spans: Sequence[Span]) -> list[Settled]:
        retry = self._carrier.new_retry()
        results = await self._carrier.request(call, retry)
        if lost := lost_in(results, retry):
            raise stale_error(lost, sum(span.size for span in spans))
        return results

    # -- the end ----------------------------------------------------------------------------------------------

    def close_soon(self) -> None:
        """The iterator is gone, and where that happens nobody can wait. May be called from any thread."""
        if self._closing is None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start_closing)

    async def aclose(self) -> None:
        """Give back what was not handed out, send every ack, then return. What is being handled stays leased, and may
        be settled later: calling this again sends that."""
        self._start_closing()
        assert self._closing is not None
        await asyncio.wait({self._closing})
        await self._settle_rest()

    def stop(self) -> None:
        """No more calls: the client goes away. After `aclose`."""
        self._renewal.stop()
        self._acks.stop()
        if self._attendance is not None:
            self._attendance.stop()

    def _start_closing(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), name=f"penstock close {self._terms.queue}")

    async def _close(self) -> None:
        self._move_on()
        for fetch in list(self._fetches):
            # What this call brings must be given back, or it stays leased to nobody until the lease ends. A long poll
            # may bring nothing for long, so the server is asked to answer now. Where that cannot be asked it is given
            # a moment only, and the server is told by hanging up.
            patience_s = None
            if fetch.waits:
                fetch.retry.withdrawn = True
                patience_s = RELEASE_WITHIN_S if self._carrier.recall(fetch.call) else CLOSE_GRACE_S
            assert fetch.task is not None
            await asyncio.wait({fetch.task}, timeout=patience_s)
            if not fetch.task.done():
                fetch.task.cancel()
                await asyncio.wait({fetch.task})
        spans = [span for run in self._ready for span in run.spans()]
        for run in self._ready:
            self.let_go(run)
        self._ready.clear()
        self._ready_count = 0
        self._acks.flush()
        if spans:
            await self._give_back(spans)
        await self._settle_rest()
        if self._attendance is not None:
            await self._attendance.leave()
        self._renewal.rest()

    async def _settle_rest(self) -> None:
        """Wait until everything that was settled so far is sent and answered."""
        self._acks.flush()
        while under_way := {task for task in (self._acks.sending, *self._settling) if task is not None}:
            await asyncio.wait(under_way)
            self._acks.flush()


class _Iterator:
    """What the two iterators share. Leaving the loop early closes the session as soon as the iterator is dropped."""

    def __init__(self, session: Session):
        self._session = session

    async def aclose(self) -> None:
        """Stop: messages that were not handed out go back to the queue, and every ack is sent before this returns.

        What goes back is there for others at once, and does not count as attempted.
        """
        await self._session.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    def __del__(self) -> None:
        self._session.close_soon()


class Consumer(_Iterator):
    """Async iterator of messages; made by `Queue.consume`."""

    async def __anext__(self) -> Message:
        message = self._session.take_message()
        if message is not None:
            return message
        try:
            message = await self._session.next_message()
        except PenstockError:
            await self._session.aclose()
            raise
        if message is None:
            await self._session.aclose()
            raise StopAsyncIteration
        return message


class BatchConsumer(_Iterator):
    """Async iterator of batches; made by `Queue.consume_batches`."""

    async def __anext__(self) -> MessageBatch:
        try:
            batch = await self._session.next_batch()
        except PenstockError:
            await self._session.aclose()
            raise
        if batch is None:
            await self._session.aclose()
            raise StopAsyncIteration
        return batch
