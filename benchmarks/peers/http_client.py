"""A minimal blocking HTTP/1.1 client on one keep-alive connection."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit


class HttpError(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, body: bytes):
        super().__init__(f"HTTP {status}: {body[:300].decode(errors='replace')}")
        self.status = status
        self.body = body


class HttpConnection:
    """Reconnects after a second without requests: a server may close an idle connection between two turns."""

    IDLE_SECONDS_MAX = 1.0

    def __init__(self, url: str, seconds_max: float = 90.0):
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._address = (parts.hostname, parts.port)
        self._host = f"{parts.hostname}:{parts.port}".encode()
        self._seconds_max = seconds_max
        self._used_at = 0.0
        self._buffer = bytearray(1 << 18)
        self._connect()

    def post(self, path: bytes, body: bytes) -> bytes:
        """The body of a 2xx answer; HttpError otherwise."""
        return self.request(b"POST", path, body)

    def request(self, method: bytes, path: bytes, body: bytes = b"") -> bytes:
        if time.monotonic() - self._used_at > self.IDLE_SECONDS_MAX:
            self.close()
            self._connect()
        head = b"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._socket.sendall(head % (method, path, self._host, len(body)) + body)
        answer = self._receive_answer()
        self._used_at = time.monotonic()
        return answer

    def close(self) -> None:
        self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=self._seconds_max)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._used_at = time.monotonic()

    def _receive_answer(self) -> bytes:
        """The body of the next answer; HttpError if it is not a success. Reads into the same buffer every time."""
        filled, end = 0, -1
        while end < 0:
            filled += self._receive(filled)
            end = self._buffer.find(b"\r\n\r\n", 0, filled)
        head = bytes(self._buffer[:end])
        stop = end + 4 + _content_length(head)
        if stop > len(self._buffer):
            self._buffer.extend(bytes(stop - len(self._buffer)))
        while filled < stop:
            filled += self._receive(filled)
        body = bytes(memoryview(self._buffer)[end + 4 : stop])
        status = int(head[9:12])
        if not 200 <= status < 300:
            raise HttpError(status, body)
        return body

    def _receive(self, at: int) -> int:
        with memoryview(self._buffer) as view:
            size = self._socket.recv_into(view[at:])
        if not size:
            raise ConnectionError("the server closed the connection")
        return size


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ConnectionError("an answer without Content-Length")
