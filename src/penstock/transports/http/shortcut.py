"""One connection: requests are answered in the order in which they came, on the spot where nothing has to wait.

A request is collected whole (`framing.py`) and its handler is called inside the callback that its last byte came in.
The answer is written as soon as it is known and durable. Requests behind one that is not answered yet wait in a queue,
and so does the refusal of bytes that are no request. ADR 0016 has the measurements.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock import limits
from penstock.pending import PendingReply
from penstock.transports.http.answer import Answer, answer_head, error_answer
from penstock.transports.http.framing import Continue, Handshake, Received, Refusal, RequestReader
from penstock.transports.http.request import Request, body_stalled
from penstock.transports.input_pacer import InputPacer, Parsed
from penstock.transports.memory_budget import BudgetShare

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from penstock.transports.http.app import HttpApp

LATER_MAX = 16
LATER_BYTES_MAX = 2**20
"""Requests that may wait for the one before them. Above either bound nothing more is read from the connection."""
JOIN_BELOW_BYTES = 16 * limits.KIB
"""A small head and body are cheaper to join than to hand over as two."""


class Exchange:
    """A request that is being answered."""

    __slots__ = ("_gone", "disconnected", "half_closed", "pending", "request")

    def __init__(self, request: Request, *, half_closed: bool):
        self.request = request
        self.pending: PendingReply[Answer] | None = None
        """The reply that the answer waits for, if it does."""
        self.disconnected = False
        self.half_closed = half_closed
        """The client will send nothing more, and may or may not read the answer."""
        self._gone: asyncio.Future[None] | None = None

    def disconnect(self) -> None:
        """The connection is lost: messages that were leased for this request are returned."""
        self.disconnected = True
        self._notice()
        if self.pending is not None:
            self.pending.cancel()

    def half_close(self) -> None:
        """The client sends nothing more: a lease that still waits for messages is answered as it is."""
        self.half_closed = True
        self._notice()
        if self.pending is not None:
            self.pending.withdraw()

    def _notice(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def gone(self) -> bool:
        if not self.disconnected and not self.half_closed:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone
        return self.half_closed and not self.disconnected


class Shortcut(asyncio.Protocol):
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
        """Received and not begun, in order."""
        self._waiting_bytes = 0
        self._current: Exchange | None = None
        """The one that a task is answering, if there is one. Nothing behind it is begun."""
        self._proceeding = False
        self._half_closed = False
        self._draining = False
        self._read_paused = False
        self._write_paused = False
        self._stall_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_at = 0.0

    # -- the connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server_state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.server_state.connections.discard(self)
        self._stop_timers()
        self._input.close()
        self._memory.set(0)
        self._waiting.clear()
        if self._current is not None:
            self._current.disconnect()

    def eof_received(self) -> bool:
        """The client will send nothing more, and may still read. A lease or read that waits ends, and is answered.

        So a consumer can withdraw a long poll and still learn whether an answer was on its way.
        """
        self._half_closed = True
        if self._is_idle():
            return False
        if self._current is not None:
            self._current.half_close()
        return True

    def shutdown(self) -> None:
        """The server stops: the connection ends with the last answer that is due."""
        self._draining = True
        if self._is_idle():
            self.transport.close()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._count_memory()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._count_memory()
        self._proceed()

    def _is_idle(self) -> bool:
        """True if no answer is due."""
        return self._current is None and not self._waiting

    def _stop_timers(self) -> None:
        for timer in (self._stall_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._stall_timer = self._idle_timer = None

    # -- coming in ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._input.receive(data)

    def _parse(self, data: bytes) -> Parsed:
        """Handle a slice of the input: requests and parts of bodies."""
        units = self._reader.units
        received = self._reader.feed(data)
        self._receive(received)
        if self._reader.in_body:
            if self._stall_timer is None:
                self._watch_body()
        elif self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._count_memory()
        return Parsed(self._reader.units - units, len(received))

    def _count_memory(self) -> None:
        held = self._reader.held_bytes + self._waiting_bytes
        if self._current is not None:
            held += self._current.request.size
        if self._write_paused:
            held += self.transport.get_write_buffer_size()
        self._memory.set(held)

    def _receive(self, received: list[Received]) -> None:
        for each in received:
            self._waiting.append(each)
            if isinstance(each, Request):
                self._waiting_bytes += each.size
        if received:
            self._proceed()

    def _watch_body(self) -> None:
        self._stall_timer = self.loop.call_later(limits.BODY_STALL_MS / 1000, self._check_body, self._reader.body_bytes)

    def _check_body(self, bytes_before: int) -> None:
        self._stall_timer = None
        ours = self._read_paused or any(isinstance(each, Continue) for each in self._waiting)
        if ours or self._reader.body_bytes != bytes_before:
            self._watch_body()
        else:
            self._reader.ended = True
            self._receive([Refusal(body_stalled())])

    # -- in order ----------------------------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Begin what waits, until something is to be waited for."""
        if self._proceeding:
            return  # an answer that is there at once is sent from inside of the loop below
        self._proceeding = True
        try:
            self._begin_waiting()
        finally:
            self._proceeding = False
        self._bound_reading()

    def _begin_waiting(self) -> None:
        while self._waiting and self._current is None and not self._write_paused and not self.transport.is_closing():
            received = self._waiting.popleft()
            if isinstance(received, Request):
                self._waiting_bytes -= received.size
                self._begin(Exchange(received, half_closed=self._half_closed))
            elif isinstance(received, Continue):
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                if self._stall_timer is not None:
                    self._stall_timer.cancel()
                    self._watch_body()  # the client sends the body only now
            elif isinstance(received, Refusal):
                self._refuse(received)
            else:
                self._open_websocket(received)
                return

    def _bound_reading(self) -> None:
        too_many = len(self._waiting) >= LATER_MAX or self._waiting_bytes >= LATER_BYTES_MAX
        # The bytes behind a handshake are not read before it is answered.
        held = bool(self._waiting) and (too_many or self._reader.ended)
        self._input.hold(held)
        pause = held or not self._input.is_empty
        if pause is not self._read_paused and not self.transport.is_closing():
            self._read_paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _open_websocket(self, handshake: Handshake) -> None:
        raise NotImplementedError

    def _begin(self, exchange: Exchange) -> None:
        exchange.request.gone = exchange.gone
        self._current = exchange
        pending = self.app.respond(exchange.request, partial(self._answer, exchange))
        if self._current is exchange:
            exchange.pending = pending

    def _answer(self, exchange: Exchange, answer: Answer | None) -> None:
        """Send the answer to the request that is being answered. None: the client has gone."""
        if exchange.disconnected:
            return
        self._current = None
        self.server_state.total_requests += 1
        if answer is None:
            self.transport.close()
            return
        self._count_memory()
        last = not self._waiting and (self._draining or self._half_closed)
        self._write(answer, exchange.request.method, close=exchange.request.must_close or last)
        self._proceed()

    # -- going out ---------------------------------------------------------------------------------------------------

    def _refuse(self, refusal: Refusal) -> None:
        answer = error_answer(refusal.error)
        self.app.metrics.answered("none", answer.status)
        self._write(answer, "", close=True)

    def _write(self, answer: Answer, method: str, *, close: bool) -> None:
        head = answer_head(answer, self.app.edge.clock.now_ms(), close=close)
        body = b"" if method == "HEAD" else answer.body
        if len(body) < JOIN_BELOW_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        if close:
            self._close_behind_input()
            return
        self._used_at = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._keep_alive_s, self._check_idle)

    def _close_behind_input(self) -> None:
        """Close the connection of a client that may still be sending: its input is read for a moment, and dropped.

        A socket that is closed with unread input is reset, and the reset overtakes the answer (RFC 9112, 9.6).
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
        """One timer for all requests of the connection: it looks how long ago the last one was answered."""
        idle_s = self.loop.time() - self._used_at
        busy = not self._is_idle() or self._reader.in_body
        if idle_s < self._keep_alive_s or busy:
            wait_s = self._keep_alive_s if busy else self._keep_alive_s - idle_s
            self._idle_timer = self.loop.call_later(wait_s, self._check_idle)
        else:
            self.transport.close()
