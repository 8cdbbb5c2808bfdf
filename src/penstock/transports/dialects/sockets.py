"""WebSockets of dialects: the door, the output of each, and the hand-over from HTTP.

What a connection means is a `Session`, which sees frames and no socket. Between the two is an `Outlet` with a bound:
who sends waits for room, who only offers is told that there is none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast

import httptools
import msgspec
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.errors import Forbidden, InvalidRequest
from penstock.transports.http import HttpApp
from penstock.transports.http.edge import Edge
from penstock.transports.http.hosts import check_host
from penstock.transports.http.one_write import OneWrite
from penstock.transports.http.protocol import HttpProtocol
from penstock.transports.http.request import Receive, Request, Scope, Send

SOCKETS_MAX = 1_000
"""Open at a time, over all dialects."""
FRAME_BYTES_MAX = 64 * 1024
"""Of what a client sends: subscriptions and acks."""
UNSENT_FRAMES_MAX = 256
PING_S = 30

BUSY = 1013
NORMAL = (1000, 1001)
"""Closed by who meant to: whatever it still held was not lost."""

_encoder = msgspec.json.Encoder()
_log = structlog.get_logger("penstock.dialects")


class Session(Protocol):
    """What one connection means."""

    async def receive(self, text: str) -> None:
        """One frame. The next one waits for it."""

    async def ended(self, *, lost: bool) -> None:
        """The connection is over; `lost` if nobody said goodbye."""


class Outlet:
    """What is on its way to a client."""

    def __init__(self) -> None:
        self._unsent: deque[str] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def send(self, frame: Any) -> None:
        """Wait until there is room for it."""
        while not self.offer(frame):
            self._room.clear()
            await self._room.wait()

    def offer(self, frame: Any) -> bool:
        """False if the client is too far behind to be told."""
        if len(self._unsent) >= UNSENT_FRAMES_MAX:
            return False
        self._unsent.append(_encoder.encode(frame).decode())
        self._changed.set()
        return True

    async def write_to(self, send: Send) -> None:
        """Forever."""
        while True:
            while self._unsent:
                text = self._unsent.popleft()
                self._room.set()
                await send({"type": "websocket.send", "text": text})
            self._changed.clear()
            await self._changed.wait()


Begin: TypeAlias = Callable[[Edge, Outlet], Session]


class Sockets:
    """All WebSockets of the dialects that are switched on, by their path."""

    def __init__(self, edge: Edge, sessions: Mapping[str, Begin]):
        self._edge = edge
        self._sessions = sessions
        self._open = 0

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = self._sessions[scope["path"]]
        assert (await receive())["type"] == "websocket.connect"
        try:
            check_host(Request("GET", scope["path"], b"", scope["headers"], b""))
        except (Forbidden, InvalidRequest):
            await send({"type": "websocket.close"})  # before it is accepted: the answer is 403
            return
        await send({"type": "websocket.accept"})
        if self._open >= SOCKETS_MAX:
            await send({"type": "websocket.close", "code": BUSY, "reason": f"{SOCKETS_MAX} are open already"})
            return
        self._open += 1
        outlet = Outlet()
        writing = asyncio.ensure_future(outlet.write_to(send))
        session = begin(self._edge, outlet)
        lost = True
        try:
            lost = await self._listen(session, receive, writing)
        except Exception:
            _log.exception("failed", path=scope["path"])
        finally:
            self._open -= 1
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await session.ended(lost=lost)

    async def _listen(self, session: Session, receive: Receive, writing: asyncio.Future[None]) -> bool:
        """Until the connection is over; True if it was lost."""
        while not writing.done():
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return event.get("code") not in NORMAL
            text = event.get("text")
            await session.receive(text if text is not None else (event.get("bytes") or b"").decode(errors="replace"))
        return True


class SocketApp(HttpApp):
    """The HTTP edge, and WebSockets beside it."""

    def __init__(self, sessions: Mapping[str, Begin], *args: Any):
        super().__init__(*args)
        self.socket_paths = frozenset(sessions)
        self._sockets = Sockets(self._edge, sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._sockets.serve(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class SocketProtocol(HttpProtocol):
    """One connection that may become a WebSocket."""

    def handle_websocket_upgrade(self) -> None:
        """No timer of HTTP may meet the connection any more, and nothing may hold back the handshake."""
        path = httptools.parse_url(self.url).path.decode("latin-1")
        if path not in self.app.socket_paths:
            super().handle_websocket_upgrade()
            return
        self._let_go()
        self.transport = cast(OneWrite, self.transport).unwrap()
        HttpToolsProtocol.handle_websocket_upgrade(self)


WEBSOCKETS: dict[str, Any] = {
    "ws": "websockets-sansio",
    "ws_max_size": FRAME_BYTES_MAX,
    "ws_ping_interval": PING_S,
    "ws_ping_timeout": PING_S,
    "ws_per_message_deflate": False,
}
"""What the server under us is to be told, for the application above."""
