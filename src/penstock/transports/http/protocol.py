"""The connection under the application: uvicorn's, with a short way, and with the bounds that it leaves to a proxy.

A connection that says nothing, headers that never end, and a client that does not read its answer each hold memory
for as long as they like, unless somebody counts bytes and seconds. That is done here.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools

from penstock import limits
from penstock.errors import InvalidRequest, NotFound, PenstockError
from penstock.transports.http.answer import error_answer
from penstock.transports.http.fields import Fields
from penstock.transports.http.one_write import OneWrite
from penstock.transports.http.request import Request
from penstock.transports.http.shortcut import Shortcut


class HttpProtocol(Shortcut):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._in_headers = True
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # -- headers ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWrite(transport))  # type: ignore[arg-type]
        self._wait_for_headers()

    def _let_go(self) -> None:
        super()._let_go()
        self._stop_timers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Still inside headers after all that was there has been parsed: only then is there something to bound.
        if self._in_headers and not self.transport.is_closing():
            self._header_bytes += len(data)
            if self._header_bytes > limits.HEADER_BYTES_MAX:
                self.send_400_response(f"Headers of more than {limits.HEADER_BYTES_MAX} bytes.")
            elif self._header_timer is None:
                self._wait_for_headers()

    def on_message_begin(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        super().on_headers_complete()

    def _wait_for_headers(self) -> None:
        self._header_timer = self.loop.call_later(limits.HEADER_WAIT_MS / 1000, self.transport.close)

    # -- becoming a WebSocket ---------------------------------------------------------------------------------

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, and let go of all that belongs to HTTP; or refuse, and end it."""
        url = httptools.parse_url(self.url)
        request = Request("GET", url.path.decode("latin-1"), url.query or b"", Fields(self.headers), b"")
        try:
            if self.parser.get_method() != b"GET" or self.parser.get_http_version() != "1.1":
                raise InvalidRequest("a WebSocket begins with GET and HTTP/1.1")
            if self.cycle is not None and not self.cycle.response_complete:
                raise InvalidRequest("an answer is still to come on this connection")
            websockets = self.app.websockets
            if websockets is None:
                raise NotFound("there are no WebSockets here")
            transport = cast(OneWrite, self.transport).unwrap()
            opened = websockets.open(request, self.headers, transport, self.server_state)
        except PenstockError as error:
            answer = error_answer(error)
            self.app.metrics.answered("websocket", answer.status)
            self._write(answer, "GET", close=True)
            return
        self.app.metrics.answered("websocket", 101)
        self._let_go()
        self.connections.discard(self)
        transport.set_protocol(opened)
        # It refers back to us, and there may be ten thousand.
        self.parser = None  # type: ignore[assignment]

    # -- answers ----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_writing(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(limits.WRITE_STALL_MS / 1000, self._check_writing, size)

    def _check_writing(self, size_before: int) -> None:
        if self.transport.get_write_buffer_size() >= size_before:
            self.transport.abort()
        else:
            self._watch_writing()

    def _stop_timers(self) -> None:
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._write_timer = None
