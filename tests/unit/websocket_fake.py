"""The WebSocket edge without sockets: sessions over a whole broker, and a client whose line is a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from patience import until

from penstock.ids import parse_queue
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.http import HttpApp
from penstock.transports.websocket import WebSockets
from penstock.transports.websocket.handshake import CODECS
from penstock.transports.websocket.session import Session
from penstock.wire import stream


def unsealed(sealed: bytes) -> tuple[int, bytes]:
    """Opcode and payload of one whole frame of a server."""
    size, at = sealed[1], 2
    if size == 126:
        size, at = int.from_bytes(sealed[2:4], "big"), 4
    elif size == 127:
        size, at = int.from_bytes(sealed[2:10], "big"), 10
    assert sealed[0] & 0x80 and len(sealed) == at + size
    return sealed[0] & 15, sealed[at:]


class Client:
    """One connection. What the server sends is kept in order, and can be waited for by type."""

    def __init__(self, sockets: WebSockets, protocol: str = stream.JSON_PROTOCOL):
        self.received: list[dict[str, Any]] = []
        self.sealed: list[bytes] = []
        self.closed_with: int | None = None
        self.freed_count = 0
        self._codec = msgspec.json if protocol == stream.JSON_PROTOCOL else msgspec.msgpack
        self._opcode = 1 if protocol == stream.JSON_PROTOCOL else 2
        self._something = asyncio.Event()
        self._ids = iter(range(1, 10**6))
        self.session = Session(sockets, CODECS[protocol], self)
        assert self.received.pop()["type"] == "hello"

    # The socket's side.

    def write(self, sealed: bytes) -> None:
        opcode, payload = unsealed(sealed)
        assert opcode == self._opcode
        self.sealed.append(sealed)
        self.received.append(self._codec.decode(payload))
        self._something.set()

    def close(self, close: stream.Close) -> None:
        self.closed_with = close.code
        self.session.ended()
        self._something.set()

    def freed(self) -> None:
        self.freed_count += 1

    # The client's side.

    def send(self, **frame: Any) -> None:
        self.session.receive(self._codec.encode(frame))

    async def ask(self, **frame: Any) -> dict[str, Any]:
        """Send it and take its answer from among what comes."""
        number = next(self._ids)
        self.send(id=number, **frame)
        return await self.take(lambda each: each.get("id") == number)

    async def take(self, wanted: Any) -> dict[str, Any]:
        """The first frame of this type, or for which this holds, as soon as there is one."""
        matches = wanted if callable(wanted) else lambda each: each["type"] == wanted
        while True:
            for at, frame in enumerate(self.received):
                if matches(frame):
                    return self.received.pop(at)
            self._something.clear()
            await self._something.wait()

    async def messages(self, count: int) -> list[dict[str, Any]]:
        """So many messages, from as many frames as it takes."""
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
        await self.broker.put_queue(parse_queue(queue), config)

    async def publish(self, queue: str, *payloads: bytes, **columns: Any) -> None:
        await self.box.publish(queue, *payloads, **columns)

    def metrics(self) -> str:
        return self.app.metrics.exposition(self.broker)[0].decode()

    async def settle(self) -> None:
        """Until nothing that was begun is still on its way."""
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
