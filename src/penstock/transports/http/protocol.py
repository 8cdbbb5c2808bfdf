"""The connection with its bounds in time, and its way to become a WebSocket.

A connection that sends nothing, a head that never ends and a client that does not read its answer each hold memory for
as long as they like, unless the server counts the seconds. That is done here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import limits
from penstock.errors import PenstockError
from penstock.transports.http.answer import error_answer
from penstock.transports.http.framing import Handshake
from penstock.transports.http.shortcut import Shortcut
from penstock.transports.input_pacer import Parsed


class HttpProtocol(Shortcut):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._watch_head()

    def _stop_timers(self) -> None:
        super()._stop_timers()
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._write_timer = None

    # -- heads that do not come --------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> Parsed:
        heads = self._reader.heads
        parsed = super()._parse(data)
        if self._head_timer is not None and self._reader.heads != heads:
            self._head_timer.cancel()
            self._head_timer = None
        if self._reader.in_head and self._head_timer is None and not self.transport.is_closing():
            self._watch_head()
        return parsed

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(limits.HEADER_WAIT_MS / 1000, self._give_up_head)

    def _give_up_head(self) -> None:
        self._reader.ended = True
        self.shutdown()

    # -- answers that are not read -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _watch_writing(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(limits.WRITE_STALL_MS / 1000, self._check_writing, size)

    def _check_writing(self, size_before: int) -> None:
        if self.transport.get_write_buffer_size() >= size_before:
            self.transport.abort()
        else:
            self._watch_writing()

    # -- becoming a WebSocket ----------------------------------------------------------------------------------------

    def _open_websocket(self, handshake: Handshake) -> None:
        """Hand the connection over, and let go of all that belongs to HTTP; or refuse, and end it."""
        websockets = self.app.websockets
        assert websockets is not None, "the reader would have ignored the offer"
        if self._half_closed:
            self.transport.close()
            return
        try:
            opened = websockets.open(handshake.request, self.transport, self.server_state)
        except PenstockError as error:
            answer = error_answer(error)
            self.app.metrics.answered("websocket", answer.status)
            self._write(answer, "GET", close=True)
            return
        self.app.metrics.answered("websocket", 101)
        self._stop_timers()
        self.server_state.connections.discard(self)
        self.transport.set_protocol(opened)
        if self._read_paused:
            self.transport.resume_reading()
        if rest := handshake.rest + self._input.take():
            opened.data_received(rest)
