"""The socket of one WebSocket: bytes to messages and back, pings, and bounds on what lies around unread.

The framing of RFC 6455 is that of `websockets`, without its I/O. What is written within one turn of the event loop
leaves together, because every call of the kernel costs as much as a small message. What the transport could not send is
counted: above a mark nothing more is delivered or read; a client that leaves it there for too long is evicted. There is
no task, no queue and no timer per connection. ADR 0017 has the measurements.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol as Framing
from websockets.protocol import Side, State

from penstock import limits
from penstock.transports.input_pacer import InputPacer, Parsed
from penstock.wire import stream

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from penstock.transports.websocket.sockets import WebSockets

_log = structlog.get_logger("penstock.websocket")
_PING = Frame(Opcode.PING, b"").serialize(mask=False)
_GONE = 1006
"""What RFC 6455 calls an end without a close frame."""
_GOODBYE = (1000, 1001)


class Meaning(Protocol):
    """What a connection means; told by its socket. `session.py` is one."""

    @property
    def busy(self) -> bool:
        """True: give it no more messages. It calls `Connection.freed` when it can take one again."""

    @property
    def answering(self) -> bool:
        """True while an answer is due. It calls `Connection.freed` behind the last one, once `finish` was called."""

    def receive(self, data: bytes) -> None: ...
    def finish(self) -> None:
        """The client has begun to close: answer what is under way, and deliver nothing more."""

    def paused(self) -> None: ...
    def resumed(self) -> None: ...
    def drain(self) -> None: ...
    def ended(self) -> None: ...


class Spoken(NamedTuple):
    """What is spoken on a connection."""

    opcode: Opcode
    message_bytes_max: int
    begin: Callable[[Connection], Meaning]


class Connection(asyncio.Protocol):
    """Takes over from the HTTP connection that the handshake came on."""

    __slots__ = (
        "_client_closes", "_close_timer", "_fragments", "_framing", "_heard", "_inbox", "_input", "_opcode",
        "_server_state", "_session", "_slow_timer", "_sockets", "_transport", "_unwritten", "_unwritten_bytes",
    )  # fmt: skip

    def __init__(
        self,
        sockets: WebSockets,
        spoken: Spoken,
        transport: asyncio.Transport,
        server_state: ServerState,
    ):
        self._sockets = sockets
        self._transport = transport
        self._server_state = server_state
        self._framing = Framing(Side.SERVER, state=State.OPEN, max_size=spoken.message_bytes_max, logger=_Quiet)  # type: ignore[arg-type]
        self._opcode = spoken.opcode
        self._fragments = bytearray()
        """The fragments of an unfinished message. `Framing` bounds their sum; empty ones take no space."""
        self._input = InputPacer(self._parse, self._read_on, asyncio.get_running_loop())
        self._inbox: deque[bytes] | None = None
        """Messages that wait until fewer requests are under way."""
        self._unwritten: list[bytes] = []
        """Frames that leave at the end of this turn."""
        self._unwritten_bytes = 0
        self._heard = True
        self._client_closes = False
        """True while the client's close frame waits for answers that were due when it came."""
        self._slow_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(
            high=limits.WEBSOCKET_OUTPUT_PAUSE_BYTES, low=limits.WEBSOCKET_OUTPUT_RESUME_BYTES
        )
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.WEBSOCKET_KERNEL_BYTES)
        server_state.connections.add(self)  # type: ignore[arg-type]
        sockets.add(self)
        self._session = spoken.begin(self)

    # -- in -----------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._input.receive(data)

    def _parse(self, data: bytes) -> Parsed:
        """Handle the frames of a slice of the input."""
        framing = self._framing
        framing.receive_data(data)
        if framing.close_rcvd_then_sent and not self._client_closes:
            self._close_behind_answers()
        events, messages = framing.events_received(), 0
        for event in events:
            assert isinstance(event, Frame)
            if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._take(event)
                messages += event.fin
        self._flush()
        if self._unwritten:
            self.write_now()  # the answers to requests of this slice that were ready at once
        return Parsed(len(events), messages)

    def _take(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT and frame.opcode is not self._opcode:
            self.close(stream.WRONG_KIND)
            return
        if not frame.fin:
            self._fragments += frame.data
            return
        message = bytes(frame.data)
        if self._fragments:
            message = bytes(self._fragments) + message
            self._fragments.clear()
        if self._inbox is not None or self._session.busy:
            if self._inbox is None:
                self._inbox = deque()
                self._read_on()
            self._inbox.append(message)
        else:
            self._session.receive(message)

    def freed(self) -> None:
        while self._inbox and not self._session.busy:
            self._session.receive(self._inbox.popleft())
        if not self._inbox:
            self._inbox = None
            self._read_on()
        if self._client_closes:
            self._flush()

    def _read_on(self) -> None:
        """Read while neither requests, answers nor unparsed input wait."""
        if self._transport.is_closing():
            return
        held = self._inbox is not None or self._slow_timer is not None
        self._input.hold(held)
        if held or not self._input.is_empty:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        self._framing.receive_eof()
        self._flush()
        return False

    # -- out ----------------------------------------------------------------------------------------------------------

    def write(self, sealed: bytes) -> None:
        if self._framing.state is not State.OPEN and not self._client_closes:
            return
        if not self._unwritten:
            self._sockets.write_soon(self)
        self._unwritten.append(sealed)
        self._unwritten_bytes += len(sealed)
        if self._unwritten_bytes > limits.WEBSOCKET_TOGETHER_BYTES:
            self.write_now()

    def write_now(self) -> None:
        """What was written in this turn, in one call."""
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        if not unwritten or self._transport.is_closing():
            return
        self._transport.write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))
        if self._transport.get_write_buffer_size() > limits.WEBSOCKET_ANSWERS_BYTES_MAX:
            self._evict()

    def _flush(self) -> None:
        """Send what the protocol itself has to say: pongs, and its side of the close."""
        if self._client_closes:
            if self._inbox or self._session.answering:
                return
            self._stop_waiting_for_answers()
        for data in self._framing.data_to_send():
            if data:
                self.write_now()
                self._transport.write(data)
            else:
                self._end()

    def pause_writing(self) -> None:
        self._slow_timer = asyncio.get_running_loop().call_later(limits.WEBSOCKET_SLOW_MS / 1000, self._evict)
        self._session.paused()
        self._read_on()

    def resume_writing(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None
        self._read_on()
        self._session.resumed()

    def beat(self) -> None:
        """Every 30 s: who was not heard since the last one is gone."""
        if self._framing.state is not State.OPEN or self._slow_timer is not None or self._inbox is not None:
            return  # also where it is us who do not listen at the moment
        if not self._heard:
            self.close(stream.SILENT)
            self._end()
        else:
            self._heard = False
            self.write(_PING)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _close_behind_answers(self) -> None:
        """The client's close frame is answered behind the answers that are due, or when the time for that is up."""
        self._client_closes = True
        self._session.finish()
        self._close_timer = asyncio.get_running_loop().call_later(
            limits.WEBSOCKET_CLOSE_MS / 1000, self._give_up_answers
        )

    def _give_up_answers(self) -> None:
        self._stop_waiting_for_answers()
        self._flush()

    def _stop_waiting_for_answers(self) -> None:
        self.write_now()
        self._client_closes = False
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None

    def close(self, close: stream.Close) -> None:
        """Begin the closing handshake; the client has a few seconds for its side of it."""
        if self._framing.state is not State.OPEN:
            return
        self._framing.send_close(close.code, close.reason)
        self._session.ended()
        self._flush()
        self._cut_off_later()

    def _evict(self) -> None:
        """The close frame stands behind what was not read, for a client that wakes up in time."""
        if self._framing.state is State.OPEN:
            _log.warning("slow reader evicted", unsent=self._transport.get_write_buffer_size())
            self.close(stream.SLOW)
            self._end()

    def _end(self) -> None:
        """Send what is left and close the socket."""
        self._session.ended()
        self.write_now()
        if not self._transport.is_closing():
            self._transport.close()
        self._cut_off_later()

    def _cut_off_later(self) -> None:
        if self._close_timer is None:
            self._close_timer = asyncio.get_running_loop().call_later(
                limits.WEBSOCKET_CLOSE_MS / 1000, self._transport.abort
            )

    @property
    def goodbye(self) -> bool:
        """True if the client closed the connection, and meant to."""
        close = self._framing.close_rcvd
        return close is not None and close.code in _GOODBYE

    def shutdown(self) -> None:
        """The server stops."""
        self._session.drain()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for timer in (self._slow_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._slow_timer = self._close_timer = None
        self._inbox = None
        self._input.close()
        self._session.ended()
        close = self._framing.close_sent or self._framing.close_rcvd
        self._sockets.remove(self, _GONE if close is None else close.code)
        self._server_state.connections.discard(self)


class _Quiet:
    """`websockets` reports the end of every connection; the counters by close code do that here."""

    @staticmethod
    def isEnabledFor(level: int) -> bool:  # noqa: ARG004
        return False

    @staticmethod
    def info(*_: object) -> None: ...

    @staticmethod
    def error(*args: object, **_: object) -> None:
        _log.error("websocket framing failed", what=str(args[0]), exc_info=True)
