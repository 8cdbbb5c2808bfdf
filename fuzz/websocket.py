"""WebSocket input, from the bytes of a socket to the answers of a session, with a whole broker in memory.

Seeds have a mask of zeros: an edit of the bytes is an edit of the payload.
"""

from __future__ import annotations

import asyncio
import atexit
from typing import Any

import msgspec
from uvicorn.server import ServerState
from websockets.frames import Opcode

from penstock.clock import SystemClock
from penstock.ids import parse_queue
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.http import HttpApp
from penstock.transports.websocket import WebSockets
from penstock.transports.websocket.codec import Codec
from penstock.transports.websocket.connection import Connection
from penstock.transports.websocket.handshake import CODECS
from penstock.wire import stream

CASES_PER_BROKER = 2_000
"""A new broker after this many inputs bounds the memory."""
TURNS = 6
"""Turns of the event loop after which a reply that waits for nothing has arrived."""

JSON, MSGPACK = CODECS[stream.JSON_PROTOCOL], CODECS[stream.MSGPACK_PROTOCOL]
FRAMES: list[dict[str, Any]] = [
    {"type": "subscribe", "id": 1, "role": "reader", "queue": "q", "offset": "earliest", "offsets": {"0": 1}},
    {"type": "subscribe", "id": "x", "role": "consumer", "queue": "q", "credit": 5, "lease_ms": 1000, "sub": "c"},
    {"type": "subscribe", "role": "consumer", "scope": "default", "group": "g", "when_lost": "keep", "credit": 1},
    {"type": "unsubscribe", "sub": "q"},
    {"type": "credit", "sub": "q", "credit": 7},
    {"type": "ack", "id": 2, "receipts": ["r1.0.1.00000000000000ff.1", "r1.0.1.00000000000000ff.2-9"]},
    {"type": "nack", "receipts": ["r1.0.1.00000000000000ff.1"], "delay_ms": 5, "error": "no"},
    {"type": "extend", "receipts": [], "lease_ms": 1000},
    {"type": "call", "id": 3, "method": "GET", "path": "/v1/read", "query": "queue=q&offset=0"},
    {"type": "ping", "id": 4},
    {"type": "bye"},
]
JSON_SEEDS = [msgspec.json.encode(frame) for frame in FRAMES] + [
    b'{"type":"publish","id":5,"queue":"q","messages":[{"payload":{"a":[1,2]},"key":"k"},{"payload_b64":"aGk="}]}',
    b'{"type":"call","path":"/v1/lease","body":{"queue":"q","max":3}}',
]
MSGPACK_SEEDS = [msgspec.msgpack.encode(frame) for frame in FRAMES] + [
    msgspec.msgpack.encode({"type": "publish", "queue": "q", "messages": [{"payload": b"1", "json": True}]}),
    msgspec.msgpack.encode({"type": "call", "path": "/v1/ack", "body": b'{"receipts":[]}'}),
]


def masked(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes((opcode | (0x80 if fin else 0),)) + length + bytes(4) + payload


BYTES_SEEDS = [
    b"".join(masked(Opcode.TEXT, seed) for seed in JSON_SEEDS[-4:]),
    masked(Opcode.TEXT, JSON_SEEDS[0][:20], fin=False) + masked(Opcode.PING, b"p")
    + masked(Opcode.CONT, JSON_SEEDS[0][20:]),
    masked(Opcode.PONG, b"") + masked(Opcode.CLOSE, (1000).to_bytes(2, "big") + b"done"),
]  # fmt: skip


class _Transport(asyncio.Transport):
    """A transport that records all writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Node:
    """A broker and an event loop that outlive one input."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cases = 0
        self._context: Any = None
        self._box: InProcess
        self._sockets: WebSockets

    def run(self, codec: Codec, pieces: list[bytes]) -> list[bytes]:
        """The bytes that a connection writes for these inputs."""
        return self._loop.run_until_complete(self._run(codec, pieces))

    def close(self) -> None:
        if self._context is not None:
            self._loop.run_until_complete(self._context.__aexit__(None, None, None))
        self._loop.close()

    async def _run(self, codec: Codec, pieces: list[bytes]) -> list[bytes]:
        if self._cases % CASES_PER_BROKER == 0:
            if self._context is not None:
                await self._context.__aexit__(None, None, None)
            self._context = in_process()
            self._box = await self._context.__aenter__()
            app = HttpApp(self._box.broker, SystemClock())
            self._sockets = WebSockets(self._box.broker, self._box.clock, app.metrics, app.ask)
            await self._box.broker.queues.put(parse_queue("q"), {"retention": {"mode": "keep"}})
            await self._box.publish("q", b"1", b"2", b"3")
        self._cases += 1
        transport = _Transport()
        connection = Connection(self._sockets, self._sockets.native_protocol(codec), transport, ServerState())
        for piece in pieces:
            connection.data_received(piece)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        while self._sockets.returning:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return transport.written


_node = _Node()
atexit.register(_node.close)


def _check(codec: Codec, data: bytes) -> None:
    (_, *answers) = _node.run(codec, [masked(codec.opcode, data)] if len(data) < 65_536 else [])
    assert not [answer for answer in answers if b'"internal"' in answer or b"\xa8internal" in answer], answers


def json_message(data: bytes) -> None:
    """Invariant: any message has an answer or ends the connection; none is a bug, and nothing escapes."""
    _check(JSON, data)


def msgpack_message(data: bytes) -> None:
    """Invariant: as for JSON messages."""
    _check(MSGPACK, data)


def socket_bytes(data: bytes) -> None:
    """Invariant: no exception; whole or byte by byte, the connection ends in one close frame, or in none.

    Not always in the same one: a fault in the bytes behind a message is found before the message is handled.
    """
    whole = _node.run(JSON, [data])
    bitwise = _node.run(JSON, [data[at : at + 1] for at in range(len(data))])
    closes = [[frame for frame in written if frame and frame[0] == 0x88] for written in (whole, bitwise)]
    assert len(closes[0]) == len(closes[1]) <= 1, closes
