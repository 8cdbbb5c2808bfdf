"""Long work on the event loop, in steps: throttled background work, and reads of a large state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.clock import Clock

PAUSE_S_MAX = 0.03
UNHURRIED = 3
"""The length of a pause, in durations of the step before it, unless the work falls behind."""


class Pace:
    """Background work calls `yield_to_loop` after every small step.

    The pause is three times as long as the step, so three quarters of the event loop's time are left to requests. Work
    that falls behind pauses as long as the step and takes half.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._since_s = clock.monotonic()
        self.behind: Callable[[], bool] = lambda: False
        """True if more work is due already."""
        self._hurried = False

    def hurry(self) -> None:
        """Pause no more: the process ends, and requests are no longer served."""
        self._hurried = True

    def begin(self) -> None:
        """Start a step: the time before it was not work."""
        self._since_s = self._clock.monotonic()

    async def yield_to_loop(self) -> None:
        """Pause, then start the next step."""
        took_s = self._clock.monotonic() - self._since_s
        share = 0 if self._hurried else 1 if self.behind() else UNHURRIED
        await asyncio.sleep(min(took_s * share, PAUSE_S_MAX))
        self.begin()


class Slices:
    """A long read calls `spend` after every piece of it, which gives way to other work whenever `most` was spent.

    Costs are counted, not timed, so that a simulated run can be repeated. 100 are about a quarter of a millisecond.
    """

    def __init__(self, give_way: Callable[[], Awaitable[None]], most: int = 250):
        self._give_way = give_way
        self._most = most
        self._spent = 0

    async def spend(self, cost: int) -> None:
        self._spent += cost
        if self._spent >= self._most:
            self._spent = 0
            await self._give_way()
