"""Cooperative throttling of background work on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.clock import Clock

PAUSE_S_MAX = 0.03
UNHURRIED = 3
"""The length of a pause, in durations of the step before it, unless the work falls behind."""


class Pace:
    """Background work calls `breathe` after every small step.

    The pause is three times as long as the step, so three quarters of the event loop's time are left to requests. Work
    that falls behind pauses as long as the step and takes half.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._since_s = clock.monotonic()
        self.behind: Callable[[], bool] = lambda: False
        """True if more work is due already."""

    def begin(self) -> None:
        """Start a step: the time before it was not work."""
        self._since_s = self._clock.monotonic()

    async def breathe(self) -> None:
        took_s = self._clock.monotonic() - self._since_s
        await asyncio.sleep(min(took_s * (1 if self.behind() else UNHURRIED), PAUSE_S_MAX))
        self.begin()
