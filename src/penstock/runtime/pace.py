"""Work that is in no hurry, among work that is."""

from __future__ import annotations

import asyncio

from penstock.clock import Clock

PAUSE_S_MAX = 0.01


class Pace:
    """Whoever has much to do on the event loop calls `breathe` after every small step of it.

    The pause is as long as the step was, so that at least half of the loop is left to those who wait for an answer.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._since_s = clock.monotonic()

    def begin(self) -> None:
        """What came before was waiting, not work."""
        self._since_s = self._clock.monotonic()

    async def breathe(self) -> None:
        took_s = self._clock.monotonic() - self._since_s
        await asyncio.sleep(min(took_s, PAUSE_S_MAX))
        self.begin()
