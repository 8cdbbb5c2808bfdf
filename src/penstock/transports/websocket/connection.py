"""One WebSocket connection: framing, pings, bounds on unsent output, closing.

The framing of RFC 6455 is that of the library `websockets`, without its I/O. Frames of one turn of the event loop are
written in one call, because a system call costs as much as a small message. While the transport has too many unsent
bytes, the connection neither delivers nor reads; a client that stays slow for too long is evicted. A connection has no
task, no queue and no timer of its own in normal operation. ADR 0017 has the measurements.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol as Framing
from websockets.protocol import Side, State

from penstock import limits
from penstock.transports.http.connections import described
from penstock.transports.input_pacer import InputPacer, Parsed
from penstock.transports.memory_budget import SMALL_BYTES, BudgetShare
from penstock.wire import stream

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from penstock.security.principal import Principal
    from penstock.transports.auth import Authenticator
    from penstock.transports.websocket.sockets import WebSockets

_log = structlog.get_logger("penstock.websocket")
_PING = Frame(Opcode.PING, b"").serialize(mask=False)
_GONE = 1006
"""The code of RFC 6455 for an end without a close frame."""
_NORMAL_CODES = (1000, 1001)


class ConnectionHandler(Protocol):
    """Handles the messages of one connection. `WebSocketSession` is one implementation."""

    @property
    def busy(self) -> bool:
        """True if it accepts no more messages. It calls `Connection.freed` when it accepts messages again."""

    @property
    def answering(self) -> bool:
        """True while a reply is pending. After `finish` it calls `Connection.freed` with the last reply."""

    def receive(self, data: bytes) -> None: ...
    def finish(self) -> None:
        """The client is closing: send the pending replies and deliver nothing more."""

    def paused(self) -> None: ...
    def resumed(self) -> None: ...
    def drain(self) -> None: ...
    def ended(self) -> None: ...


class ProtocolSpec(NamedTuple):
    """A protocol over WebSocket: its opcode, its limit, and the factory of its handler."""

    opcode: Opcode
    message_bytes_max: int
    begin: Callable[[Connection], ConnectionHandler]


class Connection(asyncio.Protocol):
    """The protocol of the transport after the handshake."""

    __slots__ = (
        "_client_closes",
        "_close_timer",
        "_fragments",
        "_framing",
        "_inbox",
        "_input",
        "_memory",
        "_opcode",
        "_received_since_ping",
        "_server_state",
        "_session",
        "_since_ms",
        "_slow_timer",
        "_sockets",
        "_transport",
        "_unfollow",
        "_unwritten",
        "_unwritten_bytes",
        "on_closed",
    )  # fmt: skip

    def __init__(
        self,
        sockets: WebSockets,
        protocol: ProtocolSpec,
        transport: asyncio.Transport,
        server_state: ServerState,
    ):
        """Raises PenstockError if the handler of the protocol refuses."""
        self._sockets = sockets
        self._transport = transport
        self._server_state = server_state
        self._framing = Framing(
            Side.SERVER,
            state=State.OPEN,
            max_size=protocol.message_bytes_max,
            logger=_FramingLogger,  # type: ignore[arg-type]
        )
        self._opcode = protocol.opcode
        self._fragments = bytearray()
        """The fragments of an incomplete message. `Framing` bounds their sum; empty ones take no space."""
        self._memory = BudgetShare(sockets.memory)
        self._input = InputPacer(self._parse, self._update_reading, asyncio.get_running_loop())
        self._inbox: deque[bytes] | None = None
        """Messages that wait until the handler is no longer busy."""
        self._unwritten: list[bytes] = []
        """Frames that are written at the end of this turn of the event loop."""
        self._unwritten_bytes = 0
        self.on_closed: Callable[[], None] | None = None
        """Called when the connection has ended."""
        self._unfollow: Callable[[], None] | None = None
        self._received_since_ping = True
        self._client_closes = False
        """True while the reply to the client's close frame waits for pending replies."""
        self._slow_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(
            high=limits.WEBSOCKET_OUTPUT_PAUSE_BYTES, low=limits.WEBSOCKET_OUTPUT_RESUME_BYTES
        )
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.WEBSOCKET_KERNEL_BYTES)
        self._since_ms = sockets.clock.now_ms()
        self._session = protocol.begin(self)  # it may refuse, and then there is no connection
        server_state.connections.add(self)  # type: ignore[arg-type]
        sockets.add(self)

    # -- in -----------------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """For the list of connections."""
        return described(self._transport.get_extra_info("peername"), "websocket", self._since_ms, 0, "")

    def data_received(self, data: bytes) -> None:
        self._received_since_ping = True
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
                self._receive_frame(event)
                messages += event.fin
        self._flush()
        if self._unwritten:
            self.write_now()  # replies that were ready at once
        self._count_memory()
        return Parsed(len(events), messages)

    def _count_memory(self) -> None:
        """Count a message that is not complete; refuse it if the budget of all connections is used up."""
        held = len(self._fragments) + len(self._framing.reader.buffer)
        self._memory.set(held)
        if held > SMALL_BYTES and self._sockets.memory.is_full:
            self.close(stream.OVERLOADED)

    def _receive_frame(self, frame: Frame) -> None:
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
                self._update_reading()
            self._inbox.append(message)
        else:
            self._session.receive(message)

    def freed(self) -> None:
        while self._inbox and not self._session.busy:
            self._session.receive(self._inbox.popleft())
        if not self._inbox:
            self._inbox = None
            self._update_reading()
        if self._client_closes:
            self._flush()

    def _update_reading(self) -> None:
        """Read while neither requests, replies nor unparsed input wait; pause otherwise."""
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

    def write(self, frame: bytes) -> None:
        if self._framing.state is not State.OPEN and not self._client_closes:
            return
        if not self._unwritten:
            self._sockets.write_soon(self)
        self._unwritten.append(frame)
        self._unwritten_bytes += len(frame)
        if self._unwritten_bytes > limits.WEBSOCKET_TOGETHER_BYTES:
            self.write_now()

    def write_now(self) -> None:
        """Write the frames of this turn in one call."""
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        if not unwritten or self._transport.is_closing():
            return
        self._transport.write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))
        if self._transport.get_write_buffer_size() > limits.WEBSOCKET_ANSWERS_BYTES_MAX:
            self._evict()

    def _flush(self) -> None:
        """Write pongs and close frames of the framing."""
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
        self._update_reading()

    def resume_writing(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None
        self._update_reading()
        self._session.resumed()

    def ping(self) -> None:
        """Send a ping; close a connection that has received nothing since the last ping. Called every 30 s."""
        if self._framing.state is not State.OPEN or self._slow_timer is not None or self._inbox is not None:
            return  # the connection does not read, so pongs may be waiting
        if not self._received_since_ping:
            self.close(stream.SILENT)
            self._end()
        else:
            self._received_since_ping = False
            self.write(_PING)

    # -- closing ------------------------------------------------------------------------------------------------------

    def _close_behind_answers(self) -> None:
        """Reply to the client's close frame after the pending replies, or after a timeout."""
        self._client_closes = True
        self._session.finish()
        self._close_timer = asyncio.get_running_loop().call_later(
            limits.WEBSOCKET_CLOSE_MS / 1000, self._on_close_timeout
        )

    def _on_close_timeout(self) -> None:
        self._stop_waiting_for_answers()
        self._flush()

    def _stop_waiting_for_answers(self) -> None:
        self.write_now()
        self._client_closes = False
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None

    def close(self, close: stream.Close) -> None:
        """Start the closing handshake. The socket is closed if the client does not answer within a few seconds."""
        if self._framing.state is not State.OPEN:
            return
        self._framing.send_close(close.code, close.reason)
        self._session.ended()
        self._flush()
        self._abort_later()

    def follow(self, auth: Authenticator, principal: Principal) -> None:
        """Close the connection when this principal is accepted no longer, and not with the one before."""
        former, self._unfollow = self._unfollow, auth.follow(principal, partial(self.close, stream.CREDENTIAL_ENDED))
        if former is not None:
            former()

    def removed(self) -> None:
        """The connection has ended."""
        for end in (self._unfollow, self.on_closed):
            if end is not None:
                end()
        self._unfollow = self.on_closed = None

    def _evict(self) -> None:
        """Close a slow connection. The close frame follows the unsent bytes."""
        if self._framing.state is State.OPEN:
            _log.warning("websocket_slow_reader_evicted", unsent_bytes=self._transport.get_write_buffer_size())
            self.close(stream.SLOW)
            self._end()

    def _end(self) -> None:
        """Write the remaining frames and close the socket."""
        self._session.ended()
        self.write_now()
        if not self._transport.is_closing():
            self._transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        if self._close_timer is None:
            self._close_timer = asyncio.get_running_loop().call_later(
                limits.WEBSOCKET_CLOSE_MS / 1000, self._transport.abort
            )

    @property
    def closed_by_client(self) -> bool:
        """True if the client closed the connection with a normal close code."""
        close = self._framing.close_rcvd
        return close is not None and close.code in _NORMAL_CODES

    def shutdown(self) -> None:
        """The server is stopping."""
        self._session.drain()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for timer in (self._slow_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._slow_timer = self._close_timer = None
        self._inbox = None
        self._input.close()
        self._memory.set(0)
        self._session.ended()
        close = self._framing.close_sent or self._framing.close_rcvd
        self._sockets.remove(self, _GONE if close is None else close.code)
        self._server_state.connections.discard(self)


class _FramingLogger:
    """The logger of `websockets`. It drops reports of closed connections, which the metrics count by close code."""

    @staticmethod
    def isEnabledFor(level: int) -> bool:  # noqa: ARG004
        return False

    @staticmethod
    def info(*_: object) -> None: ...

    @staticmethod
    def error(*args: object, **_: object) -> None:
        _log.error("websocket_framing_failed", reason=str(args[0]), exc_info=True)
