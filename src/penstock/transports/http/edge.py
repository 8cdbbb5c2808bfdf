"""The objects that every handler of the HTTP edge uses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.broker.types import PublishedRun
from penstock.clock import Clock
from penstock.pending import PendingReply
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

    def count_publish(self, runs: Sequence[PublishedRun], started: float) -> None:
        self.metrics.published(runs)
        self.metrics.publish_took(self.clock.monotonic() - started)


Outcome: TypeAlias = Answer | PendingReply[Answer] | Coroutine[Any, Any, Answer]

Handler: TypeAlias = Callable[[Edge, Request], Outcome]
"""One operation: reads the request, asks the broker, and returns an answer, the pending reply that becomes one, or a
coroutine if it has to wait more than once. Raises PenstockError for everything else."""
