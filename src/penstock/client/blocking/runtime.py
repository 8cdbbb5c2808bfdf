"""The client's coroutines in the calling thread: every wait blocks it, so that a coroutine runs to its end in one step.

Consumers have state that several threads use: the one that iterates, those that settle messages, the one of the timers.
One lock per client stands for the event loop there. A thread holds it while it runs code of a consumer and releases it
while it waits for the network, for time or for another thread. The promise of asyncio then holds here too: between two
awaits no other code of a consumer runs. Calls that touch no consumer, as `publish`, need no lock.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from penstock.client.runtime import Future

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("penstock.client")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, because everything that it awaits blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError(f"{work!r} waits for an event loop, and this thread has none")


class BlockingRuntime:
    """The runtime of one blocking client. Threads enter the code of consumers by `run` and `call`."""

    concurrent = False
    time = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._owner: int | None = None
        """The thread that holds the lock."""
        self._waiting = 0
        """Threads in `wait_until`."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.call(run_to_end, work)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of a consumer with the lock held."""
        me = threading.get_ident()
        if self._owner == me:
            return function(*args, **kwargs)
        self._lock.acquire()
        self._owner = me
        try:
            return function(*args, **kwargs)
        finally:
            if self._owner == me:  # not if an interrupt came while a wait was about to take the lock again
                self._owner = None
                self._lock.release()

    def unlocked(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks, without the lock if this thread holds it."""
        me = threading.get_ident()
        if self._owner != me:
            return function(*args, **kwargs)
        self._owner = None
        self._lock.release()
        try:
            return function(*args, **kwargs)
        finally:
            self._lock.acquire()
            self._owner = me

    @property
    def is_inside(self) -> bool:
        """True if this thread holds the lock."""
        return self._owner == threading.get_ident()

    # -- the runtime ------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        self.unlocked(time.sleep, seconds)

    async def call_hook(self, hook: Callable[[T], object], argument: T) -> None:
        self.unlocked(hook, argument)

    def future(self) -> BlockingFuture[Any]:
        return BlockingFuture(self)

    async def wait(
        self, futures: Collection[Future[Any]], timeout_s: float | None = None, *, until_first: bool = False
    ) -> None:
        enough = any if until_first else all
        self.wait_until(lambda: enough(future.done() for future in futures), timeout_s)

    def lock(self) -> AbstractAsyncContextManager[None]:
        return _BlockingLock(self)

    def jobs(self) -> BlockingJobs:
        return BlockingJobs(self)

    def timers(self, name: str) -> TimerThread:
        return TimerThread(self, name)

    def condition(self) -> threading.Condition:
        return threading.Condition(self._lock)

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait for code of the client in another thread, which calls `notify`."""
        deadline = math.inf if timeout is None else self.time() + timeout
        self._waiting += 1
        try:
            while not is_true() and (left := deadline - self.time()) > 0:
                self.wait_on(self._changed, left)
        finally:
            self._waiting -= 1

    def notify(self) -> None:
        if self._waiting:
            self._changed.notify_all()

    def wait_on(self, condition: threading.Condition, seconds: float) -> None:
        self._owner = None
        try:
            condition.wait(min(seconds, threading.TIMEOUT_MAX))
        finally:
            self._owner = threading.get_ident()


class BlockingFuture(Generic[T]):
    __slots__ = ("_done", "_error", "_result", "_runtime")

    def __init__(self, runtime: BlockingRuntime):
        self._runtime = runtime
        self._done = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: T) -> None:
        self._result = result
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        self._done = True
        self._runtime.notify()

    def __await__(self) -> Generator[Any, None, T]:
        self._runtime.wait_until(self.done)
        if self._error is not None:
            raise self._error
        return cast(T, self._result)
        yield  # a generator, as `__await__` has to be, that never yields


class _BlockingLock(AbstractAsyncContextManager[None]):
    def __init__(self, runtime: BlockingRuntime):
        self._runtime = runtime
        self._is_held = False

    async def __aenter__(self) -> None:
        self._runtime.wait_until(lambda: not self._is_held)
        self._is_held = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_held = False
        self._runtime.notify()


class BlockingJobs:
    """Work that is done where it is started, before `start` returns; other threads may wait for it."""

    def __init__(self, runtime: BlockingRuntime):
        self._runtime = runtime
        self._under_way = 0

    def __bool__(self) -> bool:
        return self._under_way > 0

    def start(self, work: Coroutine[Any, Any, None], name: str, *, at_once: bool = False) -> None:  # noqa: ARG002
        self._under_way += 1
        try:
            run_to_end(work)
        finally:
            self._under_way -= 1
            self._runtime.notify()

    async def drain(self) -> None:
        self._runtime.wait_until(lambda: not self._under_way)

    def cancel(self) -> None:
        """A thread that waits for the network cannot be cancelled; it ends by itself."""


class _ThreadTimer:
    __slots__ = ("at", "callback")

    def __init__(self, at: float, callback: Callable[[], object]):
        self.at = at
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: _ThreadTimer) -> bool:
        return self.at < other.at

    def cancel(self) -> None:
        self.callback = None


class TimerThread:
    """A thread that calls what is due. It starts with the first timer and ends when there will be no more.

    It does not keep the process alive, nor, while it waits, the objects that use it.
    """

    def __init__(self, runtime: BlockingRuntime, name: str):
        self._runtime = runtime
        self._name = name
        self._wake = runtime.condition()
        self._wakes_at = math.inf
        self._timers: list[_ThreadTimer] = []
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def call_at(self, at: float, callback: Callable[[], object]) -> _ThreadTimer:
        timer = _ThreadTimer(at, callback)
        heapq.heappush(self._timers, timer)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        elif at < self._wakes_at:
            self._wake.notify()
        return timer

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """In this thread if it may wait, otherwise, because a finalizer interrupted the client itself, in the other."""
        if self._runtime.is_inside:
            self.call_at(0.0, callback)
        else:
            self._runtime.call(callback)

    def close(self) -> None:
        self._is_closing = True
        self._wake.notify()

    def stop(self) -> None:
        self._timers.clear()
        self.close()

    def _run(self) -> None:
        self._runtime.call(self._call_timers)

    def _call_timers(self) -> None:
        while (next_at := self._next_at()) is not None:
            self._wakes_at = next_at
            if (left := next_at - time.monotonic()) > 0:
                self._runtime.wait_on(self._wake, left)
                continue
            callback = heapq.heappop(self._timers).callback
            assert callback is not None
            try:
                callback()
            except Exception:
                log.exception("%s: a timer failed", self._name)
            del callback  # it belongs to objects that must not live on because this thread sleeps
        self._thread = None

    def _next_at(self) -> float | None:
        """When to wake up; None if there is no timer and there will be none."""
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if self._timers:
            return self._timers[0].at
        return None if self._is_closing else math.inf


# -- methods: signatures and docstrings are those of the coroutines ---------------------------------------------------


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """For a class whose `_inner` has the coroutine. It must touch no consumer: no lock is held."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_to_end(method(self._inner, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The same for an asynchronous generator."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        steps = cast(Any, method(self._inner, *args, **kwargs))
        try:
            while True:
                try:
                    value = run_to_end(steps.__anext__())
                except StopAsyncIteration:
                    return
                yield value
        finally:
            run_to_end(steps.aclose())

    return call


def settling(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """For messages and consumers. The runtime of their session runs the coroutine: under its lock, or in its loop."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast(T, self._session.runtime.run(method(self, *args, **kwargs)))

    return call
