"""The HTTP edge: find the operation of a request, run it, answer. No framework between it and the wire.

Whatever happens inside, exactly one answer leaves, and it has the shape that was promised: a refusal is the error that
says so, a bug is `internal` with nothing of ours in it, and only a client that has gone away gets nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from penstock import limits
from penstock.clock import Clock
from penstock.eager import Finished, Suspended, begin
from penstock.errors import Internal, PenstockError, Unavailable
from penstock.logs import get_logger
from penstock.pending import PendingReply
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
        self._tasks: set[asyncio.Task[None]] = set()
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

    def respond(self, request: Request, send: Callable[[Answer | None], None]) -> PendingReply[Answer] | None:
        """Run the operation of a request. `send` is called once, now or later: with its answer, or with None if the
        client has gone.

        Returns the pending reply that the answer waits for, if it does: its caller may cancel or withdraw it.
        """
        operation = "none"
        try:
            self.access.check(request.fields)
            self._check_room(request)
            if request.method == "OPTIONS":
                allow = ", ".join(self._table.allowed(request.path)).encode()
                outcome: Answer | PendingReply[Answer] = Answer(204, b"", headers=((b"allow", allow),))
            else:
                found = self._table.find(request.method, request.path)
                operation = found.name
                handled = found.handler(self.edge, request)
                outcome = handled if isinstance(handled, Answer | PendingReply) else self._run(handled)
        except Exception as error:
            self._send(operation, send, self._error_answer(operation, error))
            return None
        if isinstance(outcome, Answer):
            self._send(operation, send, outcome)
            return None
        outcome.deliver(partial(self._deliver, operation, send))
        if not outcome.done():
            self.edge.broker.commit_now()
        return outcome

    async def ask(self, request: Request) -> Answer | None:
        """The answer to a request, awaited; None: the client has gone. Cancelling it withdraws the request."""
        answered: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def send(answer: Answer | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        pending = self.respond(request, send)
        try:
            return await answered
        except asyncio.CancelledError:
            if pending is not None:
                pending.cancel()
            raise

    def _run(self, handling: Coroutine[Any, Any, Answer]) -> Answer | PendingReply[Answer]:
        """A handler that waits more than once runs in a task, unless its first commit is all that it waits for."""
        begun: Finished[Answer] | Suspended[Answer] = begin(handling)
        if isinstance(begun, Suspended):
            self.edge.broker.commit_now()
            begun = begun.go_on()
        if isinstance(begun, Finished):
            answer: Answer = begun.result
            return answer
        pending: PendingReply[Answer] = PendingReply()
        task = asyncio.get_running_loop().create_task(_complete(pending, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    def _deliver(self, operation: str, send: Callable[[Answer | None], None], pending: PendingReply[Answer]) -> None:
        if pending.cancelled():
            return
        try:
            answer: Answer | None = pending.result()
        except Exception as error:
            answer = self._error_answer(operation, error)
        self._send(operation, send, answer)

    def _send(self, operation: str, send: Callable[[Answer | None], None], answer: Answer | None) -> None:
        if answer is not None:
            self.metrics.answered(operation, answer.status)
            if answer.on_sent is not None:
                answer.on_sent()
        send(answer)

    def _error_answer(self, operation: str, error: Exception) -> Answer | None:
        if isinstance(error, ClientGone):
            return None
        if isinstance(error, PenstockError):
            return error_answer(error)
        _log.error("request_failed", operation=operation, exc_info=error)
        return error_answer(Internal("an unexpected error; the server's log has it"))


async def _complete(pending: PendingReply[Answer], handling: Suspended[Answer]) -> None:
    try:
        answer = await handling
    except Exception as error:
        pending.fail(error)
    else:
        pending.complete(answer)
