"""The HTTP edge: find the operation of a request, run it, answer. No framework between it and the wire.

Whatever happens inside, exactly one answer leaves, and it has the shape that was promised: a refusal is the error that
says so, a bug is `internal` with nothing of ours in it, and only a client that has gone away gets nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from penstock import limits
from penstock.clock import Clock
from penstock.eager import Finished, Suspended
from penstock.errors import Internal, PenstockError, Unavailable
from penstock.logs import get_logger
from penstock.transports.access import Access
from penstock.transports.http import routes
from penstock.transports.http.answer import Answer, error_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import ClientGone, Request
from penstock.transports.metrics import Metrics

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_log = get_logger("penstock.http")


class Upgrades(Protocol):
    """Takes over connections that become WebSockets."""

    def opens(self, path: str) -> bool:
        """Tells whether a WebSocket can be opened at this path."""

    def open(self, request: Request, transport: asyncio.Transport, server_state: Any) -> asyncio.Protocol:
        """Accept a handshake and take the connection over, or raise PenstockError."""

    def drain(self) -> None:
        """Come to an end."""


class HttpApp:
    """Answers requests."""

    def __init__(self, broker: Broker, clock: Clock, table: routes.Table = routes, access: Access | None = None):
        """`table` says what is served: our operations, or more than those."""
        self.access = access or Access()
        self.metrics = Metrics()
        self._table = table
        self.edge = Edge(broker, clock, self.metrics)
        self.websockets: Upgrades | None = None
        """None: there are none, and an offer to open one is ignored."""

    def opens_websocket(self, path: str) -> bool:
        return self.websockets is not None and self.websockets.opens(path)

    def drain(self) -> None:
        """Say no to readiness probes from now on, and let WebSockets come to an end; requests go on."""
        self.edge.draining = True
        if self.websockets is not None:
            self.websockets.drain()

    def _check_room(self, request: Request) -> None:
        if self.metrics.count_connections() > limits.CONNECTIONS_MAX:
            request.must_close = True
            raise Unavailable(f"more than {limits.CONNECTIONS_MAX} connections are open", retry_after_ms=1_000)

    async def respond(self, request: Request) -> Answer | None:
        """The one answer to a request; None if there is nobody left to answer."""
        operation = "none"
        try:
            self.access.check(request.fields)
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
