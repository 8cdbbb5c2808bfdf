"""The objects that gRPC calls share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.transports.auth import Authenticator
from penstock.transports.grpc.peers import Peers
from penstock.transports.metrics import Metrics

if TYPE_CHECKING:
    from penstock.broker.service import Broker
    from penstock.security.principal import Principal


async def _suppress_refusal(work: Callable[[], Awaitable[Any]]) -> None:
    """Run `work`. If the broker is too busy for it, or closed, the leases that it would have returned expire."""
    with suppress(PenstockError):
        await work()


class GrpcEdge:
    """The broker, the clock, the metrics, and tasks that outlive the calls that started them."""

    __slots__ = ("_detached", "_edges", "auth", "broker", "clock", "draining", "metrics", "peers")

    def __init__(self, broker: Broker, clock: Clock, metrics: Metrics, peers: Peers):
        self.broker = broker
        self.clock = clock
        self.metrics = metrics
        self.peers = peers
        self.draining = asyncio.Event()
        """Set when the server starts to stop."""
        self.auth: Authenticator | None = None
        """None: the server asks for no credentials."""
        self._detached: set[asyncio.Task[Any]] = set()

    def edge_for(self, principal: Principal) -> GrpcEdge:
        """The same for calls of one principal, with the guarded broker."""
        assert self.auth is not None
        found: GrpcEdge | None = principal.kept.get(self)
        if found is None:
            found = GrpcEdge(self.auth.broker_for(principal), self.clock, self.metrics, self.peers)
            found.draining, found._detached = self.draining, self._detached
            principal.kept[self] = found
        return found

    def run_detached(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run `work` in its own task, because a cancelled call cannot await it."""
        task = asyncio.ensure_future(_suppress_refusal(work))
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)

    async def wait_detached(self) -> None:
        """Wait until all detached tasks have ended."""
        while self._detached:
            await asyncio.wait(self._detached)
