"""Functions instead of loops: `@client.worker("emails")` takes messages, calls the function, and settles what it took.

A worker is a consumer with so many hands. A hand takes a message only when it is free, so what has not begun is still
in the consumer's buffer; stopping gives that back at once and lets what runs finish. Returning acks, raising nacks with
the queue's backoff; `Reject` and `Retry` say otherwise.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol

from penstock import limits
from penstock.client.consume.membership import Assigned
from penstock.client.consume.messages import Message
from penstock.client.consume.session import Consumer
from penstock.client.messages.leased import error_text
from penstock.client.publish.frames import milliseconds
from penstock.client.workers.handler import Handler, Reject, Retry
from penstock.client.workers.thread_desk import for_thread
from penstock.errors import InvalidRequest, PenstockError, QueueNotFound
from penstock.ids import check_group, parse_queue

CONCURRENCY_MAX = 1000
GRACE_S = 25.0
"""What handlers get to finish in when workers are stopped; below the 30 s after which platforms kill."""
PAUSE_S = 1.0
"""Between attempts to consume from a server that has been away for longer than the client's patience."""

log = logging.getLogger("penstock.worker")


class Terms(NamedTuple):
    """What a worker was declared with."""

    queue: str
    group: str
    concurrency: int
    retries: int | None
    timeout_s: float | None
    lease_s: float | None
    prefetch: int
    consumer: str
    assigned: bool | Assigned


def make_terms(
    queue: str, *, group: str, concurrency: int, retries: int | None, timeout: float | None, lease: float | None,
    prefetch: int | None, consumer: str, assigned: bool | Assigned,
) -> Terms:  # fmt: skip
    """Raises InvalidRequest where the worker is declared, not where it is run."""
    parse_queue(queue)
    check_group(group)
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise _invalid("concurrency", f"{concurrency!r} is not from 1 to {CONCURRENCY_MAX}")
    if retries is not None and not 0 <= retries <= limits.RETRIES_MAX:
        raise _invalid("retries", f"{retries!r} is not from 0 to {limits.RETRIES_MAX}")
    if prefetch is not None and not 1 <= prefetch <= limits.LEASE_MESSAGES_MAX:
        raise _invalid("prefetch", f"{prefetch!r} is not from 1 to {limits.LEASE_MESSAGES_MAX}")
    if timeout is not None:
        milliseconds("timeout", timeout, limits.DELAY_MS_MAX, 1)
    if lease is not None:
        milliseconds("lease", lease, limits.LEASE_MS_MAX, limits.LEASE_MS_MIN)
    return Terms(
        queue, group, concurrency, retries, timeout, lease, prefetch or concurrency, consumer, assigned
    )  # fmt: skip


class Source(Protocol):
    """What a worker needs of its queue."""

    async def config(self) -> dict[str, Any]: ...
    async def configure(self, **changes: Any) -> dict[str, Any]: ...
    def consume(
        self, group: str = "default", *, prefetch: int = 100, lease: float | None = None, wait: float | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> Consumer: ...  # fmt: skip


class Place(Protocol):
    """What a worker needs of its client."""

    def queue(self, name: str) -> Source: ...
    async def create_queue(self, name: str, **config: Any) -> Any: ...


class Worker:
    """A function and the terms on which it is given messages."""

    def __init__(self, terms: Terms, function: Callable[..., Any]):
        self.terms = terms
        self.handler = Handler(function)
        self.taken = 0
        """Messages, since somebody looked."""

    def __repr__(self) -> str:
        return f"<Worker {self.handler.name} on {self.terms.queue}>"

    async def run(self, client: Place, stop: asyncio.Event, *, wait_s: float | None, grace_s: float) -> bool:
        """Work until told to stop, or until nothing came for `wait_s`. True if every handler finished by itself.

        A server that goes away is waited for; what it refuses is raised.
        """
        await self._prepare(client)
        hands = _Hands(self)
        try:
            while not stop.is_set():
                try:
                    await self._consume(client.queue(self.terms.queue), hands, stop, wait_s)
                    break
                except PenstockError as error:
                    if not error.retryable:
                        raise
                    log.warning("%s: cannot consume, trying again: %s", self.terms.queue, error)
                    await _first_of(stop, PAUSE_S)
        finally:
            finished = await hands.finish(grace_s)
        return finished

    async def _prepare(self, client: Place) -> None:
        """A worker may be there before the first message, and its retries need a queue that allows them."""
        terms = self.terms
        try:
            config = (await client.queue(terms.queue).config())["config"]
        except QueueNotFound:
            await client.create_queue(terms.queue, **({} if terms.retries is None else {"max_retries": terms.retries}))
            return
        if terms.retries is not None and config["max_retries"] < terms.retries:
            await client.queue(terms.queue).configure(max_retries=terms.retries)

    async def _consume(self, queue: Source, hands: _Hands, stop: asyncio.Event, wait_s: float | None) -> None:
        terms = self.terms
        messages = queue.consume(
            terms.group, prefetch=terms.prefetch, lease=terms.lease_s, wait=wait_s, consumer=terms.consumer,
            assigned=terms.assigned,
        )  # fmt: skip
        # Closing the consumer gives back what its buffer holds and ends the loop below, also while that waits.
        closing = asyncio.create_task(_close_when(stop, messages, hands))
        hands.opened(messages)
        try:
            while True:
                await hands.free()
                try:
                    message = await anext(messages)
                except StopAsyncIteration:
                    hands.put_down()
                    return
                except BaseException:
                    hands.put_down()
                    raise
                self.taken += 1
                hands.take(message)
        finally:
            closing.cancel()
            await asyncio.wait({closing})
            await messages.aclose()


async def _close_when(stop: asyncio.Event, messages: Consumer, hands: _Hands) -> None:
    await stop.wait()
    await messages.aclose()
    # One hand more, for a loop that waits for one: it finds that there is nothing left to take.
    hands.put_down()


async def _first_of(stop: asyncio.Event, timeout_s: float) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting}, timeout=timeout_s)
    waiting.cancel()


class _Hands:
    """The handlers that run now, at most so many."""

    def __init__(self, worker: Worker):
        self._worker = worker
        self._free = asyncio.Semaphore(worker.terms.concurrency)
        self._busy: set[asyncio.Task[None]] = set()
        self._threads = (
            None
            if worker.handler.is_async
            else ThreadPoolExecutor(worker.terms.concurrency, f"penstock {worker.handler.name}")
        )
        self._sources: list[Consumer] = []
        """Whose messages are being handled; their last acks are sent at the end."""

    def opened(self, source: Consumer) -> None:
        """Messages come from here from now on; of earlier consumers, which failed, only what is in hand."""
        if not self._busy:
            self._sources.clear()
        self._sources.append(source)

    async def free(self) -> None:
        """Wait for a hand; it is then the caller's to `take` with or to `put_down`."""
        await self._free.acquire()

    def put_down(self) -> None:
        self._free.release()

    def take(self, message: Message) -> None:
        task = asyncio.create_task(self._handle(message), name=f"penstock worker {self._worker.handler.name}")
        self._busy.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        self.put_down()
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("%s: not settled", self._worker.handler.name, exc_info=bug)

    async def finish(self, grace_s: float) -> bool:
        """Wait for what runs; cancel what takes longer. All acks are sent on return."""
        late: set[asyncio.Task[None]] = set()
        if self._busy:
            _, late = await asyncio.wait(set(self._busy), timeout=grace_s)
            for task in late:
                log.warning("%s: did not finish within %g s", self._worker.handler.name, grace_s)
                task.cancel()
            if late:
                await asyncio.wait(late)
        for source in self._sources:
            await source.aclose()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        return not late

    # -- one message ------------------------------------------------------------------------------------------

    async def _handle(self, message: Message) -> None:
        async with message:
            thread: asyncio.Future[None] | None = None
            try:
                async with asyncio.timeout(self._worker.terms.timeout_s) as limit:
                    handler = self._worker.handler
                    if self._threads is None:
                        await handler.function(**handler.arguments(message))
                    else:
                        thread = self._begin_in_thread(message)
                        await asyncio.shield(thread)
            except Exception as error:
                late = TimeoutError(f"not handled within {self._worker.terms.timeout_s} s")
                await self._failed(message, late if limit.expired() else error)
            if thread is not None and not thread.done():
                # A thread cannot be stopped. Its message has been given back, but the hand is not free before it ends.
                await asyncio.wait({thread})
                thread.exception()

    def _begin_in_thread(self, message: Message) -> asyncio.Future[None]:
        loop, handler = asyncio.get_running_loop(), self._worker.handler
        arguments = handler.arguments(for_thread(message, loop))
        call = partial(contextvars.copy_context().run, handler.function, **arguments)
        return loop.run_in_executor(self._threads, call)

    async def _failed(self, message: Message, error: Exception) -> None:
        """Say what is to become of the message. What cannot be said is left to the end of the lease."""
        retries, name = self._worker.terms.retries, self._worker.handler.name
        message._failed_with(error)
        try:
            if isinstance(error, Reject):
                log.warning("%s rejected %s: %s", name, message.id, error)
                await message.reject(str(error) or "rejected")
            elif isinstance(error, Retry):
                log.info("%s wants %s again: %s", name, message.id, error)
                await message._nack(error.delay, str(error) or "to be tried again", retries)
            else:
                log.warning("%s failed on attempt %d of %s", name, message.attempt, message.id, exc_info=error)
                await message._nack(None, error_text(error), retries)
        except PenstockError as problem:
            log.warning("%s: could not settle %s: %s", name, message.id, problem)
            # Leaving the block would ack what counts as open. The lease ends by itself, and the message comes again.
            message.mark(message.open_spans(), settled=True)


def _invalid(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {reason}", details={"field": field})
