"""Waiting, timers and background work: the services of an event loop that the client uses.

The client is written once, as coroutines over a `Runtime`. `AsyncioRuntime` hands everything to the running event loop.
`blocking.runtime.BlockingRuntime` runs the same coroutines to their end in the calling thread. Code on top of a runtime
keeps three rules, so that it is right with both:

- Between two awaits no other code of the same client runs.
- `Jobs.start` may run the work to its end before it returns, so state that the work reads is set before.
- If `concurrent` is false, nothing is started ahead of need: the caller would wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from penstock.eager import Finished, begin, rest_of

T = TypeVar("T")


class Future(Protocol[T]):
    def done(self) -> bool: ...
    def set_result(self, result: T, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def __await__(self) -> Generator[Any, None, T]: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The timers of one consumer."""

    def call_at(self, at: float, callback: Callable[[], object], /) -> Timer:
        """Call this when `Runtime.time` has reached `at`."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> None:
        """Call this from any thread and in any situation, also in a finalizer."""

    def close(self) -> None:
        """There will be no more timers than those that are set and those that their callbacks set."""

    def stop(self) -> None:
        """Release what the timers need. No callback is called any more."""


class Jobs(Protocol):
    """Work in the background that belongs together."""

    def __bool__(self) -> bool:
        """True while any of it is under way."""

    def start(
        self, work: Coroutine[Any, Any, None], name: str, *, at_once: bool = False
    ) -> asyncio.Task[None] | None:  # fmt: skip
        """`at_once`: run until the work first waits, before this returns. The answer is None if it has ended by then.

        The work handles its own errors.
        """

    async def drain(self) -> None:
        """Wait until none is under way."""

    def cancel(self) -> None:
        """Cancel all of it, where the runtime can."""


class Runtime(Protocol):
    @property
    def concurrent(self) -> bool:
        """True if work that is started goes on while the caller does something else."""

    def time(self) -> float:
        """Seconds of a clock that is never set back."""

    async def sleep(self, seconds: float) -> None: ...

    async def call_hook(self, hook: Callable[[T], object], argument: T) -> None:
        """Call a function of the user, which may wait for other code of the client. Raises what it raises."""

    def future(self) -> Future[Any]: ...

    async def wait(
        self, futures: Collection[Future[Any]], timeout_s: float | None = None, *, until_first: bool = False
    ) -> None:
        """Until all are done, or the first of them. Cancelling the caller does not cancel them."""

    def lock(self) -> AbstractAsyncContextManager[None]:
        """A mutex that is held across awaits."""

    def jobs(self) -> Jobs: ...

    def timers(self, name: str) -> Timers: ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this and wait for its result. For threads; not for code that the runtime itself runs."""


class AsyncioRuntime:
    """The running event loop."""

    concurrent = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self.future = self._loop.create_future

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def call_hook(self, hook: Callable[[T], object], argument: T) -> None:
        outcome = hook(argument)
        if inspect.isawaitable(outcome):
            await outcome

    async def wait(
        self, futures: Collection[Any], timeout_s: float | None = None, *, until_first: bool = False
    ) -> None:  # fmt: skip
        when = asyncio.FIRST_COMPLETED if until_first else asyncio.ALL_COMPLETED
        await asyncio.wait(futures, timeout=timeout_s, return_when=when)

    def lock(self) -> AbstractAsyncContextManager[None]:
        return asyncio.Lock()

    def jobs(self) -> AsyncioJobs:
        return AsyncioJobs()

    def timers(self, name: str) -> AsyncioTimers:  # noqa: ARG002
        return AsyncioTimers(self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def start_task(
    work: Coroutine[Any, Any, None], name: str, *, at_once: bool = False
) -> asyncio.Task[None] | None:  # fmt: skip
    """`Jobs.start` of the running event loop. The caller keeps the task."""
    if not at_once:
        return asyncio.create_task(work, name=name)
    begun = begin(work)
    if isinstance(begun, Finished):
        return None
    task = asyncio.create_task(rest_of(begun), name=name)
    task.add_done_callback(lambda _: begun.abandon())
    return task


class AsyncioJobs:
    """Tasks; the event loop keeps only weak references to them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        return any(not task.done() for task in self._tasks)

    def start(
        self, work: Coroutine[Any, Any, None], name: str, *, at_once: bool = False
    ) -> asyncio.Task[None] | None:  # fmt: skip
        task = start_task(work, name, at_once=at_once)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self) -> None:
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(under_way)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class AsyncioTimers:
    """Timers of the event loop, which needs no thread for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self.call_at = loop.call_at

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None: ...

    def stop(self) -> None: ...
