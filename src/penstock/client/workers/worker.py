"""One worker: a consumer whose messages are handled by a function, up to `concurrency` at a time.

A message is taken only when a handler is free, so a message that has not begun is still in the consumer's buffer;
stopping gives those back at once and lets handlers finish. Returning acks, raising nacks with the queue's backoff;
`Reject` and `Retry` say otherwise.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import limits
from penstock.client.blocking.messages import for_thread
from penstock.client.consume.consumers import Consumer
from penstock.client.consume.messages import Message
from penstock.client.consume.options import Assigned, lease_milliseconds
from penstock.client.messages.leased import error_text
from penstock.client.units import Duration, bounded, milliseconds
from penstock.client.workers.handler import Handler, Reject, Retry
from penstock.errors import PenstockError, QueueNotFound
from penstock.ids import check_group, parse_queue

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.queue import Queue

CONCURRENCY_MAX = 1000
GRACE_S = 25.0
"""The time for handlers to finish when workers are stopped; below the 30 s after which platforms kill."""
PAUSE_S = 1.0
"""Between attempts to consume from a server that has been away for longer than the client's patience."""

log = logging.getLogger("penstock.worker")


class WorkerOptions(NamedTuple):
    queue: str
    group: str
    concurrency: int
    retries: int | None
    timeout_s: float | None
    lease_s: float | None
    prefetch: int
    consumer: str
    assigned: bool | Assigned


def worker_options(
    queue: str, *, group: str, concurrency: int, retries: int | None, timeout: Duration | None, lease: Duration | None,
    prefetch: int | None, consumer: str, assigned: bool | Assigned,
) -> WorkerOptions:  # fmt: skip
    """Raises InvalidRequest where the worker is declared, not where it is run."""
    parse_queue(queue)
    if retries is not None:
        bounded("retries", retries, 0, limits.RETRIES_MAX)
    return WorkerOptions(
        queue, check_group(group), bounded("concurrency", concurrency, 1, CONCURRENCY_MAX), retries,
        None if timeout is None else milliseconds("timeout", timeout, limits.DELAY_MS_MAX, 1) / 1000,
        None if lease is None else lease_milliseconds(lease) / 1000,
        concurrency if prefetch is None else bounded("prefetch", prefetch, 1, limits.LEASE_MESSAGES_MAX),
        consumer, assigned,
    )  # fmt: skip


class QueueWorker:
    """A function and the options with which it is called."""

    def __init__(self, options: WorkerOptions, function: Callable[..., Any]):
        self.options = options
        self.handler = Handler(function)
        self.taken = 0
        """Messages since the runner last set this to 0."""

    def __repr__(self) -> str:
        return f"<Worker {self.handler.name} on {self.options.queue}>"

    async def run(self, client: Client, stop: asyncio.Event, *, wait_s: float | None, grace_s: float) -> bool:
        """Work until `stop` is set, or until nothing came for `wait_s`. True if every handler finished by itself.

        The worker waits for a server that goes away; any other refusal is raised.
        """
        await self._prepare(client)
        handlers = _Handlers(self)
        try:
            while not stop.is_set():
                try:
                    await self._consume(client.queue(self.options.queue), handlers, stop, wait_s)
                    break
                except PenstockError as error:
                    if not error.retryable:
                        raise
                    log.warning("%s: cannot consume, trying again: %s", self.options.queue, error)
                    await _first_of(stop, PAUSE_S)
        finally:
            finished = await handlers.finish(grace_s)
        return finished

    async def _prepare(self, client: Client) -> None:
        """A worker may be there before the first message, and its retries need a queue that allows them."""
        options = self.options
        try:
            config = (await client.queue(options.queue).config()).config
        except QueueNotFound:
            settings: dict[str, Any] = {} if options.retries is None else {"max_retries": options.retries}
            await client.create_queue(options.queue, **settings)
            return
        if options.retries is not None and config.max_retries < options.retries:
            await client.queue(options.queue).configure(max_retries=options.retries)

    async def _consume(self, queue: Queue, handlers: _Handlers, stop: asyncio.Event, wait_s: float | None) -> None:
        options = self.options
        messages = queue.consume(
            options.group, prefetch=options.prefetch, lease=options.lease_s, wait=wait_s, consumer=options.consumer,
            assigned=options.assigned,
        )  # fmt: skip
        # Closing the consumer gives back its buffer and ends the loop below, also while that waits.
        closing = asyncio.create_task(_close_when(stop, messages, handlers))
        handlers.opened(messages)
        try:
            while True:
                await handlers.take_place()
                try:
                    message = await anext(messages)
                except StopAsyncIteration:
                    handlers.free_place()
                    return
                except BaseException:
                    handlers.free_place()
                    raise
                self.taken += 1
                handlers.start(message)
        finally:
            closing.cancel()
            await asyncio.wait({closing})
            await messages.aclose()


async def _close_when(stop: asyncio.Event, messages: Consumer, handlers: _Handlers) -> None:
    await stop.wait()
    await messages.aclose()
    # One place more, for a loop that waits for one: it finds that the consumer is closed.
    handlers.free_place()


async def _first_of(stop: asyncio.Event, timeout_s: float) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting}, timeout=timeout_s)
    waiting.cancel()


class _Handlers:
    """The handlers that run now, at most `concurrency`."""

    def __init__(self, worker: QueueWorker):
        self._worker = worker
        self._free = asyncio.Semaphore(worker.options.concurrency)
        self._busy: set[asyncio.Task[None]] = set()
        self._threads = (
            None
            if worker.handler.is_async
            else ThreadPoolExecutor(worker.options.concurrency, f"penstock {worker.handler.name}")
        )
        self._sources: list[Consumer] = []
        """The consumers whose messages are being handled; their last acks are sent at the end."""

    def opened(self, source: Consumer) -> None:
        """Messages come from this consumer from now on; earlier ones have failed, and their messages may still run."""
        if not self._busy:
            self._sources.clear()
        self._sources.append(source)

    async def take_place(self) -> None:
        """Wait for a free place; the caller then calls `start` or `free_place`."""
        await self._free.acquire()

    def free_place(self) -> None:
        self._free.release()

    def start(self, message: Message) -> None:
        task = asyncio.create_task(self._handle(message), name=f"penstock worker {self._worker.handler.name}")
        self._busy.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        self.free_place()
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("%s: not settled", self._worker.handler.name, exc_info=bug)

    async def finish(self, grace_s: float) -> bool:
        """Wait for handlers that run, and cancel those that take longer. All acks are sent on return."""
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
                async with asyncio.timeout(self._worker.options.timeout_s) as limit:
                    handler = self._worker.handler
                    if self._threads is None:
                        await handler.function(**handler.arguments(message))
                    else:
                        thread = self._begin_in_thread(message)
                        await asyncio.shield(thread)
            except Exception as error:
                late = TimeoutError(f"not handled within {self._worker.options.timeout_s} s")
                await self._failed(message, late if limit.expired() else error)
            if thread is not None and not thread.done():
                # A thread cannot be stopped. Its message has been given back; its place is free when it ends.
                await asyncio.wait({thread})
                thread.exception()

    def _begin_in_thread(self, message: Message) -> asyncio.Future[None]:
        loop, handler = asyncio.get_running_loop(), self._worker.handler
        arguments = handler.arguments(for_thread(message))
        call = partial(contextvars.copy_context().run, handler.function, **arguments)
        return loop.run_in_executor(self._threads, call)

    async def _failed(self, message: Message, error: Exception) -> None:
        """Settle the message. If that fails, its lease ends by itself."""
        retries, name = self._worker.options.retries, self._worker.handler.name
        if message._work is not None and message._session.tracing is not None:
            message._session.tracing.fail(message._work, error)
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
            # Leaving the block would ack an open message. The lease ends by itself, and the message comes again.
            message.mark(message.open_spans(), settled=True)
