"""Connections of the blocking shell: a socket around the sans-IO reader, and the thread-safe pool that lends them."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from typing import Any

from penstock.client.calls.api import Call
from penstock.client.transport.http1 import (
    READ_BYTES,
    BadResponse,
    Origin,
    Response,
    ResponseReader,
    constant_headers,
    encode_request,
)
from penstock.client.transport.retry import AnswerLost, Unreachable, unreachable
from penstock.errors import PenstockError

_JOIN_BELOW_BYTES = 16 * 1024
"""A small head and body are cheaper to join than to send as two."""


class Connection:
    """One socket; used by one thread at a time."""

    def __init__(self, connected: socket.socket):
        self._socket = connected
        self._reader = ResponseReader()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    def exchange(self, head: bytes, body: bytes, timeout_s: float) -> Response:
        """Send one request and wait for its answer. Raises OSError or BadResponse; the connection is then of no use."""
        deadline = time.monotonic() + timeout_s
        self._socket.settimeout(timeout_s)
        if len(body) < _JOIN_BELOW_BYTES:
            self._socket.sendall(head + body)
        else:
            self._socket.sendall(head)
            self._socket.sendall(body)
        while True:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            size = self._socket.recv_into(self._buffer)
            if not size:
                began = " in the middle of its answer" if self._reader.received else ""
                raise ConnectionResetError(f"the server closed the connection{began}")
            if responses := self._reader.feed(self._buffer[:size]):
                return responses[0]
            rest = self._reader.take_body()
            if rest is not None:
                self._receive_into(rest, deadline)
                return self._reader.body_taken()

    def _receive_into(self, rest: memoryview, deadline: float) -> None:
        while rest:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            size = self._socket.recv_into(rest)
            if not size:
                raise ConnectionResetError("the server closed the connection in the middle of its answer")
            rest = rest[size:]

    def is_quiet(self) -> bool:
        """True if nothing has arrived on the idle connection: not a farewell, and nothing that nobody asked for."""
        return not self._poll.poll(0)

    def close(self) -> None:
        self._socket.close()


class Pool:
    """Lends connections to one server, to any thread."""

    def __init__(
        self,
        origin: Origin,
        *,
        token: str | None,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        timeout_s: float,
    ):
        self._origin = origin
        self._tls = (tls or ssl.create_default_context()) if origin.tls else None
        self._constant = constant_headers(origin, token)
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        self.reached = False
        """True once any request was answered."""

    def exchange(self, call: Call[Any]) -> Response:
        """Carry one request. Raises Unreachable, AnswerLost, or PenstockError if the other side does not speak HTTP."""
        head, body = encode_request(
            call.method, self._origin.prefix + call.target, self._constant,
            content_type=call.content_type, accept=call.accept, body=call.body,
        )  # fmt: skip
        connection = self._take_idle() or self._connect()
        try:
            response = connection.exchange(head, body, self._timeout_s + call.wait_ms / 1000)
        except BaseException as error:
            connection.close()
            if isinstance(error, BadResponse):
                raise PenstockError(f"{self._origin.url} does not answer like a Penstock server: {error}") from error
            if isinstance(error, OSError):  # a TimeoutError is one too
                raise AnswerLost(f"no answer from {self._origin.url}: {error}") from error
            raise
        self.reached = True
        if response.keep_alive:
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    return response
        connection.close()
        return response

    def close(self) -> None:
        """Drop idle connections; requests that are under way in other threads finish, and drop theirs then."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> Connection | None:
        while True:
            with self._lock:
                if self._closed:
                    raise PenstockError("this client is closed")
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.close()

    def _connect(self) -> Connection:
        origin = self._origin
        try:
            connected = socket.create_connection((origin.host, origin.port), self._connect_timeout_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_hostname=origin.host)
        except TimeoutError:
            raise Unreachable(
                f"cannot reach {origin.url}: no connection within {self._connect_timeout_s:g} s"
            ) from None
        except ssl.SSLError as error:
            raise PenstockError(f"cannot trust {origin.url}: {error}") from error
        except OSError as error:
            raise unreachable(origin.url, error) from error
        return Connection(connected)
