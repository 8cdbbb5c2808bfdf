"""Start a coroutine at once, without a task: a coroutine that never waits is finished when `begin` returns.

An event loop starts a coroutine by queueing it for its next turn. For work of a few dozen microseconds, such as the
request of a single client, that costs as much as a tenth of the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Finished(NamedTuple, Generic[T]):
    """The result of a coroutine that ran to its end."""

    result: T


class Suspended(Generic[T]):
    """A started coroutine that waits. A task must await it once."""

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any):
        self._coroutine = coroutine
        self._awaited = awaited

    def go_on(self) -> Finished[T] | Suspended[T]:
        """Run on while the future that the coroutine waits for is done. Raises what the coroutine raises."""
        while isinstance(self._awaited, asyncio.Future) and self._awaited.done():
            # A task resets this flag too when it takes a future over from the coroutine.
            self._awaited._asyncio_future_blocking = False
            try:
                self._awaited = self._coroutine.send(None)
            except StopIteration as end:
                return Finished(end.value)
        return self

    def abandon(self) -> None:
        """Close a coroutine that was never awaited: its task may be cancelled before the task has begun."""
        if self._awaited is not None:
            self._awaited = None
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        awaited, self._awaited = self._awaited, None
        try:
            while True:
                try:
                    sent = yield awaited
                except GeneratorExit:
                    # The awaiting task is being destroyed. The coroutine is closed instead of entered, because the
                    # garbage collector may have closed it already.
                    self._coroutine.close()
                    raise
                except BaseException as error:
                    awaited = self._coroutine.throw(error)
                else:
                    awaited = self._coroutine.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result


def begin(coroutine: Coroutine[Any, Any, T]) -> Finished[T] | Suspended[T]:
    """Run the coroutine until it has to wait. Raises what it raises until then.

    Until it first waits it runs outside of any task, so it must not ask for the current one: `asyncio.timeout` does.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        return Finished(end.value)
    return Suspended(coroutine, awaited)


async def rest_of(suspended: Suspended[T]) -> T:
    """Wrap the started coroutine in a coroutine, as `create_task` requires."""
    return await suspended
