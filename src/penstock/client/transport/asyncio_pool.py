"""HTTP with asyncio: a protocol around the response reader, and the pool that lends connections.

A connection carries one request at a time, and another one behind it only if the caller asks for that. An event that
ends a request early (a timeout, a cancelled caller, a broken answer) ends its connection too: no caller can then read
the answer to another request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import Transport, client_is_closed
from penstock.client.transport.endpoint import ServerEndpoint
from penstock.client.transport.http1 import JOIN_BELOW_BYTES, READ_BYTES, BadResponse, ResponseReader
from penstock.errors import PenstockError


class HttpConnection(asyncio.BufferedProtocol):
    """One TCP connection. `exchange` is the only thing to do with it.

    It reads into one buffer of its own, over and over: asking the allocator for a large block at every read costs more
    than everything else about a large answer.
    """

    def __init__(self) -> None:
        self._reader = ResponseReader()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._waiters: deque[asyncio.Future[Response]] = deque()
        """Of the requests that are not answered yet, in the order in which they were sent."""
        self._exchanges = 0
        self.usable = False
        """True while another request may be sent."""
        self.recalled = False

    @property
    def is_busy(self) -> bool:
        """True while a call is under way, also one whose answer is here and was not taken yet."""
        return self._exchanges > 0 and self.usable

    async def exchange(self, head: bytes, body: bytes, timeout_s: float) -> Response:
        """Send one request and wait for its answer, behind those that are under way.

        Raises ConnectionError, BadResponse or TimeoutError.
        """
        transport = self._transport
        if transport is None or not self.usable:
            raise ConnectionResetError("the server closed the connection")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Response] = loop.create_future()
        self._waiters.append(waiter)
        self._exchanges += 1
        if len(body) < JOIN_BELOW_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        timer = loop.call_later(timeout_s, _fail, waiter, TimeoutError(f"no answer within {timeout_s:g} s"))
        try:
            return await waiter
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._exchanges -= 1

    def recall(self) -> bool:
        """Close the sending half: a server that waits on purpose then answers, and the answer is still read.

        False if that is not possible: TLS has no half of a connection, and this one may have been lost just now.
        """
        if self._transport is None or not self._exchanges or not self._transport.can_write_eof():
            return False
        if not self._waiters:
            return True  # the answer is here, and its connection is as good as before
        try:
            self._transport.write_eof()
        except (OSError, RuntimeError):
            return False
        self.recalled, self.usable = True, False
        return True

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        waiters = self._waiters
        if not waiters:
            self.close()  # bytes without a request
            return
        bad: BadResponse | None = None
        try:
            responses: Sequence[Response] = self._reader.feed(self._buffer[:nbytes], len(waiters))
        except BadResponse as error:
            bad, responses = error, error.before
        for response in responses:
            self.usable = response.keep_alive and not self.recalled
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(response)
        if bad is not None:
            if waiters:
                _fail(waiters.popleft(), bad)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._transport = None
        began = " in the middle of its answer" if self._reader.received else ""
        while self._waiters:
            _fail(self._waiters.popleft(), error or ConnectionResetError(f"the server closed the connection{began}"))


def _fail(waiter: asyncio.Future[Response], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)


class AsyncioPool(Transport):
    """Lends connections to one server. Long polls are not counted: they would keep other calls from starting."""

    def __init__(self, endpoint: ServerEndpoint):
        self._endpoint = endpoint
        self._places = asyncio.Semaphore(endpoint.connections_max)
        self._idle: list[HttpConnection] = []
        self._lent: set[HttpConnection] = set()
        self._carrying: dict[int, HttpConnection] = {}
        """Which connection carries a call, by the identity of the call."""
        self._closed = False

    @property
    def sends_at_once(self) -> bool:
        return not self._places.locked() and bool(self._idle) and self._idle[-1].usable

    async def exchange(self, call: Call[Any]) -> Response:
        if call.wait_ms:
            return await self._carry(call, self._take_idle() or await self._connect())
        async with self._places:
            return await self._carry(call, self._take_idle() or await self._connect())

    def can_follow(self, before: Call[Any]) -> bool:
        connection = self._carrying.get(id(before))
        return connection is not None and connection.usable and not self._places.locked()

    async def exchange_behind(self, call: Call[Any], before: Call[Any]) -> Response:
        if not self.can_follow(before):
            return await self.exchange(call)
        async with self._places:
            return await self._carry(call, self._carrying[id(before)])

    def recall(self, call: Call[Any]) -> bool:
        connection = self._carrying.get(id(call))
        return connection is not None and connection.recall()

    async def close(self) -> None:
        """Drop every connection; requests that are under way fail."""
        self._closed = True
        for connection in [*self._idle, *self._lent]:
            connection.close()
        self._idle.clear()

    async def _carry(self, call: Call[Any], connection: HttpConnection) -> Response:
        self._lent.add(connection)
        self._carrying[id(call)] = connection
        try:
            response = await connection.exchange(*self._endpoint.encode(call), self._endpoint.timeout_of(call))
        except BadResponse as error:
            raise self._endpoint.not_penstock(error) from error
        except OSError as error:  # a TimeoutError is one too
            if connection.recalled:
                raise PenstockError("the call was withdrawn, and was not answered") from error
            raise self._endpoint.not_answered(error) from error
        finally:
            del self._carrying[id(call)]
            if not connection.is_busy:
                self._lent.discard(connection)
        self.reached = True
        if connection.is_busy:
            return response  # the call behind this one gives it back
        if connection.usable and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def _take_idle(self) -> HttpConnection | None:
        # The most recently used one is the least likely to have been closed meanwhile.
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self) -> HttpConnection:
        if self._closed:
            raise client_is_closed()
        try:
            async with asyncio.timeout(self._endpoint.connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    HttpConnection, *self._endpoint.address, ssl=self._endpoint.tls
                )
        except OSError as error:  # a TimeoutError is one too
            raise self._endpoint.not_connected(error) from error
        return connection
