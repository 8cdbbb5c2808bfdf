"""The transports of the blocking client: HTTP over sockets, other schemes in an event loop of another thread."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from penstock.client.blocking.runtime import BlockingRuntime
from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import Transport, client_is_closed, open_transport
from penstock.client.transport.direct import LoopThread
from penstock.client.transport.endpoint import HTTP, ServerEndpoint
from penstock.client.transport.http1 import JOIN_BELOW_BYTES, READ_BYTES, BadResponse, ResponseReader
from penstock.errors import PenstockError


class SocketConnection:
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
        if len(body) < JOIN_BELOW_BYTES:
            self._socket.sendall(head + body)
        else:
            self._socket.sendall(head)
            self._socket.sendall(body)
        while True:
            size = self._receive(self._buffer, deadline)
            if responses := self._reader.feed(self._buffer[:size]):
                return responses[0]
            rest = self._reader.take_body()
            if rest is not None:
                while rest:
                    rest = rest[self._receive(rest, deadline) :]
                return self._reader.body_taken()

    def _receive(self, into: memoryview, deadline: float) -> int:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        size = self._socket.recv_into(into)
        if not size:
            began = " in the middle of its answer" if self._reader.received else ""
            raise ConnectionResetError(f"the server closed the connection{began}")
        return size

    def is_quiet(self) -> bool:
        """True if nothing has arrived on the idle connection: neither its end nor bytes without a request."""
        return not self._poll.poll(0)

    def close(self) -> None:
        self._socket.close()


class SocketPool(Transport):
    """Lends connections to one server, to any thread. Its coroutines block instead of waiting for an event loop."""

    def __init__(self, endpoint: ServerEndpoint, runtime: BlockingRuntime):
        self._endpoint = endpoint
        self._runtime = runtime
        self._lock = threading.Lock()
        self._idle: list[SocketConnection] = []
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Response:
        """Raises Unreachable, AnswerLost, or PenstockError if the other side does not speak HTTP."""
        return self._runtime.unlocked(self._exchange, call)

    def _exchange(self, call: Call[Any]) -> Response:
        connection = self._take_idle() or self._connect()
        try:
            response = connection.exchange(*self._endpoint.encode(call), self._endpoint.timeout_of(call))
        except BaseException as error:
            connection.close()
            if isinstance(error, BadResponse):
                raise self._endpoint.not_penstock(error) from error
            if isinstance(error, OSError):  # a TimeoutError is one too
                raise self._endpoint.not_answered(error) from error
            raise
        self.reached = True
        if response.keep_alive:
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    return response
        connection.close()
        return response

    async def close(self) -> None:
        self.close_idle()

    def close_idle(self) -> None:
        """Close idle connections; requests that are under way in other threads finish, and close theirs then."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> SocketConnection | None:
        while True:
            with self._lock:
                if self._closed:
                    raise client_is_closed()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.close()

    def _connect(self) -> SocketConnection:
        endpoint = self._endpoint
        try:
            connected = socket.create_connection(endpoint.address, endpoint.connect_timeout_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls is not None:
                connected = endpoint.tls.wrap_socket(connected, server_hostname=endpoint.host)
        except OSError as error:  # a TimeoutError is one too
            raise endpoint.not_connected(error) from error
        return SocketConnection(connected)


class LoopThreadTransport(Transport):
    """A transport of asyncio in the event loop of another thread. Its coroutines block until that answers."""

    def __init__(self, inner: Transport, thread: LoopThread, runtime: BlockingRuntime, *, stops_thread: bool = False):
        self._inner = inner
        self._thread = thread
        self._runtime = runtime
        self._stops_thread = stops_thread

    async def exchange(self, call: Call[Any]) -> Response:
        try:
            return self._runtime.unlocked(self._thread.run, self._inner.exchange(call))
        finally:
            self.reached = self._inner.reached

    async def close(self) -> None:
        with suppress(PenstockError):  # closed before, or its broker is gone
            self._runtime.unlocked(self._thread.run, self._inner.close())
        if self._stops_thread:
            self._thread.stop()


def open_blocking_transport(endpoint: ServerEndpoint, runtime: BlockingRuntime) -> Transport:
    """Connects to nothing yet."""
    if endpoint.scheme == HTTP:
        return SocketPool(endpoint, runtime)
    return LoopThreadTransport(open_transport(endpoint), LoopThread("penstock client"), runtime, stops_thread=True)
