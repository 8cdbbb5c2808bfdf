"""The objects that every handler of the HTTP edge uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from penstock.broker.types import DeliveredRun, PublishedRun, QueueRow
from penstock.clock import Clock
from penstock.pending import PendingReply
from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Request
from penstock.transports.metrics import Metrics
from penstock.wire.audit import AuditEntry, AuditStateReply
from penstock.wire.logs import LogsReply, LogsRequest

if TYPE_CHECKING:
    from penstock.broker.service import Broker
    from penstock.security.principal import Principal
    from penstock.transports.auth import Authenticator
    from penstock.transports.http.event_stream import EventStreams


class AuditReader(Protocol):
    def read(self, after: int | None, limit: int) -> list[AuditEntry]: ...
    def verify(self) -> AuditStateReply: ...


class LogControl(Protocol):
    def show(self) -> LogsReply: ...
    def change(self, asked: LogsRequest, actor: str) -> LogsReply: ...


class StoredBytes(NamedTuple):
    """The files of a store, in bytes."""

    store: str = "memory:"
    fsync: str = "never"
    journal: int = 0
    segments: int = 0
    snapshots: int = 0
    disk_free: int | None = None
    disk_total: int | None = None


async def _nothing_stored() -> StoredBytes:
    return StoredBytes()


class Edge:
    """The broker, the clock and the counters. One per HTTP application."""

    __slots__ = (
        "audit", "auth", "broker", "clock", "draining", "list_connections", "log_levels", "metrics", "queue_rows",
        "storage", "streams",
    )  # fmt: skip

    def __init__(self, broker: Broker, clock: Clock, metrics: Metrics):
        self.broker = broker
        self.clock = clock
        self.metrics = metrics
        self.draining = False
        """True when the process stops: `/readyz` then answers 503."""
        self.list_connections: Callable[[], list[dict[str, Any]]] = list
        """Describes the open connections. The HTTP server sets it."""
        self.streams: EventStreams | None = None
        self.queue_rows: tuple[int, list[QueueRow]] | None = None
        """All queues, and when they were counted."""
        self.storage: Callable[[], Awaitable[StoredBytes]] = _nothing_stored
        """Measures the files of the store. The server sets it."""
        self.log_levels: LogControl | None = None
        """None: the process configures its own logging."""
        self.audit: AuditReader | None = None
        """None: the server keeps no audit trail."""
        self.auth: Authenticator | None = None
        """None: the server asks for no credentials."""

    def charge(self, *, settles: bool = False) -> None:
        """Count a request that came otherwise than by HTTP. Raises RateLimited, unless it settles messages."""

    def count_publish(self, runs: Sequence[PublishedRun], started: float) -> None:
        self.metrics.published(runs)
        self.metrics.publish_seconds.observe(self.clock.monotonic() - started)

    def count_lease(self, runs: Sequence[DeliveredRun], started: float) -> None:
        self.metrics.delivered(runs, self.clock.now_ms())
        self.metrics.lease_seconds.observe(self.clock.monotonic() - started)


class PrincipalEdge(Edge):
    """The edge for requests of one principal: the same, with the guarded broker."""

    __slots__ = ("_principal", "_whole")

    def __init__(self, whole: Edge, broker: Broker, principal: Principal):
        self._whole = whole
        self._principal = principal
        super().__init__(broker, whole.clock, whole.metrics)

    def charge(self, *, settles: bool = False) -> None:
        if self._whole.auth is not None:
            self._whole.auth.quotas.demand_request(self._principal, settles=settles)

    @property
    def draining(self) -> bool:
        return self._whole.draining

    @draining.setter
    def draining(self, value: bool) -> None:
        assert not value, "the whole edge is drained"


Outcome: TypeAlias = Answer | PendingReply[Answer] | Coroutine[Any, Any, Answer]

Handler: TypeAlias = Callable[[Edge, Request], Outcome]
"""One operation: reads the request, calls the broker, and returns an answer, a pending reply of one, or a coroutine if
it waits more than once. Raises PenstockError."""
