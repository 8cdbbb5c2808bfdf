"""The timer of a shard: rings when time has something to do, and knows when it rings late.

It is late when nobody was there to hear it: the disk did not answer, or the process was stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from penstock.clock import Clock
from penstock.core.state import NEVER_MS

HOP_S = 0.1
"""A longer wait is taken in hops; a shorter one may be late by a tenth of itself while clocks are being mended."""


class Alarm:
    """On the event loop that runs when it is made."""

    def __init__(self, clock: Clock, ring: Callable[[], None]):
        self._clock = clock
        self._ring = ring
        self._events = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = NEVER_MS
        self._due_s = inf

    def set(self, at_ms: int) -> None:
        """Ring then, and not at any other time that was asked for before; maybe also earlier, on the way."""
        if at_ms == self._at_ms:
            return
        self.stop()
        self._at_ms = at_ms
        if at_ms < NEVER_MS:
            wait_s = max(0, at_ms - self._clock.now_ms()) / 1000
            if wait_s > HOP_S:
                # Journal time may run a tenth faster than timers do: what is far is approached in a few hops.
                wait_s = min(wait_s / 1.1, 3600)
            self._due_s = self._events.time() + wait_s
            self._timer = self._events.call_at(self._due_s, self._fire)

    def late_ms(self) -> int:
        """How long ago it should have rung; 0 if there was no reason to."""
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
        self._ring()
        if self._timer is None:
            self._due_s = inf
