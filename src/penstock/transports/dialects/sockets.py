"""WebSocket connections of dialects. Framing, pings, eviction and closing are those of `transports/websocket`.

A `DialectSession` handles the frames of one connection one after the other, without a socket. It writes to a bounded
`FrameBuffer`: `send` waits for space, `offer` returns False if there is none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec
from websockets.frames import Frame, Opcode

from penstock.logs import get_logger
from penstock.transports.http.edge import Edge
from penstock.wire import stream

FRAME_BYTES_MAX = 64 * 1024
"""The largest frame that a client may send: subscriptions and acks are small."""
UNSENT_FRAMES_MAX = 256
UNSENT_BYTES_MAX = 1 << 20
"""The bounds of unsent frames of one connection; a single frame may be longer."""

_encoder = msgspec.json.Encoder()
_log = get_logger("penstock.dialects")


class DialectSession(Protocol):
    """Handles the frames of one connection."""

    async def receive(self, text: str) -> None:
        """Handle one frame. The next frame waits for it."""

    async def ended(self, *, lost: bool) -> None:
        """The connection has ended; `lost` if neither the client nor the server closed it properly."""


class DialectSocket(Protocol):
    """The methods of a connection that a dialect needs."""

    @property
    def closed_by_client(self) -> bool:
        """True if the client closed the connection with a normal close code."""

    def write(self, sealed: bytes) -> None: ...
    def close(self, close: stream.Close) -> None: ...
    def freed(self) -> None: ...


class FrameBuffer:
    """Frames to a client: written at once, or kept while output is paused."""

    def __init__(self, write: Callable[[bytes], None]):
        self._write = write
        self._paused = False
        self._unsent: deque[bytes] = deque()
        self._size = 0
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._unsent)

    async def send(self, frame: Any) -> None:
        """Write the frame, or wait until there is space for it."""
        while not self.offer(frame):
            self._room.clear()
            await self._room.wait()

    def offer(self, frame: Any) -> bool:
        """Write or keep the frame. Returns False if the buffer is full."""
        if len(self._unsent) >= UNSENT_FRAMES_MAX or self._size >= UNSENT_BYTES_MAX:
            return False
        payload = _encoder.encode(frame)
        if self._paused:
            self._unsent.append(payload)
            self._size += len(payload)
        else:
            self._write(frame_bytes(payload))
        return True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        # A write may pause the output again.
        while self._unsent and not self._paused:
            self._write(frame_bytes(self.take()))

    def take(self) -> bytes:
        """Remove and return the oldest unsent frame. The buffer must not be empty."""
        payload = self._unsent.popleft()
        self._size -= len(payload)
        self._room.set()
        return payload


def frame_bytes(payload: bytes) -> bytes:
    return Frame(Opcode.TEXT, payload).serialize(mask=False)


SessionFactory: TypeAlias = Callable[[Edge, FrameBuffer], DialectSession]


class DialectConnection:
    """One connection of a dialect. Implements `ConnectionHandler` of `transports/websocket`."""

    def __init__(self, edge: Edge, begin: SessionFactory, socket: DialectSocket):
        self._socket = socket
        self._output = FrameBuffer(socket.write)
        self._session = begin(edge, self._output)
        self._handling: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def busy(self) -> bool:
        return self._handling is not None

    @property
    def answering(self) -> bool:
        return self._handling is not None

    def finish(self) -> None:
        """Frames are handled one by one, and `freed` is called after each, so there is nothing to do."""

    def receive(self, data: bytes) -> None:
        if self._ending is not None:
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._socket.close(stream.NOT_TEXT)
            return
        self._handling = asyncio.get_running_loop().create_task(self._handle(text))

    async def _handle(self, text: str) -> None:
        try:
            await self._session.receive(text)
        except Exception:
            _log.exception("websocket_frame_failed")
            self._socket.close(stream.BROKEN)
        self._handling = None
        if self._ending is None:
            self._socket.freed()

    def paused(self) -> None:
        self._output.pause()

    def resumed(self) -> None:
        self._output.resume()

    def drain(self) -> None:
        self._stopping = True
        self._socket.close(stream.RESTART)

    def ended(self) -> None:
        """May be called more than once."""
        if self._ending is None:
            lost = not (self._stopping or self._socket.closed_by_client)
            self._ending = asyncio.get_running_loop().create_task(self._end(lost))
            _ENDING.add(self._ending)
            self._ending.add_done_callback(_ENDING.discard)

    async def _end(self, lost: bool) -> None:
        if self._handling is not None:
            self._handling.cancel()
            await asyncio.gather(self._handling, return_exceptions=True)
        try:
            await self._session.ended(lost=lost)
        except Exception:
            _log.exception("websocket_end_failed")


_ENDING: set[asyncio.Task[None]] = set()
"""References to running end tasks, because asyncio keeps only weak references to tasks."""
