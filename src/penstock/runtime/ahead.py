"""What a lone caller's thread does while the disk makes its commit durable: it prepares the answer.

The answer is known before it is durable, and turning it into bytes takes about as long as the disk does. Nobody else
runs in between, and the bytes do not leave before the commit is durable; if it fails, they never do. Once it is durable
they leave first: what is left to note down here is done while they are on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Sized
from typing import Any

from penstock.clock import Clock
from penstock.eager import Rest
from penstock.runtime.share import Parked


class Ahead:
    """The caller of one commit, as its journal sees it (`journal.port.Meanwhile`)."""

    __slots__ = ("_caller", "_clock", "_pile", "_share", "asked", "took_s")

    def __init__(self, share: Sequence[Parked], pile: Sized, caller: Rest[Any], clock: Clock):
        self._share = share
        self._pile = pile
        self._caller = caller
        self._clock = clock
        self.asked = 0
        """Commands that the caller gave, knowing the answer: they are not somebody else's."""
        self.took_s = 0.0

    def written(self) -> None:
        if any(parked.published for parked in self._share) and any(parked.leaving for parked in self._share):
            return  # what is handed over may be published by this very commit, and cannot be found before it is durable
        answers: dict[asyncio.Future[Any], Any] = {
            parked.future: parked.reply for parked in self._share if parked.future is not None and parked.ahead
        }
        begun, waiting = self._clock.monotonic(), len(self._pile)
        self._caller.go_ahead(answers)
        self.took_s, self.asked = self._clock.monotonic() - begun, len(self._pile) - waiting

    def durable(self) -> None:
        begun = self._clock.monotonic()
        self._caller.come_true()
        self.took_s += self._clock.monotonic() - begun
