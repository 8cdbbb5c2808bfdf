"""Waiting, timers and background work: the services of an event loop that the client uses.

The client is written once, as coroutines over a `Runtime`, which is one of two classes with the same methods.
`AsyncioRuntime` hands everything to the running event loop. `BlockingRuntime` (in `blocking.runtime`) runs the same
coroutines to their end in the calling thread. Code on top of a runtime keeps three rules, to be right with both:

- Between two awaits no other code of the same consumer runs.
- `jobs().start` may run the work to its end before it returns, so state that the work reads is set before.
- If `concurrent` is false, nothing is started ahead of need: the caller would wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from penstock.eager import Finished, begin, rest_of

if TYPE_CHECKING:
    from penstock.client.blocking.runtime import BlockingJobs, BlockingRuntime, TimerThread

T = TypeVar("T")

Runtime: TypeAlias = "AsyncioRuntime | BlockingRuntime"
Jobs: TypeAlias = "AsyncioJobs | BlockingJobs"
Timers: TypeAlias = "AsyncioTimers | TimerThread"


class Timer(Protocol):
    def cancel(self) -> None: ...


class Future(Protocol[T]):
    def done(self) -> bool: ...
    def set_result(self, result: T, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def __await__(self) -> Generator[Any, None, T]: ...


class AsyncioRuntime:
    concurrent = True
    """Work that is started goes on while the caller does something else."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self.future = self._loop.create_future

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this and wait for its result. For threads; not for code that the runtime itself runs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def call_hook(self, hook: Callable[[T], object], argument: T) -> None:
        """Call a function of the user, which may wait for other code of the client. Raises what it raises."""
        outcome = hook(argument)
        if inspect.isawaitable(outcome):
            await outcome

    async def wait(
        self, futures: Collection[Any], timeout_s: float | None = None, *, until_first: bool = False
    ) -> None:  # fmt: skip
        """Until all are done, or the first of them. Cancelling the caller does not cancel them."""
        when = asyncio.FIRST_COMPLETED if until_first else asyncio.ALL_COMPLETED
        await asyncio.wait(futures, timeout=timeout_s, return_when=when)

    def lock(self) -> AbstractAsyncContextManager[None]:
        """A mutex that is held across awaits."""
        return asyncio.Lock()

    def jobs(self) -> AsyncioJobs:
        return AsyncioJobs()

    def timers(self, name: str) -> AsyncioTimers:  # noqa: ARG002
        return AsyncioTimers(self._loop)


class AsyncioJobs:
    """Work in the background that belongs together. The event loop keeps only weak references to its tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        """True while any of it is under way."""
        return any(not task.done() for task in self._tasks)

    def start(
        self, work: Coroutine[Any, Any, None], name: str, *, at_once: bool = False
    ) -> asyncio.Task[None] | None:  # fmt: skip
        """As `start_task`."""
        task = start_task(work, name, at_once=at_once)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self) -> None:
        """Wait until none is under way."""
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(under_way)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def start_task(
    work: Coroutine[Any, Any, None], name: str, *, at_once: bool = False
) -> asyncio.Task[None] | None:  # fmt: skip
    """Start work that handles its own errors. The caller keeps the task.

    `at_once`: run until the work first waits, before this returns. The answer is None if it has ended by then.
    """
    if not at_once:
        return asyncio.create_task(work, name=name)
    begun = begin(work)
    if isinstance(begun, Finished):
        return None
    task = asyncio.create_task(rest_of(begun), name=name)
    task.add_done_callback(lambda _: begun.abandon())
    return task


class AsyncioTimers:
    """The timers of one consumer. The event loop needs no thread for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self.call_at = loop.call_at

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """Call this from any thread and in any situation, also in a finalizer."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """There will be no more timers than those that are set and those that their callbacks set."""

    def stop(self) -> None:
        """No callback is called any more."""
