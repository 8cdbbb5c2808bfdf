"""What every handler of the HTTP edge works with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from penstock.clock import Clock
from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Request
from penstock.transports.metrics import Metrics

if TYPE_CHECKING:
    from penstock.broker.service import Broker


class Edge:
    """The broker, the clock and the counters. One per HTTP application."""

    __slots__ = ("broker", "clock", "draining", "metrics")

    def __init__(self, broker: Broker, clock: Clock, metrics: Metrics):
        self.broker = broker
        self.clock = clock
        self.metrics = metrics
        self.draining = False
        """Set once, when the process begins to stop: from then on `/readyz` sends traffic elsewhere."""

    def published_since(self, started: float) -> None:
        """A publish that began then is answered, and durable in the next turn of the loop: a lone caller's answer is
        made a little before that."""
        asyncio.get_running_loop().call_soon(self._note_publish, started)

    def _note_publish(self, started: float) -> None:
        self.metrics.publish_took(self.clock.monotonic() - started)


Handler: TypeAlias = Callable[[Edge, Request], Awaitable[Answer]]
"""One operation: reads the request, asks the broker, writes the answer. Raises PenstockError for everything else."""
