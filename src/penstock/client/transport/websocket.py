"""ws:// and wss://: calls on WebSockets, in MessagePack, where bytes are bytes.

One connection carries all calls that are answered at once, up to `SHARED_MAX` at a time. A call that waits on purpose
has a connection to itself, kept for the next one: hanging up is the only way to withdraw it, and a lease whose caller
is gone must not be granted.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from penstock._version import __version__
from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import Transport, client_is_closed
from penstock.client.transport.endpoint import ServerEndpoint
from penstock.client.transport.http1 import RESPONSE_BYTES_MAX
from penstock.client.transport.retry import Unreachable
from penstock.errors import PenstockError
from penstock.wire import stream
from penstock.wire.status import error_from_code

PATH = "/v1/ws"
SHARED_MAX = 32
"""Well below the number of calls that a server begins of one connection at a time."""

_encode = msgspec.msgpack.Encoder().encode


class _ServerFrame(msgspec.Struct):
    """The fields of a server's frame that concern calls."""

    type: str
    id: int | None = None
    status: int = 0
    body: bytes | None = None
    retry_after_s: int | None = None
    error: dict[str, Any] | None = None


_decode = msgspec.msgpack.Decoder(_ServerFrame).decode


class _WebSocketConnection:
    """One socket. Answers find their callers by number."""

    def __init__(self, socket: ClientConnection):
        self._socket = socket
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._reading = asyncio.create_task(self._read(), name="penstock websocket")
        self.usable = True
        """True while another call may be sent: the server has neither gone nor said that it will."""

    async def exchange(self, call: Call[Any], timeout_s: float) -> Response:
        """Raises OSError; a TimeoutError is one too."""
        path, _, query = call.target.partition("?")
        number = self._next_id = self._next_id + 1
        frame = stream.BinaryCall(
            id=number, method=cast(stream.Method, call.method), path=path, query=query, body=call.body,
            content_type=call.content_type, accept=call.accept,
        )  # fmt: skip
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            async with asyncio.timeout(timeout_s):
                await self._socket.send(_encode(frame))
                return await answered
        except WebSocketException as error:
            raise ConnectionResetError(f"the connection was lost: {error}") from error
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        self.usable = False
        self._reading.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        reason = "the server closed the connection"
        try:
            async for data in self._socket:
                self._received(_decode(data if isinstance(data, bytes) else data.encode()))
        except (WebSocketException, msgspec.MsgspecError) as error:
            reason = str(error)
        finally:
            self.usable = False
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(ConnectionResetError(reason))

    def _received(self, frame: _ServerFrame) -> None:
        if frame.type == "bye":
            self.usable = False  # what is under way is still answered
        answered = self._waiting.get(frame.id) if frame.id is not None else None
        if answered is None or answered.done():
            return
        body = frame.body or b""
        if frame.error is not None:
            body = msgspec.json.encode({"error": frame.error})
        headers = {} if frame.retry_after_s is None else {b"retry-after": b"%d" % frame.retry_after_s}
        answered.set_result(Response(frame.status, headers, body, True))


class WebSocketTransport(Transport):
    """Connects with the first call, in the event loop that makes it."""

    def __init__(self, endpoint: ServerEndpoint):
        self._endpoint = endpoint
        self._shared: _WebSocketConnection | None = None
        self._connecting = asyncio.Lock()
        self._room = asyncio.Semaphore(SHARED_MAX)
        self._idle: list[_WebSocketConnection] = []
        self._all: set[_WebSocketConnection] = set()
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Response:
        if call.wait_ms:
            return await self._exchange_alone(call)
        async with self._room:
            return await self._carried(await self._take_shared(), call)

    async def close(self) -> None:
        self._closed = True
        connections, self._all = self._all, set()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _exchange_alone(self, call: Call[Any]) -> Response:
        while self._idle and not self._idle[-1].usable:
            self._forget(self._idle.pop())
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            response = await self._carried(connection, call)
        except BaseException:
            self._forget(connection)
            # Also when cancelled: the server must know at once that the caller is gone.
            await asyncio.shield(connection.close())
            raise
        self._idle.append(connection)
        return response

    async def _take_shared(self) -> _WebSocketConnection:
        async with self._connecting:
            if self._shared is None or not self._shared.usable:
                if self._shared is not None:
                    self._forget(self._shared)
                self._shared = await self._connect()
            return self._shared

    async def _carried(self, connection: _WebSocketConnection, call: Call[Any]) -> Response:
        try:
            response = await connection.exchange(call, self._endpoint.timeout_of(call))
        except OSError as error:
            raise self._endpoint.not_answered(error) from error
        self.reached = True
        return response

    def _forget(self, connection: _WebSocketConnection) -> None:
        self._all.discard(connection)

    async def _connect(self) -> _WebSocketConnection:
        if self._closed:
            raise client_is_closed()
        endpoint = self._endpoint
        scheme = "wss" if endpoint.is_tls else "ws"
        headers = {} if endpoint.authorization is None else {"Authorization": endpoint.authorization}
        try:
            socket = await connect(
                f"{scheme}://{endpoint.host_header}{endpoint.prefix}{PATH}",
                subprotocols=[Subprotocol(stream.MSGPACK_PROTOCOL)], max_size=RESPONSE_BYTES_MAX, compression=None,
                open_timeout=endpoint.connect_timeout_s, close_timeout=1, ssl=endpoint.tls, proxy=None,
                additional_headers=headers, user_agent_header=f"penstock-python/{__version__}",
            )  # fmt: skip
        except OSError as error:  # a TimeoutError is one too
            raise endpoint.not_connected(error) from error
        except InvalidStatus as error:
            raise _refused(endpoint, error) from error
        except InvalidHandshake as error:
            if isinstance(error.__cause__, EOFError):
                # The server accepted the connection and closed it without a word, as it does while it stops.
                raise endpoint.not_connected(ConnectionResetError("the server closed the connection")) from error
            raise endpoint.not_penstock(error) from error
        connection = _WebSocketConnection(socket)
        self._all.add(connection)
        return connection


def _refused(endpoint: ServerEndpoint, error: InvalidStatus) -> PenstockError:
    """No connection was made, so no call was sent; some refusals pass."""
    status = error.response.status_code
    with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError):
        refusal = msgspec.json.decode(error.response.body or b"")["error"]
        text = f"cannot reach {endpoint.url}: {refusal['message']}"
        return Unreachable(text) if status in (429, 503) else error_from_code(refusal["code"], text)
    return endpoint.not_penstock(f"HTTP {status}")
