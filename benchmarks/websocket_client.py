"""Thousands of minimal WebSocket clients, so that the server is measured and not the clients."""

from __future__ import annotations

import asyncio
import resource
import struct
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

_HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: %b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_encode = msgspec.json.Encoder().encode
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_CONNECTS_AT_ONCE = 100


def raise_file_limit() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


class WebSocketClient(asyncio.Protocol):
    """`arrived` is called with the text of each message. It implements only a part of RFC 6455."""

    def __init__(self, host: str, arrived: Callable[[bytes], None] = lambda _: None):
        self.arrived = arrived
        self.closed_with: int | None = None
        self._host = host
        self._buffer = bytearray()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(_HANDSHAKE % self._host.encode())

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self.opened.done():
            head, end, rest = buffer.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 101 "), bytes(head)
            self.opened.set_result(None)
            self._buffer = buffer = rest
        while len(buffer) >= 2:
            size, at = buffer[1], 2
            if size == 126:
                size, at = int.from_bytes(buffer[2:4], "big"), 4
            elif size == 127:
                size, at = int.from_bytes(buffer[2:10], "big"), 10
            if len(buffer) < at + size:
                return
            opcode, payload = buffer[0] & 15, bytes(buffer[at : at + size])
            del buffer[: at + size]
            if opcode == _PING:
                self._write(_PONG, payload)
            elif opcode == _CLOSE:
                self.closed_with = int.from_bytes(payload[:2], "big")
                self.transport.close()
            else:
                self.arrived(payload)

    def send(self, **frame: Any) -> None:
        self._write(_TEXT, _encode(frame))

    def _write(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | opcode, 0x80 | size))
        else:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        self.transport.write(head + b"\0\0\0\0" + payload)  # a mask of zeros leaves the data as it is


async def connect(url: str, arrived: Callable[[bytes], None] = lambda _: None) -> WebSocketClient:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: WebSocketClient(parts.netloc, arrived), parts.hostname, parts.port)
    await client.opened
    return client


async def crowd(url: str, count: int, make: Callable[[int], Callable[[bytes], None]]) -> list[WebSocketClient]:
    """Open `count` connections; `make(n)` is the callback of the n-th."""
    clients: list[WebSocketClient] = []
    for start in range(0, count, _CONNECTS_AT_ONCE):
        numbers = range(start, min(start + _CONNECTS_AT_ONCE, count))
        clients += await asyncio.gather(*(connect(url, make(number)) for number in numbers))
    return clients
