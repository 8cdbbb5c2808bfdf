"""One HTTP connection: requests are answered in the order of their arrival.

A request is collected as a whole (`framing.py`), and its handler is called in the callback that received its last byte.
The answer is written as soon as it is durable. Requests behind an unanswered one wait in a queue, and so does the error
for bytes that are no request. ADR 0016 has the measurements. Timers bound the wait for a head, for a body and for a
client that does not read its answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from penstock import limits
from penstock.errors import PenstockError, Unavailable
from penstock.security.principal import Principal
from penstock.transports.http.answer import Answer, answer_head, error_answer
from penstock.transports.http.connections import described
from penstock.transports.http.framing import Continue, Handshake, Received, Refusal, RequestReader
from penstock.transports.http.request import UNKNOWN_PEER, Peer, Request, body_stalled, peer_of
from penstock.transports.input_pacer import InputPacer, Parsed
from penstock.transports.memory_budget import SMALL_BYTES, BudgetShare
from penstock.transports.request_log import log_connection

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from penstock.transports.http.app import HttpApp

LATER_MAX = 16
LATER_BYTES_MAX = 2**20
"""Requests, and their bytes, that wait for an earlier one. Above either bound reading from the connection pauses."""
JOIN_BELOW_BYTES = 16 * limits.KIB
"""Below this size, one write of head and body joined is cheaper than two buffers."""


class HttpProtocol(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - these are the arguments that uvicorn's server gives
        _loop: asyncio.AbstractEventLoop | None = None,
    ):
        self.app = cast("HttpApp", config.app)
        self.loop = _loop or asyncio.get_running_loop()
        self.server_state = server_state
        self._keep_alive_s = config.timeout_keep_alive
        self._reader = RequestReader(self.app.opens_websocket, self.app.memory)
        self._memory = BudgetShare(self.app.memory)
        self._input = InputPacer(self._parse, self._bound_reading, self.loop)
        self._waiting: deque[Received] = deque()
        """Received and not started, in order."""
        self._current: Request | None = None
        """The request that is being answered. No later request is started before its answer."""
        self._proceeding = False
        self._half_closed = False
        self._is_surplus = False
        """True if the server had too many connections when this one was opened."""
        self._draining = False
        self._read_paused = False
        self._write_paused = False
        self._stall_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._used_at = 0.0
        self._since_ms = 0
        self._peer = UNKNOWN_PEER

    # -- the connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        self._since_ms = self.app.edge.clock.now_ms()
        self._is_surplus = self.app.metrics.count_connections() > limits.CONNECTIONS_MAX
        if self.app.auth is not None:
            self._peer = peer_of(transport)
        self._watch_head()
        log_connection("connection_opened", transport.get_extra_info("peername"), transport="http")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.server_state.connections.discard(self)
        log_connection("connection_closed", self.transport.get_extra_info("peername"), since_at_ms=self._since_ms)
        self._stop_timers()
        self._input.close()
        self._memory.set(0)
        self._waiting.clear()
        if self._current is not None:
            self._current.disconnect()

    def eof_received(self) -> bool:
        """The client has closed its side, and may still read. A waiting lease or read ends and is answered.

        So a consumer can withdraw a long poll and still receive an answer that was sent before.
        """
        self._half_closed = True
        if self._is_idle():
            return False
        if self._current is not None:
            self._current.half_close()
        return True

    def shutdown(self) -> None:
        """The server stops: the connection closes after the last pending answer."""
        self._draining = True
        if self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        """True if no request is in flight or waiting."""
        return self._current is None and not self._waiting

    def _stop_timers(self) -> None:
        for timer in (self._stall_timer, self._idle_timer, self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._stall_timer = self._idle_timer = self._head_timer = self._write_timer = None

    # -- input ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._input.receive(data)

    def _parse(self, data: bytes) -> Parsed:
        """Handle a slice of the input: requests and parts of bodies."""
        units, heads = self._reader.units, self._reader.heads
        received = self._reader.feed(data)
        if received:
            self._waiting.extend(received)
            self._proceed()
        if self._reader.in_body:
            if self._stall_timer is None:
                self._watch_body()
        elif self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._count_memory()
        if self._head_timer is not None and self._reader.heads != heads:
            self._head_timer.cancel()
            self._head_timer = None
        if self._reader.in_head and self._head_timer is None and not self.transport.is_closing():
            self._watch_head()
        return Parsed(self._reader.units - units, len(received))

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(limits.HEADER_WAIT_MS / 1000, self._give_up_head)

    def _give_up_head(self) -> None:
        self._reader.ended = True
        self.shutdown()

    def _count_memory(self) -> None:
        held = self._reader.held_bytes
        if self._waiting:
            held += self._waiting_bytes()
        if self._current is not None:
            held += self._current.size
        if self._write_paused:
            held += self.transport.get_write_buffer_size()
        if held > SMALL_BYTES or self._memory.counted:
            self._memory.set(held)

    def _waiting_bytes(self) -> int:
        return sum(each.size for each in self._waiting if isinstance(each, Request))

    def _watch_body(self) -> None:
        self._stall_timer = self.loop.call_later(limits.BODY_STALL_MS / 1000, self._check_body, self._reader.body_bytes)

    def _check_body(self, bytes_before: int) -> None:
        self._stall_timer = None
        by_server = self._read_paused or any(isinstance(each, Continue) for each in self._waiting)
        if by_server or self._reader.body_bytes != bytes_before:
            self._watch_body()
        else:
            self._reader.ended = True
            self._waiting.append(Refusal(body_stalled()))
            self._proceed()

    # -- in order ----------------------------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Start waiting requests, until one of them is not answered at once."""
        if self._proceeding:
            return  # an immediate answer calls this method from inside the loop below
        self._proceeding = True
        try:
            while self._waiting and self._current is None and not (self._write_paused or self.transport.is_closing()):
                self._start(self._waiting.popleft())
        finally:
            self._proceeding = False
        if self._waiting or self._read_paused:
            self._bound_reading()

    def _start(self, received: Received) -> None:
        if self._is_surplus:
            too_many = f"more than {limits.CONNECTIONS_MAX} connections are open"
            self._refuse(Refusal(Unavailable(too_many, retry_after_ms=1_000)))
        elif isinstance(received, Request):
            self._current = received
            received.half_closed, received.peer = self._half_closed, self._peer_of(received)
            self.app.respond(received, self._answer)
        elif isinstance(received, Continue):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._watch_body()  # the client sends the body after this line
        elif isinstance(received, Refusal):
            self._refuse(received)
        else:
            self._open_websocket(received)

    def _bound_reading(self) -> None:
        held = bool(self._waiting) and (
            # Bytes after a handshake are not read before it is answered.
            self._reader.ended or len(self._waiting) >= LATER_MAX or self._waiting_bytes() >= LATER_BYTES_MAX
        )
        if held is not self._input.held:
            self._input.hold(held)
        pause = held or not self._input.is_empty
        if pause is not self._read_paused and not self.transport.is_closing():
            self._read_paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _answer(self, request: Request, answer: Answer | None) -> None:
        """Send the answer to the current request. None: the client has disconnected."""
        if request.disconnected:
            return
        self._current = None
        self.server_state.total_requests += 1
        if answer is None:
            self.transport.close()
            return
        if self._memory.counted:
            self._count_memory()
        if answer.stream is not None:
            self._open_stream(answer, request.principal)
            return
        last = not self._waiting and (self._draining or self._half_closed)
        self._write(answer, request.method, close=request.must_close or last)
        if self._waiting or self._read_paused:
            self._proceed()

    # -- output ------------------------------------------------------------------------------------------------------

    def _refuse(self, refusal: Refusal) -> None:
        answer = error_answer(refusal.error)
        self.app.metrics.answered("none", answer.status)
        self._write(answer, "", close=True)

    def _write(self, answer: Answer, method: str, *, close: bool) -> None:
        head = answer_head(answer, close=close)
        body = b"" if method == "HEAD" else answer.body
        if len(body) < JOIN_BELOW_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        if close:
            self._close_after_input()
            return
        self._used_at = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._keep_alive_s, self._check_idle)

    def _close_after_input(self) -> None:
        """Close the connection of a client that may still be sending: its input is read and dropped for a short time.

        Closing a socket with unread input resets it, and the client may lose the answer (RFC 9112, 9.6).
        """
        self._reader.ended = True
        self._waiting.clear()
        if self._half_closed or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(limits.LINGER_MS / 1000, self.transport.close)

    def _check_idle(self) -> None:
        """Close the connection if its last answer is old enough. One timer serves all its requests."""
        idle_s = self.loop.time() - self._used_at
        busy = not self._is_idle() or self._reader.in_body
        if idle_s < self._keep_alive_s or busy:
            wait_s = self._keep_alive_s if busy else self._keep_alive_s - idle_s
            self._idle_timer = self.loop.call_later(wait_s, self._check_idle)
        else:
            self.transport.close()

    # -- answers that are not read -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._write_paused = True
        self._count_memory()
        self._watch_writing()

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._write_paused = False
        self._count_memory()
        self._proceed()

    def _watch_writing(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(limits.WRITE_STALL_MS / 1000, self._check_writing, size)

    def _check_writing(self, size_before: int) -> None:
        if self.transport.get_write_buffer_size() >= size_before:
            self.transport.abort()
        else:
            self._watch_writing()

    # -- becoming another protocol -----------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """For the list of connections."""
        now_ms = self.app.edge.clock.now_ms()
        seen_ms = now_ms - round(1000 * (self.loop.time() - self._used_at)) if self._used_at else 0
        holds = "" if self._current is None else f"{self._current.method} {self._current.path}"
        return described(self.transport.get_extra_info("peername"), "http", self._since_ms, seen_ms, holds[:200])

    def _open_stream(self, answer: Answer, principal: Principal | None) -> None:
        assert answer.stream is not None
        self.transport.write(answer_head(answer, close=True))
        self._stop_timers()
        self.server_state.connections.discard(self)
        opened = answer.stream(self.transport, self.server_state.connections)
        if self.app.auth is not None and principal is not None:
            opened.on_lost = self.app.auth.follow(principal, self.transport.abort)
        self.transport.set_protocol(opened)
        if self._read_paused:
            self.transport.resume_reading()

    def _peer_of(self, request: Request) -> Peer:
        auth = self.app.auth
        return self._peer if auth is None else auth.client_behind(self._peer, request.fields.headers)

    def _open_websocket(self, handshake: Handshake) -> None:
        """Pass the connection to the WebSocket protocol and stop the HTTP timers; or refuse, and close it."""
        websockets = self.app.websockets
        assert websockets is not None, "the reader would have ignored the offer"
        if self._half_closed:
            self.transport.close()
            return
        handshake.request.peer = self._peer_of(handshake.request)
        try:
            opened = websockets.open(handshake.request, self.transport, self.server_state)
        except PenstockError as error:
            answer = error_answer(error)
            self.app.metrics.answered("websocket", answer.status)
            self._write(answer, "GET", close=True)
            return
        self.app.metrics.answered("websocket", 101)
        log_connection("websocket_opened", self.transport.get_extra_info("peername"), path=handshake.request.path[:200])
        self._stop_timers()
        self.server_state.connections.discard(self)
        self.transport.set_protocol(opened)
        if self._read_paused:
            self.transport.resume_reading()
        if rest := handshake.rest + self._input.take():
            opened.data_received(rest)
