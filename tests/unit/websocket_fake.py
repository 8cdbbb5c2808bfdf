"""WebSocket sessions without sockets, on an in-memory broker; the client keeps received frames in a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from at_once import at_once
from patience import until

from penstock.ids import parse_queue
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.http import HttpApp
from penstock.transports.websocket import WebSockets
from penstock.transports.websocket.handshake import CODECS
from penstock.transports.websocket.session import WebSocketSession
from penstock.transports.websocket.sockets import Admitted
from penstock.wire import stream


def parse_frame(data: bytes) -> tuple[int, bytes]:
    """Opcode and payload of one complete frame of a server."""
    size, at = data[1], 2
    if size == 126:
        size, at = int.from_bytes(data[2:4], "big"), 4
    elif size == 127:
        size, at = int.from_bytes(data[2:10], "big"), 10
    assert data[0] & 0x80 and len(data) == at + size
    return data[0] & 15, data[at:]


class Client:
    """One connection. Received frames are kept in order, and tests wait for them by type."""

    def __init__(self, sockets: WebSockets, protocol: str = stream.JSON_PROTOCOL, admitted: Admitted | None = None):
        self.received: list[dict[str, Any]] = []
        self.frames: list[bytes] = []
        self.closed_with: int | None = None
        self.freed_count = 0
        self._codec = msgspec.json if protocol == stream.JSON_PROTOCOL else msgspec.msgpack
        self._opcode = 1 if protocol == stream.JSON_PROTOCOL else 2
        self._something = asyncio.Event()
        self._ids = iter(range(1, 10**6))
        self.followed: list[Any] = []
        self.session = WebSocketSession(sockets, CODECS[protocol], self, admitted)
        self.hello = self.received.pop()
        assert self.hello["type"] == "hello"

    # Called by the session.

    def write(self, data: bytes) -> None:
        opcode, payload = parse_frame(data)
        assert opcode == self._opcode
        self.frames.append(data)
        self.received.append(self._codec.decode(payload))
        self._something.set()

    def close(self, close: stream.Close) -> None:
        self.closed_with = close.code
        self.session.ended()
        self._something.set()

    def freed(self) -> None:
        self.freed_count += 1

    def follow(self, _auth: Any, principal: Any) -> None:
        self.followed.append(principal)

    # Called by tests.

    def send(self, **frame: Any) -> None:
        self.session.receive(self._codec.encode(frame))

    def close_quietly(self) -> None:
        self.send(type="bye")

    async def ask(self, **frame: Any) -> dict[str, Any]:
        """Send a frame and wait for its reply."""
        number = next(self._ids)
        self.send(id=number, **frame)
        return await self.take(lambda each: each.get("id") == number)

    async def take(self, wanted: Any) -> dict[str, Any]:
        """Wait for the first frame of this type, or the first that matches a predicate."""
        matches = wanted if callable(wanted) else lambda each: each["type"] == wanted
        while True:
            for at, frame in enumerate(self.received):
                if matches(frame):
                    return self.received.pop(at)
            self._something.clear()
            await self._something.wait()

    async def messages(self, count: int) -> list[dict[str, Any]]:
        """Wait for `count` messages, over one or more frames."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += (await self.take("messages"))["messages"]
        assert len(found) == count
        return found


class Edge:
    def __init__(self, box: InProcess):
        self.box = box
        self.broker = box.broker
        self.app = HttpApp(box.broker, box.clock)
        self.sockets = WebSockets(box.broker, box.clock, self.app.metrics, self.app.ask)

    def connect(self, protocol: str = stream.JSON_PROTOCOL) -> Client:
        return Client(self.sockets, protocol)

    async def create(self, queue: str, **config: Any) -> None:
        await self.broker.queues.put(parse_queue(queue), config)

    async def publish(self, queue: str, *payloads: bytes, **columns: Any) -> None:
        await self.box.publish(queue, *payloads, **columns)

    def metrics(self) -> str:
        return at_once(self.app.metrics.exposition(self.broker))[0].decode()

    async def settle(self) -> None:
        """Wait until all returned leases are settled."""
        await until(lambda: not self.sockets.returning)
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def websockets() -> AsyncIterator[Edge]:
    async with in_process() as box:
        edge = Edge(box)
        yield edge
        await edge.settle()


def run(story: Any) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60), websockets() as edge:
            await story(edge)

    asyncio.run(whole())
