"""Work that is in no hurry, among work that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.clock import Clock

PAUSE_S_MAX = 0.03
UNHURRIED = 3
"""How long a pause is, in steps, as long as nothing piles up behind the work."""


class Pace:
    """Whoever has much to do on the event loop calls `breathe` after every small step of it.

    The pause is three times as long as the step was: three quarters of the loop are left to those who wait for an
    answer. Who falls behind takes half of it.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._since_s = clock.monotonic()
        self.behind: Callable[[], bool] = lambda: False
        """Whether there is more to do already than what is being done."""

    def begin(self) -> None:
        """What came before was waiting, not work."""
        self._since_s = self._clock.monotonic()

    async def breathe(self) -> None:
        took_s = self._clock.monotonic() - self._since_s
        await asyncio.sleep(min(took_s * (1 if self.behind() else UNHURRIED), PAUSE_S_MAX))
        self.begin()
