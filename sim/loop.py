"""An asyncio event loop with simulated time: it jumps to the time of the next callback.

It has no selector, no sockets and no threads, so a run is a function of its seed. A *process* is a set of tasks and
timers that share a context variable; after its end none of its callbacks runs again, even in the middle of an `await`.
No `finally` of an ended process runs within simulated time, as after a kill.
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
"""The process of a task or a timer; None for the simulation itself."""


class Standstill(Exception):
    """Deadlock: no callback is scheduled."""


class VirtualLoop(base_events.BaseEventLoop):
    _ready: Any
    """Of the base class: handles to be run in this turn."""

    def __init__(self, start_s: float = 1000.0) -> None:
        super().__init__()
        self._now = start_s
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        """A heap with a sequence number behind the time: it keeps the order of equal times, and handles are not
        compared."""
        self._numbers = count()
        self._dead: set[object] = set()
        self._lull_until = 0.0
        self._still: dict[object, float] = {}
        """Stopped processes, with the time at which they continue."""
        self.outside = contextvars.Context()
        """The owner of callbacks without a process: packets of the network, timers of the simulation."""
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._now

    def end_process(self, owner: object) -> None:
        """No callback of this process runs from now on, including those that its current step schedules."""
        self._dead.add(owner)
        self._still.pop(owner, None)
        for handle in (*self._ready, *(handle for _, _, handle in self._timers)):
            if handle._context.get(OWNER) is owner:
                handle.cancel()

    def lull(self, seconds: float) -> None:
        """Suspend all clients for this long; the machine, its disk and the network go on. Models closed laptops."""
        self._lull_until = self._now + seconds
        self._timers = [
            (when + seconds if self._may_sleep(handle) else when, number, handle)
            for when, number, handle in self._timers
        ]
        heapify(self._timers)

    def stand_still(self, owner: object, seconds: float) -> None:
        """Stop the process for this long; then its callbacks run in their order. Models SIGSTOP, or a disk that does
        not answer. Requests to it wait; the clocks go on."""
        until = self._still[owner] = max(self._now + seconds, self._still.get(owner, 0.0))
        # In the order of their times, as an event loop runs them.
        self._timers.sort()
        self._timers = [
            (until, next(self._numbers), handle)
            if when < until and handle._context.get(OWNER) is owner  # type: ignore[attr-defined]
            else (when, number, handle)
            for when, number, handle in self._timers
        ]
        heapify(self._timers)

    def _wakes_at(self, handle: asyncio.Handle) -> float:
        """The earliest time at which this callback may run."""
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
        """One turn of the loop: the next callbacks come from the heap."""
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
        """Cancelled timers are dropped at their time."""

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator of an ended process is not finalized."""

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        pass


def process_context(owner: object) -> contextvars.Context:
    context = contextvars.Context()
    context.run(OWNER.set, owner)
    return context


def later(loop: VirtualLoop, delay_s: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
    """A timer of the simulation, also if a process sets it."""
    return loop.call_at(loop.time() + delay_s, callback, *args, context=loop.outside)
