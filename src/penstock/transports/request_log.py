"""Log lines of requests, connections, limits and slow operations, each in a category of its own.

A category is a logger, `penstock.<category>`, whose level can change while the server runs (`/v1/logs`). Lines of
requests are off by default, and a server without them does no work for them: `RequestLog.observe` takes part in a
request only after the category was switched on. Above a rate lines are left out and counted. A line never has a
payload, a query, a header or a credential.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

import msgspec

from penstock.clock import Clock
from penstock.logs import get_logger

if TYPE_CHECKING:
    from penstock.transports.http.answer import Answer
    from penstock.transports.http.request import Request

    Send: TypeAlias = Callable[[Request, Answer | None], None]
    Respond: TypeAlias = Callable[[Request, Send], None]

LINES_PER_S = 100
SLOW_S = 1.0
"""A request above it is a warning, unless it waited for messages."""
WAITING = frozenset(("lease", "read", "event_stream"))
"""Operations that may take long because they wait for messages."""
REQUEST_ID_CHARS_MAX = 128
_BODY_BYTES_MAX = 65_536
"""The queue of a request is not searched in a larger body."""

requests_log = get_logger("penstock.requests")
connections_log = get_logger("penstock.connections")
limits_log = get_logger("penstock.limits")
slow_log = get_logger("penstock.slow")
_connections = logging.getLogger("penstock.connections")


class LineBudget:
    """So many lines a second; the others are counted."""

    def __init__(self, clock: Clock, per_s: int = LINES_PER_S):
        self.per_s = per_s
        self._clock = clock
        self._second = 0
        self._left = 0
        self._omitted = 0

    def take(self) -> int | None:
        """The lines that were left out before this one; None: leave this one out too."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._left = second, self.per_s
        if self._left <= 0:
            self._omitted += 1
            return None
        self._left -= 1
        omitted, self._omitted = self._omitted, 0
        return omitted


class _Named(msgspec.Struct):
    queue: str = ""
    scope: str = ""


_decode = msgspec.json.Decoder(_Named).decode


class RequestLog:
    def __init__(self, clock: Clock):
        self._clock = clock
        self.budget = LineBudget(clock)
        self._limited = LineBudget(clock, 10)
        self._boot = secrets.token_hex(4)
        self._numbers = count(1)

    def observe(self, respond: Respond) -> Respond:
        """`respond` with a line for each request."""

        def observed(request: Request, send: Send) -> None:
            began = self._clock.monotonic()
            request_id = request_id_of(request) or f"{self._boot}-{next(self._numbers)}"

            def sent(request: Request, answer: Answer | None) -> None:
                if answer is not None:
                    self._http(request, answer.status, self._clock.monotonic() - began, request_id)
                    answer = answer._replace(headers=(*answer.headers, (b"x-request-id", request_id.encode("latin-1"))))
                send(request, answer)

            respond(request, sent)

        return observed

    def _http(self, request: Request, status: int, seconds: float, request_id: str) -> None:
        line: dict[str, Any] = {"transport": "http", "request_id": request_id, "operation": request.operation}
        is_slow = seconds >= SLOW_S and request.operation not in WAITING
        omitted = self.budget.take()
        if omitted is None and not is_slow and status < 500:
            return
        principal = request.principal
        if principal is not None:
            line["actor"] = f"{principal.kind}:{principal.name}"
        if queue := queue_of(request):
            line["queue"] = queue
        if request.peer.address:
            line["peer"] = request.peer.address
        self._write(line, status, seconds, omitted, warn=is_slow or status >= 500)

    def grpc(self, operation: str, status: str, seconds: float, actor: str = "") -> None:
        omitted = self.budget.take()
        if omitted is not None:
            line = {"transport": "grpc", "operation": operation, **({"actor": actor} if actor else {})}
            self._write(line, status, seconds, omitted, warn=status in ("INTERNAL", "UNKNOWN"))

    def _write(
        self, line: dict[str, Any], status: int | str, seconds: float, omitted: int | None, *, warn: bool
    ) -> None:
        if omitted:
            line["omitted"] = omitted
        write = requests_log.warning if warn else requests_log.info
        write("request", status=status, duration_ms=round(seconds * 1000, 3), **line)

    def limited(self, code: str, operation: str, actor: str, peer: str) -> None:
        """A request was refused for a rate or for want of room."""
        omitted = self._limited.take()
        if omitted is not None:
            more = {"omitted": omitted} if omitted else {}
            limits_log.warning("request_limited", code=code, operation=operation, actor=actor, peer=peer, **more)


def request_id_of(request: Request) -> str:
    """The id that the client gave its request; without characters that a log or a header could not take."""
    for name, value in request.fields.headers:
        if name == b"x-request-id":
            text = value.decode("latin-1")[:REQUEST_ID_CHARS_MAX]
            return text if text.isascii() and text.isprintable() else ""
    return ""


def log_connection(event: str, peer: Any, **fields: Any) -> None:
    """The beginning or the end of a connection. Costs one check unless the category is at `info`."""
    if _connections.isEnabledFor(logging.INFO):
        shown = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        connections_log.info(event, peer=shown, **fields)


def queue_of(request: Request) -> str:
    """The queue that a request names in its path, its query or its body."""
    if request.path.startswith("/v1/queues/"):
        return request.path.removeprefix("/v1/queues/")[:200]
    if b"queue=" in request.query:
        return parse_qs(request.query.decode("latin-1")).get("queue", [""])[0][:200]
    if request.size > _BODY_BYTES_MAX or request.method == "GET":
        return ""
    try:
        named = _decode(request.body())
    except Exception:
        return ""  # a body in another form; the answer has the error
    return (named.queue or named.scope)[:200]
