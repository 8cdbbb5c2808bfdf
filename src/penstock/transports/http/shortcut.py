"""The short way for requests that arrive whole, which is nearly all of them.

The server under us speaks ASGI: a task per request, a coroutine for its body, two events for its answer. That is the
right shape for bodies that trickle and for connections that end, and it stays in charge of those. A request with a
body of known length needs none of it: it is collected here, handled on the spot, and its answer leaves in one piece.
What has to wait goes on in a task, and requests behind it wait for it here. ADR 0016 has the measurements.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock import limits
from penstock.eager import Finished, Suspended, begin
from penstock.transports.http.answer import Answer, answer_head, error_answer
from penstock.transports.http.fields import Fields
from penstock.transports.http.one_write import OneWrite
from penstock.transports.http.request import Request, body_stalled

LATER_MAX = 16
LATER_BYTES_MAX = 2**20
"""Requests that may wait for the one before them; who sends more is not read until these are answered."""


class Exchange:
    """A request that is being answered in a task. To the server under us it looks like one of its own."""

    __slots__ = ("_gone", "disconnected", "keep_alive", "response_complete", "said_all")

    def __init__(self, *, said_all: bool = False, keep_alive: bool = True) -> None:
        self.disconnected = False
        self.said_all = said_all
        """The client will send nothing more, and may or may not be there for the answer."""
        self.keep_alive = keep_alive
        self.response_complete = False
        self._gone: asyncio.Future[None] | None = None

    @property
    def message_event(self) -> Exchange:
        return self

    def set(self) -> None:
        """The connection is lost, or half of it."""
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def gone(self) -> bool:
        if not self.disconnected and not self.said_all:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone
        return self.said_all and not self.disconnected


class Shortcut(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # An application that is not ours has no short way.
        self._respond = getattr(self.app, "respond", None)
        self._commit_now = getattr(self.app, "commit_now", None)
        self._collecting = False
        """True while the body of a request that goes the short way is coming in."""
        self._parts: list[bytes] = []
        self._size = 0
        self._current: Exchange | None = None
        """What a task is answering, if one is."""
        self._later: deque[tuple[Request, int]] = deque()
        """Came while that was going on; with the bytes of their bodies."""
        self._later_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_at = 0.0

    # -- coming in --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._collecting and self._stall_timer is None:
            self._watch_body()

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        if self._may_shorten():
            self._collecting = True
            return
        headers, url, expected = self.headers, self.url, self.expect_100_continue
        super().on_message_begin()
        self.headers += headers
        self.url, self.expect_100_continue = url, expected
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._collecting:
            self._parts.append(body)
            self._size += len(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._collecting:
            super().on_message_complete()
            return
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._stop_collecting()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        request = Request(
            self.parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            url.query or b"",
            Fields(self.headers),
            body,
        )
        if self._current is None:
            self._begin(request, Exchange())
            return
        self._later.append((request, len(body)))
        self._later_bytes += len(body)
        if len(self._later) >= LATER_MAX or self._later_bytes >= LATER_BYTES_MAX:
            self.flow.pause_reading()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has said all it will say, and may still be listening: what it waits for ends, and is answered.

        So a consumer can withdraw a long poll without wondering whether an answer was on its way.
        """
        exchange = self._current
        if exchange is None:
            return None
        exchange.said_all, exchange.keep_alive = True, False
        exchange.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._later.clear()
        self._later_bytes = 0
        if self._current is not None:
            self._current.disconnected = True
            self._current.set()
        super().connection_lost(exc)

    def _let_go(self) -> None:
        """No timer may meet the connection any more."""
        self._stop_collecting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _may_shorten(self) -> bool:
        """True if nothing about this request or about the moment is special."""
        if (
            self._respond is None
            or self.expect_100_continue
            or not self._may_answer()
            or self.parser.should_upgrade()
            or not self.parser.should_keep_alive()
            or self.parser.get_http_version() != "1.1"
        ):
            return False
        for name, value in self.headers:
            if name == b"content-length":
                return int(value) <= limits.REQUEST_BYTES_MAX
            if name == b"transfer-encoding":
                return False
        return True

    def _may_answer(self) -> bool:
        """True unless the client does not read, or is to be answered the long way first."""
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete and not isinstance(cycle, Exchange)
        return not self.flow.write_paused and not answering

    def _stop_collecting(self) -> None:
        self._collecting = False
        self._parts = []
        self._size = 0
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _watch_body(self) -> None:
        self._stall_timer = self.loop.call_later(limits.BODY_STALL_MS / 1000, self._check_body, self._size)

    def _check_body(self, size_before: int) -> None:
        if self._size > size_before:
            self._watch_body()
        elif self._current is not None:
            self.transport.close()  # an answer now would be taken for that to the request before it
        else:
            self._write(error_answer(body_stalled()), "", close=True)

    # -- going out --------------------------------------------------------------------------------------------

    def _begin(self, request: Request, exchange: Exchange) -> None:
        assert self._respond is not None and self._commit_now is not None
        request.gone = exchange.gone
        begun: Finished[Answer | None] | Suspended[Answer | None] = begin(self._respond(request))
        if isinstance(begun, Suspended):
            begun = self._commit_now(begun)
        if isinstance(begun, Finished):
            self._leave(request, exchange, begun.result)
            return
        if self.cycle is None or self.cycle.response_complete or isinstance(self.cycle, Exchange):
            self.cycle = exchange  # type: ignore[assignment]
        # Otherwise it is one that goes the long way, behind all of ours.
        self._current = exchange
        task = self.loop.create_task(self._finish(begun, request, exchange))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _leave(self, request: Request, exchange: Exchange, answer: Answer | None) -> None:
        """What needed no task is answered; None: there is nobody left to answer."""
        self.server_state.total_requests += 1
        if answer is not None:
            self._write(answer, request.method, close=self._must_close(request, exchange))

    async def _finish(self, rest: Suspended[Answer | None], request: Request, exchange: Exchange) -> None:
        answer = await rest
        if self.flow.write_paused and not exchange.disconnected:
            await self.flow.drain()
        if answer is None or exchange.disconnected:
            exchange.response_complete = True
            self._current = None
            if exchange.said_all:
                self.transport.close()
            return
        self._write(answer, request.method, close=self._must_close(request, exchange))
        while self._later and self._current is exchange and not self.transport.is_closing():
            if self.flow.write_paused:
                await self.flow.drain()
            else:
                request, size = self._later.popleft()
                self._later_bytes -= size
                self._begin(request, Exchange(said_all=exchange.said_all, keep_alive=exchange.keep_alive))
        # Only now, so that nothing overtakes those that were waiting here.
        exchange.response_complete = True
        if self._current is exchange:
            self._current = None
            self.on_response_complete()  # behind ours may be some that do not go the short way
        else:
            self.server_state.total_requests += 1

    def _must_close(self, request: Request, exchange: Exchange) -> bool:
        return request.must_close or (not exchange.keep_alive and not self._later)

    def _write(self, answer: Answer, method: str, *, close: bool) -> None:
        head = answer_head(answer, close=close)
        body = b"" if method == "HEAD" else answer.body
        cast(OneWrite, self.transport).write_answer(head, body)
        if close:
            self.transport.close()
            return
        self._used_at = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def _check_idle(self) -> None:
        """One timer for all requests of the connection: it looks how long ago the last one was."""
        idle_s = self.loop.time() - self._used_at
        busy = self._collecting or self._current or (self.cycle is not None and not self.cycle.response_complete)
        if idle_s < self.timeout_keep_alive or busy:
            wait_s = self.timeout_keep_alive if busy else self.timeout_keep_alive - idle_s
            self._idle_timer = self.loop.call_later(wait_s, self._check_idle)
        else:
            self.timeout_keep_alive_handler()
