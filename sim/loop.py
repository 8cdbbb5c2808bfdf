"""An asyncio event loop on which time does not pass but jumps: to the next moment at which something happens.

It has no selector, no sockets and no threads, so a run is a function of its seed. A *process* is a set of tasks and
timers that share a context variable; ending it means that none of its callbacks runs ever again, mid-`await` or not.
No `finally` of a dead process is executed within simulated time, as none is after a kill.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import base_events
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeVar

H = TypeVar("H", bound=asyncio.Handle)

OWNER: contextvars.ContextVar[object | None] = contextvars.ContextVar("owner", default=None)
"""The process that a task or a timer belongs to; None for the world around it."""


class Standstill(Exception):
    """Everybody waits for somebody else: nothing will ever happen again."""


class VirtualLoop(base_events.BaseEventLoop):
    _ready: Any
    """Of the base class: handles to be run in this turn."""

    def __init__(self, start_s: float = 1000.0) -> None:
        super().__init__()
        self._now = start_s
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        """A heap of our own: the number behind the time keeps the order of equals, and spares comparing handles."""
        self._numbers = count()
        self._dead: set[object] = set()
        self._lull_until = 0.0
        self._still: dict[object, float] = {}
        """Processes that stand still, and until when."""
        self.outside = contextvars.Context()
        """For callbacks that no process owns: packets on the wire, the world's own timers."""
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._now

    def end_process(self, owner: object) -> None:
        """Nothing that belongs to this process runs from now on, not even what its current step still asks for."""
        self._dead.add(owner)
        self._still.pop(owner, None)
        for handle in (*self._ready, *(handle for _, _, handle in self._timers)):
            if handle._context.get(OWNER) is owner:
                handle.cancel()

    def lull(self, seconds: float) -> None:
        """All clients fall asleep where they are, and go on after so long as if nothing had been: laptops that were
        closed. The machine, its disk and the network stay awake."""
        self._lull_until = self._now + seconds
        self._timers = [
            (when + seconds if self._may_sleep(handle) else when, number, handle)
            for when, number, handle in self._timers
        ]
        heapify(self._timers)

    def stand_still(self, owner: object, seconds: float) -> None:
        """Nothing of this process runs for so long, and then everything at once, as it would have come: SIGSTOP, or
        a disk that does not answer. What others send to it waits; the clocks go on."""
        until = self._still[owner] = max(self._now + seconds, self._still.get(owner, 0.0))
        # In the order in which they were due, as an event loop finds them.
        self._timers.sort()
        self._timers = [
            (until, next(self._numbers), handle)
            if when < until and handle._context.get(OWNER) is owner  # type: ignore[attr-defined]
            else (when, number, handle)
            for when, number, handle in self._timers
        ]
        heapify(self._timers)

    def _wakes_at(self, handle: asyncio.Handle) -> float:
        """When this may run at the earliest."""
        return self._still.get(handle._context.get(OWNER), 0.0) if self._still else 0.0  # type: ignore[attr-defined]

    def _may_sleep(self, handle: asyncio.Handle) -> bool:
        context = handle._context  # type: ignore[attr-defined]
        return context is not self.outside and context.get(OWNER) is None

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = self._unless_dead(asyncio.Handle(callback, args, self, context))
        wakes_at = self._wakes_at(handle)
        if wakes_at > self._now:
            heappush(self._timers, (wakes_at, next(self._numbers), handle))
        else:
            self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = self._unless_dead(asyncio.TimerHandle(when, callback, args, self, context))
        if self._now < self._lull_until and self._may_sleep(handle):
            when += self._lull_until - self._now
        when = max(when, self._wakes_at(handle))
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _unless_dead(self, handle: H) -> H:
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if owner is not None and owner in self._dead:
            handle.cancel()
        return handle

    def _run_once(self) -> None:
        """One turn. The base class asks the operating system here; we ask the heap."""
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise Standstill
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

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
