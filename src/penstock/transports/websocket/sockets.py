"""All WebSocket connections of a node: handshake, limits, pings, shared writes, drain, metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock import limits
from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.transports.access import Access
from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Peer, Request
from penstock.transports.memory_budget import MemoryBudget
from penstock.transports.metrics import Metrics
from penstock.transports.websocket.codec import Codec
from penstock.transports.websocket.connection import Connection, ProtocolSpec
from penstock.transports.websocket.handshake import PATH, check_handshake, check_plain_handshake
from penstock.transports.websocket.session import WebSocketSession
from penstock.transports.websocket.tails import QueueTails
from penstock.wire import stream

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from penstock.broker.service import Broker
    from penstock.security.principal import Principal
    from penstock.transports.auth import Authenticator

PING_GROUPS = 30
"""Connections are pinged in this many groups, one after the other, to spread the pings over time."""

_CODES = {close.code for close in stream.CLOSES} | {1001, 1005, 1006}


class Admitted(NamedTuple):
    """The principal of a connection, and its means."""

    principal: Principal
    peer: Peer
    broker: Broker
    """Guarded."""
    protocols: Mapping[str, ProtocolSpec]
    """Of dialects, with the guarded broker."""
    auth: Authenticator


class CredentialGate(Protocol):
    def admit(self, request: Request) -> Admitted:
        """Check the credential of a handshake. Raises Unauthenticated or RateLimited."""


class WebSockets:
    """One per node."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        metrics: Metrics,
        respond: Callable[[Request], Awaitable[Answer | None]],
        access: Access | None = None,
        protocols: Mapping[str, ProtocolSpec] | None = None,
        memory: MemoryBudget | None = None,
        gate: CredentialGate | None = None,
    ):
        self.broker = broker
        self.clock = clock
        self.metrics = metrics
        self.respond = respond
        """Handles an HTTP request, for `call` and `publish` frames."""
        self.access = access or Access()
        self.protocols = protocols or {}
        """The protocols of dialects, by path."""
        self._gate = gate
        """None: the server asks for no credentials."""
        self.memory = memory or MemoryBudget()
        self.tails = QueueTails(broker)
        self.draining = False
        self._groups: list[set[Connection]] = [set() for _ in range(PING_GROUPS)]
        self._count = 0
        self._ping_group = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unwritten: list[Connection] = []
        self._returns: set[asyncio.Task[None]] = set()
        self._subscriptions: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        metrics.count_websockets = lambda: self._count
        metrics.collectors.append(self._families)

    def commit_now(self) -> None:
        self.broker.commit_now()

    # -- connections --------------------------------------------------------------------------------------------------

    def opens(self, path: str) -> bool:
        """True if this path accepts WebSocket handshakes."""
        return path == PATH or path in self.protocols

    def open(self, request: Request, transport: asyncio.Transport, server_state: ServerState) -> asyncio.Protocol:
        """Accept the handshake and return the protocol that replaces HTTP on this connection. Raises PenstockError."""
        admitted = self._gate.admit(request) if self._gate is not None else None
        protocol = (self.protocols if admitted is None else admitted.protocols).get(request.path)
        if protocol is not None:
            answer = check_plain_handshake(request, self.access)
        else:
            codec, answer = check_handshake(request, self.access)
            protocol = self.native_protocol(codec, admitted)
        self._check_limit()
        close = None if admitted is None else admitted.auth.quotas.open_stream(admitted.principal)
        try:
            connection = Connection(self, protocol, transport, server_state)
        except PenstockError:
            if close is not None:
                close()
            raise
        # The frames of the handler are written at the end of this turn.
        transport.write(answer)
        if admitted is not None and close is not None:
            connection.on_closed = close
            connection.follow(admitted.auth, admitted.principal)
        return connection

    def native_protocol(self, codec: Codec, admitted: Admitted | None = None) -> ProtocolSpec:
        """The protocol of `/v1/ws` with this codec."""
        begin = partial(WebSocketSession, self, codec, admitted=admitted)
        return ProtocolSpec(codec.opcode, codec.message_bytes_max, begin)

    def _check_limit(self) -> None:
        if self.draining:
            raise Unavailable("the server is stopping", retry_after_ms=1_000)
        if self._count >= limits.WEBSOCKETS_MAX:
            raise Unavailable(f"{limits.WEBSOCKETS_MAX} WebSockets are open, which is the limit", retry_after_ms=1_000)

    def add(self, connection: Connection) -> None:
        min(self._groups, key=len).add(connection)
        self._count += 1
        if self._timer is None:
            self._schedule_ping()

    def remove(self, connection: Connection, code: int) -> None:
        for group in self._groups:
            if connection in group:
                group.remove(connection)
                self._count -= 1
                connection.removed()
                # Clients may close with any code, so unknown codes share one label.
                self._closed[str(code) if code in _CODES else "other"] += 1
        if not self._count and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule_ping(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            limits.WEBSOCKET_PING_MS / 1000 / PING_GROUPS, self._ping_next_group
        )

    def _ping_next_group(self) -> None:
        self._ping_group = (self._ping_group + 1) % PING_GROUPS
        self._schedule_ping()
        for connection in list(self._groups[self._ping_group]):
            connection.ping()

    def drain(self) -> None:
        """Stop deliveries. Each connection closes when its messages are settled, or when its grace time is over."""
        self.draining = True
        for group in self._groups:
            for connection in list(group):
                connection.shutdown()

    # -- writes at the end of a turn ----------------------------------------------------------------------------------

    def write_soon(self, connection: Connection) -> None:
        """Call `write_now` of the connection at the end of this turn of the event loop."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append(connection)

    def _write(self) -> None:
        connections, self._unwritten = self._unwritten, []
        for connection in connections:
            connection.write_now()

    # -- leases of ended subscriptions --------------------------------------------------------------------------------

    def return_leases(self, receipts: Sequence[str], *, lost: bool) -> None:
        """Settle the leases of an ended subscription: nack if the connection was `lost`, otherwise release."""
        if receipts:
            task = asyncio.get_running_loop().create_task(self._return(receipts, lost=lost))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _return(self, receipts: Sequence[str], *, lost: bool) -> None:
        try:
            if lost:
                await self.broker.messages.nack(receipts, error="the connection was lost")
            else:
                await self.broker.messages.release(receipts)
        except PenstockError:
            pass  # the broker is too busy or stopping: the leases expire

    @property
    def returning(self) -> bool:
        return bool(self._returns)

    # -- metrics ------------------------------------------------------------------------------------------------------

    def subscribed(self, role: str, count: int) -> None:
        self._subscriptions[role] += count

    def sent(self, role: str, count: int) -> None:
        self._messages[role] += count

    def _families(self) -> Iterator[Metric]:
        subscriptions = GaugeMetricFamily(
            "penstock_websocket_subscriptions", "Subscriptions of open WebSockets.", labels=["role"]
        )
        messages = CounterMetricFamily(
            "penstock_websocket_messages", "Messages sent to subscriptions.", labels=["role"]
        )
        for role in ("reader", "consumer"):
            subscriptions.add_metric([role], self._subscriptions[role])
            messages.add_metric([role], self._messages[role])
        closed = CounterMetricFamily(
            "penstock_websocket_closed",
            f"WebSockets that ended, by close code; {stream.SLOW.code}: slow readers that were evicted.",
            labels=["code"],
        )
        for code, count in sorted(self._closed.items()):
            closed.add_metric([code], count)
        yield from (subscriptions, messages, closed)
