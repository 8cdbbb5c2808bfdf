"""Begin a coroutine on the spot: what never has to wait is then finished without a task and without a turn of the loop.

An event loop's way to start something is to queue it and come back later. For work of a few dozen microseconds, which
a request of a lone caller is, that detour costs as much as a tenth of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


_tidying: set[asyncio.Task[None]] = set()
"""An event loop does not keep what it runs."""


class Finished(NamedTuple, Generic[T]):
    result: T


class Rest(Generic[T]):
    """What is left of a coroutine that has begun to wait. To be awaited once, by a task."""

    __slots__ = ("_ahead", "_awaited", "_coroutine", "_outcome", "has_left", "leave")

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any):
        self._coroutine = coroutine
        self._awaited = awaited
        self._outcome: Finished[T] | BaseException | None = None
        """What came of it, once it has run to its end."""
        self._ahead = False
        """It was told something that is not true yet."""
        self.leave: Callable[[T], None] | None = None
        """Where its result may go the moment that what it was told ahead of time is true. Who sets it has to look at
        `has_left` afterwards: `go_on` tells the same result once more."""
        self.has_left = False
        """True if `leave` was called, and took the result."""

    def go_on(self) -> Finished[T] | Rest[T]:
        """Run further, as long as what it waits for has already happened. Raises what it raises.

        What it was told ahead of time is true by now, or was taken back.
        """
        self._ahead = False
        while self._outcome is None and isinstance(self._awaited, asyncio.Future) and self._awaited.done():
            self._step()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self if self._outcome is None else self._outcome

    def go_ahead(self, answers: Mapping[asyncio.Future[Any], Any]) -> None:
        """Run further as if these futures had their results, as long as it waits for one of them.

        Nothing that comes of it may leave before they are true. Then it goes on; otherwise it must `take_back`.
        """
        while self._outcome is None and self._awaited in answers and not self._awaited.done():
            self._ahead = True
            self._awaited.set_result(answers[self._awaited])
            self._step()

    def come_true(self) -> None:
        """All that it was told is true: if that was enough for a result, there is nothing left to keep it for.

        An error of whoever takes it is what `go_on` raises: it has nothing to do with whoever said that it is true.
        """
        self._ahead = False
        if self.leave is not None and isinstance(self._outcome, Finished):
            try:
                self.leave(self._outcome.result)
            except Exception as error:
                self._outcome = error
            else:
                self.has_left = True

    def take_back(self, error: Exception) -> None:
        """What it was told has not come true, if it was told anything: whatever it made of it, this is what comes out.

        If it was waiting for something else by then, it hears of it there, and may tidy up. It may also take the error
        for that of what it waits for, and have an answer to it: but what it was told is in that answer.
        """
        if not self._ahead:
            return
        if self._outcome is None:
            if isinstance(self._awaited, asyncio.Future) and self._awaited.done() and not self._awaited.cancelled():
                self._awaited.exception()  # so that nobody complains that it was never looked at
            self._run(partial(self._coroutine.throw, error))
        if self._outcome is None:
            tidying = asyncio.ensure_future(_without_result(Rest(self._coroutine, self._awaited)))
            _tidying.add(tidying)
            tidying.add_done_callback(_tidying.discard)
        self._outcome = error

    def _step(self) -> None:
        self._run(partial(self._coroutine.send, None))

    def _run(self, further: Callable[[], Any]) -> None:
        if isinstance(self._awaited, asyncio.Future):
            # As a task does when it takes a future over: by this flag a future and its waiter recognise each other.
            self._awaited._asyncio_future_blocking = False
        try:
            self._awaited = further()
        except StopIteration as end:
            self._outcome = Finished(end.value)
        except BaseException as error:
            self._outcome = error

    def abandon(self) -> None:
        """Close what was never awaited: a task that was made for it may be cancelled before it has begun."""
        if self._awaited is not None:
            self._awaited = None
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        if self._outcome is not None:
            return self._outcome.result
        awaited, self._awaited = self._awaited, None
        try:
            while True:
                try:
                    sent = yield awaited
                except GeneratorExit:
                    # Nobody will await it any more. Not thrown in, because a coroutine of the same rubbish may have
                    # been closed before this one, and cannot be entered again.
                    self._coroutine.close()
                    raise
                except BaseException as error:
                    awaited = self._coroutine.throw(error)
                else:
                    awaited = self._coroutine.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result


def begin(coroutine: Coroutine[Any, Any, T]) -> Finished[T] | Rest[T]:
    """Run it until it has to wait. Raises what it raises until then.

    Until it first waits it runs outside of any task, so it must not ask for the current one: `asyncio.timeout` does.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        return Finished(end.value)
    return Rest(coroutine, awaited)


async def _without_result(rest: Rest[Any]) -> None:
    """What it raises is the error that it was woken with, which its caller hears, or a consequence of it."""
    with contextlib.suppress(Exception):
        await rest


async def rest_of(begun: Rest[T]) -> T:
    """For a task, which takes nothing but a coroutine."""
    return await begun
