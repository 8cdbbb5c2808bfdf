"""The timer of a shard: fires at the shard's next deadline, and measures its delay.

It fires late after the event loop was stalled: by a slow disk, or because the process was stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from penstock.clock import Clock
from penstock.core.state import NEVER_MS

HOP_S = 0.1
"""A longer wait is divided into several timers; a shorter one may be late by a tenth while the clock is adjusted."""


class ShardTimer:
    """Runs on the event loop of its creation."""

    def __init__(self, clock: Clock, fire: Callable[[], None]):
        self._clock = clock
        self._on_fire = fire
        self._events = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = NEVER_MS
        self._due_s = inf

    def set(self, at_ms: int) -> None:
        """Fire at this time instead of the time set before; it may also fire earlier."""
        if at_ms == self._at_ms:
            return
        self.stop()
        self._at_ms = at_ms
        if at_ms < NEVER_MS:
            wait_s = max(0, at_ms - self._clock.now_ms()) / 1000
            if wait_s > HOP_S:
                # Journal time may run a tenth faster than timers: a far deadline is approached by several timers.
                wait_s = min(wait_s / 1.1, 3600)
            self._due_s = self._events.time() + wait_s
            self._timer = self._events.call_at(self._due_s, self._fire)

    def late_ms(self) -> int:
        """How long ago it should have fired; 0 if no deadline has passed."""
        return int(max(0.0, self._events.time() - self._due_s) * 1000)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at_ms = NEVER_MS
        self._due_s = inf

    def _fire(self) -> None:
        self._timer = None
        self._at_ms = NEVER_MS
        self._on_fire()
        if self._timer is None:
            self._due_s = inf
