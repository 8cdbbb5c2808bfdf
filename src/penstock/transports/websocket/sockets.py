"""All WebSockets of a node: who may open one, what they share, and when they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock import limits
from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.transports.access import Access
from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Request
from penstock.transports.metrics import Metrics
from penstock.transports.websocket.codec import Codec
from penstock.transports.websocket.connection import Connection, Spoken
from penstock.transports.websocket.handshake import PATH, check_handshake, check_plain_handshake
from penstock.transports.websocket.session import Session
from penstock.transports.websocket.tails import Tails
from penstock.wire import stream

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from penstock.broker.service import Broker

BEATS = 30
"""Groups that connections are pinged in, one after the other, so that pings do not come all at once."""

_CODES = {close.code for close in stream.CLOSES} | {1001, 1005, 1006}


class WebSockets:
    """One per node."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        metrics: Metrics,
        respond: Callable[[Request], Awaitable[Answer | None]],
        access: Access | None = None,
        others: Mapping[str, Spoken] | None = None,
    ):
        self.broker = broker
        self.clock = clock
        self.metrics = metrics
        self.respond = respond
        """As the HTTP edge answers."""
        self.access = access or Access()
        self.others = others or {}
        """By path: what else is spoken here than our own protocol."""
        self.tails = Tails(broker)
        self.draining = False
        self._groups: list[set[Connection]] = [set() for _ in range(BEATS)]
        self._count = 0
        self._beat = 0
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

    # -- coming and going ---------------------------------------------------------------------------------------------

    def opens(self, path: str) -> bool:
        """Tells whether a WebSocket can be opened at this path."""
        return path == PATH or path in self.others

    def open(self, request: Request, transport: asyncio.Transport, server_state: ServerState) -> asyncio.Protocol:
        """Accept the handshake. The connection then has nothing to do with HTTP any more. Raises PenstockError."""
        spoken = self.others.get(request.path)
        if spoken is not None:
            answer = check_plain_handshake(request, self.access)
        else:
            codec, answer = check_handshake(request, self.access)
            spoken = self.ours(codec)
        self._check_room()
        transport.write(answer)
        return Connection(self, spoken, transport, server_state)

    def ours(self, codec: Codec) -> Spoken:
        """Our own protocol."""
        return Spoken(codec.opcode, codec.message_bytes_max, partial(Session, self, codec))

    def _check_room(self) -> None:
        if self.draining:
            raise Unavailable("the server is stopping", retry_after_ms=1_000)
        if self._count >= limits.WEBSOCKETS_MAX:
            raise Unavailable(f"{limits.WEBSOCKETS_MAX} WebSockets are open, which is the limit", retry_after_ms=1_000)

    def add(self, connection: Connection) -> None:
        min(self._groups, key=len).add(connection)
        self._count += 1
        if self._timer is None:
            self._wait_for_beat()

    def remove(self, connection: Connection, code: int) -> None:
        for group in self._groups:
            if connection in group:
                group.remove(connection)
                self._count -= 1
                # Clients may close with any code; a label must not grow with what they think of.
                self._closed[str(code) if code in _CODES else "other"] += 1
        if not self._count and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_for_beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(limits.WEBSOCKET_PING_MS / 1000 / BEATS, self._on_beat)

    def _on_beat(self) -> None:
        self._beat = (self._beat + 1) % BEATS
        self._wait_for_beat()
        for connection in list(self._groups[self._beat]):
            connection.beat()

    def drain(self) -> None:
        """Deliver nothing more. Each connection ends when what it holds is settled, or its time for that is up."""
        self.draining = True
        for group in self._groups:
            for connection in list(group):
                connection.shutdown()

    # -- what connections share ---------------------------------------------------------------------------------------

    def write_soon(self, connection: Connection) -> None:
        """It has something to write at the end of this turn of the event loop."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append(connection)

    def _write(self) -> None:
        connections, self._unwritten = self._unwritten, []
        for connection in connections:
            connection.write_now()

    # -- what sessions share ------------------------------------------------------------------------------------------

    def give_back(self, receipts: Sequence[str], *, lost: bool) -> None:
        """What nobody will settle: to be tried again, or as if it had not been delivered."""
        if receipts:
            task = asyncio.get_running_loop().create_task(self._return(receipts, lost=lost))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _return(self, receipts: Sequence[str], *, lost: bool) -> None:
        try:
            if lost:
                await self.broker.nack(receipts, error="the connection was lost")
            else:
                await self.broker.release(receipts)
        except PenstockError:
            pass  # too busy, or stopping: then the leases run out

    @property
    def returning(self) -> bool:
        return bool(self._returns)

    # -- counting -----------------------------------------------------------------------------------------------------

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
