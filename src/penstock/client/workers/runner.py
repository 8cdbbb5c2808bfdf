"""All workers of a client: declared, run together, stopped together by a signal or by a call."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Generic

from penstock.client.consume.options import Assigned
from penstock.client.units import Duration, seconds
from penstock.client.workers.handler import P, R, S, WorkerFunction
from penstock.client.workers.worker import QueueWorker, worker_options
from penstock.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from penstock.client.client import Client

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("penstock.worker")


class WorkerDeclarations(Generic[S]):
    """The part of a client that concerns workers, with asyncio and without. A publish of the client returns an `S`."""

    _workers: WorkerRunner

    def queue(self, name: str) -> Any:
        raise NotImplementedError

    def worker(
        self, queue: str, *, group: str = "default", concurrency: int = 1, retries: int | None = None,
        timeout: Duration | None = None, lease: Duration | None = None, prefetch: int | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> Callable[[Callable[P, R]], WorkerFunction[P, R, S]]:  # fmt: skip
        """`@client.worker("emails", concurrency=8)`: call this function for every message of the queue.

        An asynchronous function runs in the event loop, any other one in threads, up to `concurrency` at a time. A
        parameter annotated `Message` gets the message. One other parameter gets the payload, converted to the type of
        its annotation (a dataclass, a TypedDict, a msgspec or pydantic model, …); several get the fields of a payload
        that is an object. A payload that does not fit is a dead letter.

        Returning acks the message. An exception nacks it: it comes again after the queue's backoff, with the error's
        text recorded. `Reject` makes a dead letter of it at once, `Retry(delay=…)` chooses the time. After `timeout`
        seconds a handler counts as failed; the lease is renewed until then.

        With `retries` a message is given up after so many of them; the worker creates the queue with that number, or
        raises a lower one of the queue. Without it the setting of the queue applies.

        The function can be called as before, and `function.publish(…)` with the same arguments publishes a message for
        which a worker calls it; see `WorkerFunction`. `run` or `run_workers` begins.
        """
        options = worker_options(
            queue, group=group, concurrency=concurrency, retries=retries, timeout=timeout, lease=lease,
            prefetch=prefetch, consumer=consumer, assigned=assigned,
        )  # fmt: skip

        def send(value: Any, **more: Any) -> S:
            sent: S = self.queue(queue).publish(value, **more)
            return sent

        def declare(function: Callable[P, R]) -> WorkerFunction[P, R, S]:
            plain = function._handler.function if isinstance(function, WorkerFunction) else function
            worker = QueueWorker(options, plain)
            self._workers.add(worker)
            return WorkerFunction(worker.handler, send, {})

        return declare

    def stop_workers(self) -> None:
        """Take no more messages, give back those not begun, let handlers finish. May be called from any thread."""
        self._workers.stop()


class WorkerRunner:
    """The workers of a client. They are declared before they run, and run once at a time."""

    def __init__(self) -> None:
        self._declared: list[QueueWorker] = []
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def add(self, worker: QueueWorker) -> None:
        self._declared.append(worker)

    async def run(self, client: Client, *, wait: Duration | None, grace: Duration, signals: bool) -> bool:
        """Until `stop`, a signal, or nothing came to any of them for `wait` seconds.

        True if every handler finished by itself. If one worker fails the others are stopped as well, and its error is
        raised.
        """
        if not self._declared:
            raise InvalidRequest("there is nothing to run: declare a worker with @client.worker(queue) first")
        wait_s, grace_s = None if wait is None else seconds("wait", wait), seconds("grace", grace)
        stop = asyncio.Event()
        with self._lock:
            if self._running is not None:
                raise PenstockError("the workers of this client are running already")
            self._running = asyncio.get_running_loop(), stop
        try:
            with _stopped_by_signals(stop) if signals else nullcontext():
                finished = await self._run_all(client, stop, wait_s, grace_s)
                # One worker's last message may have been another one's first: idle means that all are, together.
                while wait is not None and not stop.is_set() and self._take_counts():
                    finished = await self._run_all(client, stop, wait_s, grace_s) and finished
                return finished
        finally:
            with self._lock:
                self._running = None

    async def _run_all(self, client: Client, stop: asyncio.Event, wait_s: float | None, grace_s: float) -> bool:
        self._take_counts()
        tasks = [
            asyncio.create_task(worker.run(client, stop, wait_s=wait_s, grace_s=grace_s), name=repr(worker))
            for worker in self._declared
        ]
        try:
            _, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if others:
                stop.set()
            finished = await asyncio.gather(*tasks, return_exceptions=True)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        for outcome in finished:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(finished)

    def _take_counts(self) -> int:
        """How many messages were taken since this was last asked."""
        taken = sum(worker.taken for worker in self._declared)
        for worker in self._declared:
            worker.taken = 0
        return taken

    def stop(self) -> None:
        """Take no more messages, give back those not begun, let handlers finish. From any thread, also repeatedly."""
        with self._lock:
            running = self._running
        if running is not None:
            loop, event = running
            loop.call_soon_threadsafe(event.set)


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT stop the workers, the second one ends the process at once. In the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log.info("%s: stopping", signal.Signals(number).name)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            if before[number] is not None:
                signal.signal(number, before[number])


def exit_code(finished: bool) -> int:
    """The exit code of a process. Does not return if threads would keep the process from ending."""
    if finished:
        return 0
    stuck = [each.name for each in threading.enumerate() if each.name.startswith("penstock ") and not each.daemon]
    if stuck:
        log.error("ending the process with handlers still running: %s", ", ".join(stuck))
        logging.shutdown()
        os._exit(1)
    return 1
