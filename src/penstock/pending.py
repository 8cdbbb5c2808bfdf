"""A reply that is known before it may be sent.

The shard decides a command on arrival, so its reply is known at once; but the reply must not reach the client before
the commit that holds the command's records is durable. `PendingReply` stands for the reply in the meantime. The shard
completes it in two steps, so that the answer can be built while the disk works:

- `prepare(reply)`, while the commit is being written: the steps that callers added by `then` run now. A step is a
  plain function of the reply; it must not send anything, because the commit can still fail.
- `complete(reply)`, when the commit is durable: the outcome goes to the callback, or to the coroutine that awaits it.

`fail(error)` takes the place of both if the commit failed or the command was refused: the prepared value is dropped.

A transport either awaits a pending reply like a future, or calls `deliver` with a callback and needs no task.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from enum import IntEnum
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")

OnError = Callable[[Exception], Any]


class _State(IntEnum):
    WAITING = 0
    PREPARED = 1
    DONE = 2
    CANCELLED = 3


class PendingReply(Generic[T]):
    """One reply, for one caller. All methods run on the event loop's thread."""

    __slots__ = ("_callback", "_error", "_future", "_state", "_steps", "_value", "on_cancel", "on_withdraw")

    def __init__(self) -> None:
        self._state = _State.WAITING
        self._steps: list[tuple[Callable[[Any], Any], OnError | None]] = []
        self._value: Any = None
        self._error: Exception | None = None
        self._callback: Callable[[PendingReply[T]], None] | None = None
        self._future: asyncio.Future[None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        """Called once if the caller gives the reply up, also after it was sent but before the caller took it."""
        self.on_withdraw: Callable[[], None] | None = None
        """Called if the caller stops waiting for the command to be decided."""

    # -- for the caller -----------------------------------------------------------------------------------------------

    def then(self, step: Callable[[T], U], on_error: Callable[[Exception], U] | None = None) -> PendingReply[U]:
        """Add a step that turns the reply into another value; `on_error` turns a failure before it into a value.

        Either may raise: the reply then fails with that error. Returns this object under its new type.
        """
        self._steps.append((step, on_error))
        if self._state is not _State.WAITING:
            self._run_steps()
        return cast("PendingReply[U]", self)

    def deliver(self, callback: Callable[[PendingReply[T]], None]) -> None:
        """Call `callback` with this object when it is done: at once if it is, otherwise from `complete` or `fail`."""
        if self._state >= _State.DONE:
            callback(self)
        else:
            self._callback = callback

    def done(self) -> bool:
        return self._state >= _State.DONE

    def cancelled(self) -> bool:
        return self._state is _State.CANCELLED

    @property
    def failed(self) -> bool:
        """True if the outcome is an error, as far as it is known."""
        return self._error is not None

    def result(self) -> T:
        """The outcome of a reply that is done; raises the error that it failed with."""
        assert self._state is _State.DONE, "the reply is not done"
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    @property
    def prepared(self) -> T:
        """The value of a reply that was prepared: for a reply that is completed behind it and contains its value."""
        assert self._state in (_State.PREPARED, _State.DONE), "the reply is not known yet"
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def cancel(self) -> None:
        """Give the reply up. The command stays decided; what it reserved for this caller is returned by `on_cancel`."""
        if self._state is _State.CANCELLED:
            return
        if self._state is not _State.DONE:
            self._state = _State.CANCELLED
        on_cancel, self.on_cancel = self.on_cancel, None
        if on_cancel is not None:
            on_cancel()
        self._finish()

    def withdraw(self) -> None:
        """Ask for the reply now, even if it is empty: a lease that waits for messages stops waiting."""
        if self.on_withdraw is not None and not self.done():
            self.on_withdraw()

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            self._future = asyncio.get_running_loop().create_future()
            try:
                yield from self._future
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._state is _State.CANCELLED:
            raise asyncio.CancelledError
        return self.result()

    # -- for the shard ------------------------------------------------------------------------------------------------

    def prepare(self, reply: Any) -> None:
        """The commit is being written: run the steps. A step that raises makes the reply fail when it is sent."""
        if self._state is not _State.WAITING:
            return
        self._state = _State.PREPARED
        self._value = reply
        self._run_steps()

    def fail(self, error: Exception) -> None:
        """Drop the prepared value and deliver the error."""
        if self.done():
            return
        if self._state is _State.PREPARED:
            # The steps have run on a reply that never became durable; their error handlers do not apply to it.
            self._value, self._error = None, error
        else:
            self._error = error
            self._run_steps()
        self._state = _State.DONE
        self._finish()

    def complete(self, reply: Any) -> None:
        """The commit is durable, or the reply needs none: hand the outcome over, prepared now if it was not before."""
        if self._state is _State.WAITING:
            self.prepare(reply)
        if self._state is _State.PREPARED:
            self._state = _State.DONE
            self._finish()

    def _run_steps(self) -> None:
        steps, self._steps = self._steps, []
        for step, on_error in steps:
            try:
                if self._error is None:
                    self._value = step(self._value)
                elif on_error is not None:
                    self._value = on_error(self._error)
                    self._error = None
            except Exception as error:
                self._value, self._error = None, error

    def _finish(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback(self)
            except Exception as error:
                # The commit that sends this reply sends others too, and none of them may suffer from this caller.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "the callback of a reply failed", "exception": error}
                )
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


async def value_of(part: Awaitable[T] | T) -> T:
    """The value of a call that answers at once or with an awaitable."""
    return await part if inspect.isawaitable(part) else part
