"""An asyncio event loop on which time does not pass but jumps: to the next moment at which something happens.

It has no selector, no sockets and no threads, so a run is a function of its seed. A *process* is a set of tasks and
timers that share a context variable; ending it means that none of its callbacks runs ever again, mid-`await` or not.
No `finally` of a dead process is executed within simulated time, as none is after a kill.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import base_events
from typing import Any, TypeVar

H = TypeVar("H", bound=asyncio.Handle)

OWNER: contextvars.ContextVar[object | None] = contextvars.ContextVar("owner", default=None)
"""The process that a task or a timer belongs to; None for the world around it."""


class Standstill(Exception):
    """Everybody waits for somebody else: nothing will ever happen again."""


class VirtualLoop(base_events.BaseEventLoop):
    def __init__(self, start_s: float = 1000.0) -> None:
        super().__init__()
        self._now = start_s
        self._clock_resolution = 1e-9
        self._selector = self
        self.outside = contextvars.Context()
        """For callbacks that no process owns: packets on the wire, the world's own timers."""
        self._dead: list[object] = []
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> tuple[()]:
        """What the base class asks instead of the operating system: when is the next thing?"""
        if timeout is None:
            raise Standstill
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        return ()

    def end_process(self, owner: object) -> None:
        """Nothing that belongs to this process runs from now on, not even what its current step still asks for."""
        self._dead.append(owner)
        for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
            if handle._context is not None and handle._context.get(OWNER) is owner:
                handle.cancel()

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        return self._unless_dead(handle)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        return self._unless_dead(handle)

    def _unless_dead(self, handle: H) -> H:
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if owner is not None and owner in self._dead:
            handle.cancel()
        return handle

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator left behind by a dead process stays where it was."""

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        pass


def process_context(owner: object) -> contextvars.Context:
    context = contextvars.Context()
    context.run(OWNER.set, owner)
    return context


def later(loop: VirtualLoop, delay_s: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
    """A timer of the world itself, whoever asks for it."""
    return loop.call_at(loop.time() + delay_s, callback, *args, context=loop.outside)
