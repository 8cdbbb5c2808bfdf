"""WebSockets of dialects, in the room of our own: framing, pings, eviction and the end of connections are theirs.

What a connection means is a `Session`, which sees frames and no socket, and takes them one after the other. What it
says goes through an `Outlet` with a bound: who sends waits for room, who only offers is told that there is none.
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
"""Of what a client sends: subscriptions and acks."""
UNSENT_FRAMES_MAX = 256
UNSENT_BYTES_MAX = 1 << 20
"""Of what waits to be sent to one client that does not read; a single frame may be longer."""

_encoder = msgspec.json.Encoder()
_log = get_logger("penstock.dialects")


class Session(Protocol):
    """What one connection means."""

    async def receive(self, text: str) -> None:
        """One frame. The next one waits for it."""

    async def ended(self, *, lost: bool) -> None:
        """The connection is over; `lost` if nobody said goodbye."""


class Line(Protocol):
    """The socket's side."""

    @property
    def goodbye(self) -> bool:
        """True if the client closed the connection, and meant to."""

    def write(self, sealed: bytes) -> None: ...
    def close(self, close: stream.Close) -> None: ...
    def freed(self) -> None: ...


class Outlet:
    """What a client is told: at once, unless it does not read."""

    def __init__(self, write: Callable[[bytes], None]):
        self._write = write
        self._paused = False
        self._unsent: deque[bytes] = deque()
        self._size = 0
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._unsent)

    async def send(self, frame: Any) -> None:
        """Wait until there is room for it."""
        while not self.offer(frame):
            self._room.clear()
            await self._room.wait()

    def offer(self, frame: Any) -> bool:
        """False if the client is too far behind to be told."""
        if len(self._unsent) >= UNSENT_FRAMES_MAX or self._size >= UNSENT_BYTES_MAX:
            return False
        payload = _encoder.encode(frame)
        if self._paused:
            self._unsent.append(payload)
            self._size += len(payload)
        else:
            self._write(sealed(payload))
        return True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        # What is written may pause it again.
        while self._unsent and not self._paused:
            self._write(sealed(self.take()))

    def take(self) -> bytes:
        """The next of those that wait. There must be one."""
        payload = self._unsent.popleft()
        self._size -= len(payload)
        self._room.set()
        return payload


def sealed(payload: bytes) -> bytes:
    return Frame(Opcode.TEXT, payload).serialize(mask=False)


Begin: TypeAlias = Callable[[Edge, Outlet], Session]


class Conversation:
    """One connection, as the room of WebSockets knows them."""

    def __init__(self, edge: Edge, begin: Begin, line: Line):
        self._line = line
        self._outlet = Outlet(line.write)
        self._session = begin(edge, self._outlet)
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
        """Frames are handled one by one, and `freed` is called behind each: there is nothing to prepare."""

    def receive(self, data: bytes) -> None:
        if self._ending is not None:
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._line.close(stream.NOT_TEXT)
            return
        self._handling = asyncio.get_running_loop().create_task(self._handle(text))

    async def _handle(self, text: str) -> None:
        try:
            await self._session.receive(text)
        except Exception:
            _log.exception("failed")
            self._line.close(stream.BROKEN)
        self._handling = None
        if self._ending is None:
            self._line.freed()

    def paused(self) -> None:
        self._outlet.pause()

    def resumed(self) -> None:
        self._outlet.resume()

    def drain(self) -> None:
        self._stopping = True
        self._line.close(stream.RESTART)

    def ended(self) -> None:
        """Told at least once."""
        if self._ending is None:
            lost = not (self._stopping or self._line.goodbye)
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
            _log.exception("failed")


_ENDING: set[asyncio.Task[None]] = set()
"""Tasks of connections that are over, so that none is swept away before it is done."""
