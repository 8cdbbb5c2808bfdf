"""What every call of the gRPC edge works with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.transports.grpc.peers import Peers
from penstock.transports.metrics import Metrics

if TYPE_CHECKING:
    from penstock.broker.service import Broker


async def _unless_refused(work: Callable[[], Awaitable[Any]]) -> None:
    """Run `work`. If the broker is too busy for it, or closed, the leases that it would have returned expire."""
    with suppress(PenstockError):
        await work()


class Edge:
    """The broker, the clock and the counters; and what still has to be done for calls that have ended."""

    __slots__ = ("_afterwards", "broker", "clock", "draining", "metrics", "peers")

    def __init__(self, broker: Broker, clock: Clock, metrics: Metrics, peers: Peers):
        self.broker = broker
        self.clock = clock
        self.metrics = metrics
        self.peers = peers
        self.draining = asyncio.Event()
        """Set once, when the process begins to stop."""
        self._afterwards: set[asyncio.Task[Any]] = set()

    def afterwards(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Do this whatever becomes of the call that wanted it: a call that is cancelled cannot wait for anything."""
        task = asyncio.ensure_future(_unless_refused(work))
        self._afterwards.add(task)
        task.add_done_callback(self._afterwards.discard)

    async def settle(self) -> None:
        """Returns when nothing is left to be done for calls that have ended."""
        while self._afterwards:
            await asyncio.wait(self._afterwards)
