"""`/v1/events/stream`: events as they become durable, as server-sent events.

The stream is a sample for people and pages: of a large batch the first messages are named and the rest are counted, and
a stream that cannot keep up loses events and is told how many. A program that needs every event reads `/v1/events`.
All streams share one watcher of the feed; an event is encoded once, whatever the number of its readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

from penstock import limits
from penstock.broker.feed import Feed, Happening
from penstock.clock import Clock
from penstock.errors import Unavailable
from penstock.ids import QueuePath
from penstock.security.principal import Principal
from penstock.transports.http.answer import Answer, StreamProtocol
from penstock.transports.http.connections import described
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.event_stream import EventStreamQuery, StreamedEvent
from penstock.wire.parse import parse_query, parse_queue

EVENT_STREAM_TYPE = b"text/event-stream"
TICK_S = 1.0
HEARTBEAT_TICKS = 15

_encode = msgspec.json.Encoder().encode


def event_stream(edge: Edge, request: Request) -> Answer:
    asked = parse_query(EventStreamQuery, request.query)
    queue = None if asked.queue is None else parse_queue(asked.queue)
    _demand(request.principal, queue)
    headers = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))
    if request.method == "HEAD":
        return Answer(200, b"", EVENT_STREAM_TYPE, headers)
    streams = edge.streams = edge.streams or EventStreams(edge.broker.feed, edge.clock)
    streams.check_room(draining=edge.draining)
    _count(edge, request.principal, queue)()

    def open(transport: asyncio.Transport, connections: set[Any]) -> StreamProtocol:
        return streams.open(queue, asked.kind, transport, connections, _count(edge, request.principal, queue))

    return Answer(200, b"", EVENT_STREAM_TYPE, headers, stream=open)


def _count(edge: Edge, principal: Principal | None, queue: QueuePath | None) -> Callable[[], None]:
    """Count a stream of the principal and of the queue. Returns the function that ends that. Raises RateLimited."""
    if edge.auth is None or principal is None:
        return lambda: None
    return edge.auth.quotas.open_stream(principal, *(() if queue is None else (queue,)))


def _demand(principal: Principal | None, queue: QueuePath | None) -> None:
    """The scope for the events of one queue, or of all."""
    if principal is None:
        return
    if queue is None:
        principal.demand_everywhere("peek")
    else:
        principal.demand("peek", queue)


class EventStreams:
    """The open streams of a server. Watches the feed while there is at least one."""

    def __init__(self, feed: Feed, clock: Clock):
        self._feed = feed
        self._clock = clock
        self._streams: set[EventStream] = set()
        self._stop_watching: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0

    def check_room(self, *, draining: bool) -> None:
        if draining:
            raise Unavailable("the server is stopping", retry_after_ms=1_000)
        if len(self._streams) >= limits.EVENT_STREAMS_MAX:
            raise Unavailable(f"{limits.EVENT_STREAMS_MAX} event streams are open, which is the limit")

    def open(
        self, queue: str | None, kind: str | None, transport: asyncio.Transport, connections: set[Any],
        on_closed: Callable[[], None] = lambda: None,
    ) -> StreamProtocol:  # fmt: skip
        """Take over a connection whose headers are written."""
        stream = EventStream(self, queue, kind, transport, connections, self._clock.now_ms(), on_closed)
        if not self._streams:
            self._stop_watching = self._feed.watch(self._on_events)
            self._schedule()
        self._streams.add(stream)
        return stream

    def remove(self, stream: EventStream) -> None:
        self._streams.discard(stream)
        if not self._streams and self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None
            if self._timer is not None:
                self._timer.cancel()

    def _on_events(self, happenings: list[Happening]) -> None:
        for happening in happenings:
            line = b""
            for stream in list(self._streams):
                if stream.wants(happening):
                    line = line or _line(happening)
                    stream.send(line)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        for stream in list(self._streams):
            stream.tick(heartbeat=self._ticks % HEARTBEAT_TICKS == 0)
        self._schedule()


class EventStream(StreamProtocol):
    """One connection. Its input is ignored."""

    def __init__(
        self, streams: EventStreams, queue: str | None, kind: str | None, transport: asyncio.Transport,
        connections: set[Any], since_ms: int, on_closed: Callable[[], None] = lambda: None,
    ):  # fmt: skip
        self._on_closed = on_closed
        self._streams = streams
        self._queue = queue
        self._kind = kind
        self._transport = transport
        self._connections = connections
        self._since_ms = since_ms
        self._room = limits.EVENT_STREAM_RATE
        self._dropped = 0
        connections.add(self)
        transport.write(b": connected\n\n")

    def wants(self, happening: Happening) -> bool:
        return self._queue in (None, happening.queue) and self._kind in (None, happening.kind)

    def send(self, line: bytes) -> None:
        if not self._room or self._transport.get_write_buffer_size() > limits.EVENT_STREAM_BUFFER_BYTES:
            self._dropped += 1
            return
        self._room -= 1
        self._transport.write(line)

    def tick(self, *, heartbeat: bool) -> None:
        """Called every second."""
        self._room = limits.EVENT_STREAM_RATE
        if self._transport.get_write_buffer_size() > limits.EVENT_STREAM_BUFFER_BYTES:
            return
        if self._dropped:
            self._transport.write(b'event: dropped\ndata: {"count":%d}\n\n' % self._dropped)
            self._dropped = 0
        elif heartbeat:
            self._transport.write(b": \n\n")

    def describe(self) -> dict[str, Any]:
        """For the list of connections."""
        holds = f"events of {self._queue or 'all queues'}"
        return described(self._transport.get_extra_info("peername"), "event stream", self._since_ms, 0, holds)

    def shutdown(self) -> None:
        """The server stops."""
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.discard(self)
        self._streams.remove(self)
        self._on_closed()


def _line(happening: Happening) -> bytes:
    event = StreamedEvent(
        cast(Any, happening.kind), happening.queue, happening.at_ms, happening.total, happening.messages,
        happening.consumer, happening.error,
    )  # fmt: skip
    return b"data: %b\n\n" % _encode(event)
