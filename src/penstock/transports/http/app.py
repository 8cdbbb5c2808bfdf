"""The HTTP edge as one raw ASGI application: find the operation, run it, answer. No framework between it and the wire.

Whatever happens inside, exactly one answer leaves, and it has the shape that was promised: a refusal is the error that
says so, a bug is `internal` with nothing of ours in it, and only a client that has gone away gets nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock import limits
from penstock.clock import Clock
from penstock.eager import Finished, Suspended
from penstock.errors import Internal, PenstockError, Unavailable
from penstock.logs import get_logger
from penstock.transports.http import routes
from penstock.transports.http.answer import Answer, error_answer, send_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.fields import Fields
from penstock.transports.http.hosts import check_host
from penstock.transports.http.request import ClientGone, Receive, Request, Scope, Send
from penstock.transports.metrics import Metrics

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_log = get_logger("penstock.http")


class Upgrades(Protocol):
    """What a request to become something else than HTTP is handed to."""

    def open(
        self, request: Request, headers: Sequence[tuple[bytes, bytes]], transport: asyncio.Transport, server_state: Any
    ) -> asyncio.Protocol:
        """Accept it and take over, or raise PenstockError."""

    def drain(self) -> None:
        """Come to an end."""


class HttpApp:
    """What an ASGI server calls. It serves a loopback address only: see `hosts.py`."""

    def __init__(self, broker: Broker, clock: Clock, table: routes.Table = routes):
        """`table` says what is served: our operations, or more than those."""
        self.metrics = Metrics()
        self._table = table
        self.edge = Edge(broker, clock, self.metrics)
        self.websockets: Upgrades | None = None
        """None: there are none, and who asks for one is told so."""

    def drain(self) -> None:
        """Say no to readiness probes from now on, and let WebSockets come to an end; requests go on."""
        self.edge.draining = True
        if self.websockets is not None:
            self.websockets.drain()

    def _check_room(self, request: Request) -> None:
        if self.metrics.count_connections() > limits.CONNECTIONS_MAX:
            request.must_close = True
            raise Unavailable(f"more than {limits.CONNECTIONS_MAX} connections are open", retry_after_ms=1_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "lifespan is switched off, and WebSockets do not come this way"
        fields = Fields(list(scope["headers"]))
        request = Request(scope["method"], scope["path"], scope["query_string"], fields, None, receive)
        answer = await self.respond(request)
        if answer is not None:
            await send_answer(send, answer, close=request.must_close)

    async def respond(self, request: Request) -> Answer | None:
        """The one answer to a request; None if there is nobody left to answer."""
        operation = "none"
        try:
            check_host(request.fields)
            self._check_room(request)
            if request.method == "OPTIONS":
                allow = ", ".join(self._table.allowed(request.path)).encode()
                answer = Answer(204, b"", headers=((b"allow", allow),))
            else:
                found = self._table.find(request.method, request.path)
                operation = found.name
                answer = await found.handler(self.edge, request)
        except ClientGone:
            return None
        except PenstockError as error:
            answer = error_answer(error)
        except Exception:
            _log.exception("failed", operation=operation, method=request.method, path=request.path)
            answer = error_answer(Internal("an unexpected error; the server's log has it"))
        self.metrics.answered(operation, answer.status)
        return answer

    def commit_now(self, begun: Suspended[Answer | None]) -> Finished[Answer | None] | Suspended[Answer | None]:
        """Commit inline if no other request is expected, and go on with the request that `respond` was begun with."""
        self.edge.broker.commit_now()
        return begun.go_on()
