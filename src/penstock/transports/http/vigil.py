"""Staying awake for a moment behind an answer to a lone caller, who is likely to ask again.

A thread that sleeps has to be woken, and on a shared machine its processor has gone cold by then: a request that finds
the event loop asleep takes longer, and costs about as much more of the processor as it would have cost to wait for it.
Who works with a broker in a loop is back within a tenth of a millisecond or two. So the loop turns idly for that long,
serving whatever comes, and sleeps only then.

Whoever does not come back so soon is not waited for: after a vain wait answers go without, twice as many after the next
one. ADR 0032 has the measurements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SKIPPED_MAX = 64
"""Answers that go without, at most, after several in a row whose callers did not come back in time."""


class Vigil:
    """Of one event loop. All methods are cheap: they are called for every request."""

    __slots__ = ("_asked", "_monotonic", "_seconds", "_skip", "_skipping", "_until", "_watching")

    def __init__(self, monotonic: Callable[[], float], wait_us: int):
        """`wait_us`: how long; 0 for not at all."""
        self._seconds = wait_us / 1e6
        self._monotonic = monotonic
        self._until = 0.0
        self._asked = False
        self._watching = False
        self._skip = 1
        """Answers to pass over after the next vain wait."""
        self._skipping = 0
        """Of those, still to come."""

    def asked(self) -> None:
        """A request has come."""
        self._asked = True
        if self._watching:
            self._skip = 1

    def answered(self) -> None:
        """A lone caller has its answer."""
        if self._skipping:
            self._skipping -= 1
            return
        if not self._seconds:
            return
        self._asked = False
        self._until = self._monotonic() + self._seconds
        if not self._watching:
            self._watching = True
            asyncio.get_running_loop().call_soon(self._watch)

    def _watch(self) -> None:
        """Once in every turn of the loop, which looks at its sockets in between and does not wait for them."""
        if self._asked:
            self._watching = False
        elif self._monotonic() < self._until:
            asyncio.get_running_loop().call_soon(self._watch)
        else:
            self._watching = False
            self._skipping, self._skip = self._skip, min(2 * self._skip, SKIPPED_MAX)
