"""The HTTP application: find the operation of a request, run it, answer.

Every request gets exactly one answer in the documented form, unless its client has disconnected. An unexpected
exception becomes the error `internal`, without details.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from penstock.broker.audit import ORIGIN, Origin
from penstock.clock import Clock
from penstock.eager import Finished, Suspended, begin
from penstock.errors import Internal, MethodNotAllowed, NotFound, PenstockError, Unauthenticated
from penstock.logs import get_logger
from penstock.pending import PendingReply
from penstock.security.sessions import UserSession
from penstock.transports.access import Access
from penstock.transports.auth import SETTLING, Authenticator, credential_of, settles
from penstock.transports.http import routes
from penstock.transports.http.answer import Answer, error_answer
from penstock.transports.http.cors import is_preflight, options_answer, shared_answer
from penstock.transports.http.edge import Edge, PrincipalEdge
from penstock.transports.http.in_process import InProcessHttp
from penstock.transports.http.pages import Ask, Site, page, to_login
from penstock.transports.http.request import ClientGone, Request
from penstock.transports.login import COOKIE, check_csrf, cookie_of
from penstock.transports.memory_budget import MemoryBudget
from penstock.transports.metrics import Metrics
from penstock.transports.request_log import RequestLog, request_id_of

if TYPE_CHECKING:
    from penstock.broker.service import Broker
    from penstock.security.principal import Principal

_log = get_logger("penstock.http")

Send: TypeAlias = Callable[[Request, Answer | None], None]
Respond: TypeAlias = Callable[[Request, Send], None]

LIMITS = frozenset(("rate_limited", "queue_full", "disk_full"))
"""Codes of refusals that are logged."""
OPEN = frozenset({("GET", "/healthz"), ("HEAD", "/healthz"), ("POST", "/v1/session")})
"""The operations that need no credential: the probe, and the login."""
SETTLING_PATHS = SETTLING | {"batch"}
"""The last parts of paths of operations that settle messages."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
ENDS_ITSELF = frozenset({"logout", "change_password"})
"""Operations that end the session of their own request, and are answered all the same."""
SERVER_OPERATIONS: dict[str, str | None] = {
    "metrics": "metrics", "connections": "metrics", "storage": "metrics", "audit": "audit.read",
    "log_levels": "cluster.admin", "set_log_levels": "cluster.admin", "verify_audit": "audit.read",
    "event_stream": None, "session": None, "login": None, "logout": None, "change_password": None,
    "create_ticket": None, "access_limits": None,
}  # fmt: skip
"""Operations that use the server and not the facade, with the verb that they need everywhere. None: the handler checks
the queue that the request names."""


class Upgrades(Protocol):
    """Takes over connections that become WebSockets."""

    def opens(self, path: str) -> bool:
        """Whether a WebSocket can be opened at this path."""

    def open(self, request: Request, transport: asyncio.Transport, server_state: Any) -> asyncio.Protocol:
        """Accept a handshake and take the connection over, or raise PenstockError."""

    def drain(self) -> None:
        """Close all connections after their pending work."""


class HttpApp:
    """Runs requests, for all connections of a server."""

    def __init__(self, broker: Broker, clock: Clock, table: routes.Table = routes, access: Access | None = None):
        """`table` has the operations: those of this package, and those of dialects."""
        self.access = access or Access()
        self.metrics = Metrics()
        self.memory = MemoryBudget()
        """Shared by all connections, WebSockets included."""
        self._table = table
        self.edge = Edge(broker, clock, self.metrics)
        self._tasks: set[asyncio.Task[None]] = set()
        self.websockets: Upgrades | None = None
        """None: the server has no WebSockets, and ignores an offered upgrade."""
        self._observers: dict[str, Callable[[Respond], Respond]] = {}
        self.request_log = RequestLog(clock)
        self.site: Site | None = None
        """Web pages; None: the server has none."""

    def observe(self, name: str, wrap: Callable[[Respond], Respond] | None) -> None:
        """Let `wrap` take part in every request, or no longer (None). Without observers a request has no extra call."""
        self._observers.pop(name, None)
        if wrap is not None:
            self._observers[name] = wrap
        self.__dict__.pop("respond", None)
        respond: Respond = self.respond
        for each in self._observers.values():
            respond = each(respond)
        if self._observers:
            self.respond = respond  # type: ignore[assignment, method-assign]

    @property
    def auth(self) -> Authenticator | None:
        """None: the server asks for no credentials."""
        return self.edge.auth

    @auth.setter
    def auth(self, auth: Authenticator | None) -> None:
        self.edge.auth = auth

    def opens_websocket(self, path: str) -> bool:
        return self.websockets is not None and self.websockets.opens(path)

    def drain(self) -> None:
        """Fail readiness probes from now on, and drain WebSockets; requests are still answered."""
        self.edge.draining = True
        if self.websockets is not None:
            self.websockets.drain()

    def respond(self, request: Request, send: Send) -> None:
        """Run the operation of a request. `send` is called once, with the answer, or with None if the client has
        disconnected.

        An answer that waits for a reply leaves it in `request.pending`: the caller may cancel or withdraw it.
        """
        edge = self.edge
        if request.fields.origin is not None and self.access.shares_with(request.fields.origin):
            send = partial(_send_shared, send)
        try:
            self.access.check(request.fields)
            if self.edge.auth is not None:
                edge = self._admit(request)
            if self.site is not None and self.site.serves(request.path, request.fields.accept):
                request.operation = "page"
                outcome: Answer | PendingReply[Answer] = self._run(page(self.site, self._ask_for(request), request))
            elif request.method == "OPTIONS":
                outcome = options_answer(request, self._table.allowed(request.path))
            else:
                found = self._table.find(request.method, request.path)
                request.operation = found.name
                if found.large and self.memory.is_full:
                    raise self.memory.refusal()
                if request.principal is not None:
                    self._charge(request.principal, found.name)
                if request.principal is not None and found.name in SERVER_OPERATIONS:
                    if (verb := SERVER_OPERATIONS[found.name]) is not None:
                        request.principal.demand_everywhere(verb)
                    edge = self.edge
                handled = found.handler(edge, request)
                outcome = handled if isinstance(handled, Answer | PendingReply) else self._run(handled)
        except Exception as error:
            self._send(request, send, self._error_answer(request, error))
            return
        if isinstance(outcome, Answer):
            self._send(request, send, outcome)
            return
        request.pending = outcome
        outcome.deliver(partial(self._deliver, request, send))
        self.edge.broker.commit_now()
        if (
            request.principal is not None and self.auth is not None and not outcome.done()
            and request.operation not in ENDS_ITSELF and not request.in_session
        ):  # fmt: skip
            self._follow(self.auth, request.principal, request, outcome, send)

    def authenticate(self, request: Request, credential: str | None = None, *, cookies: bool = False) -> Principal:
        """The principal of a request, or of this credential of it. Raises Unauthenticated or RateLimited."""
        assert self.auth is not None
        address = request.peer.address
        if request.principal is None:
            credential = credential or credential_of(request.fields.headers)
            if cookies and credential is None and (cookie := cookie_of(request.fields.headers, COOKIE)) is not None:
                found = self.auth.session_of(cookie, address, settles=self._settles(request))
                request.principal, request.by_cookie = found, True
            else:
                request.principal = self.auth.authenticate(
                    credential, address, request.peer.certificate, settles=self._settles(request)
                )
        return request.principal

    def _settles(self, request: Request) -> bool:
        """Whether a request only settles messages."""
        if request.method != "POST" or request.path.rpartition("/")[2] not in SETTLING_PATHS:
            return False
        try:
            return settles(self._table.find(request.method, request.path).name)
        except (NotFound, MethodNotAllowed):
            return False

    def _admit(self, request: Request) -> Edge:
        """The edge for the identity behind a request. Raises Unauthenticated, RateLimited or Forbidden."""
        ORIGIN.set(Origin(request.peer.address, request_id_of(request)))
        if self._is_open(request):
            return self.edge
        principal = self.authenticate(request, cookies=True)
        if request.by_cookie and request.method not in SAFE_METHODS and not self._is_page(request):
            check_csrf(cast(UserSession, principal), request.fields.headers)
        return self.edge_for(principal)

    def _charge(self, principal: Principal, operation: str) -> None:
        """Count a request of a principal. Raises RateLimited."""
        auth = self.edge.auth
        if auth is not None:
            auth.quotas.demand_request(principal, settles=settles(operation))

    def _ask_for(self, request: Request) -> Ask:
        """Calls of the API on behalf of a request for a page."""
        return partial(InProcessHttp(self).ask, on_behalf_of=request)

    def _is_open(self, request: Request) -> bool:
        """Whether a request needs no credential."""
        if (request.method, request.path) in OPEN or (request.method == "OPTIONS" and is_preflight(request)):
            return True
        return self.site is not None and self.site.is_open(request.path)

    def _is_page(self, request: Request) -> bool:
        return self.site is not None and self.site.serves(request.path, request.fields.accept)

    def edge_for(self, principal: Principal) -> Edge:
        assert self.auth is not None
        found: Edge | None = principal.kept.get(self)
        if found is None:
            found = principal.kept[self] = PrincipalEdge(self.edge, self.auth.broker_for(principal), principal)
        return found

    def _follow(
        self,
        auth: Authenticator,
        principal: Principal,
        request: Request,
        outcome: PendingReply[Answer],
        send: Send,
    ) -> None:
        """Answer 401 if the credential ends while the request waits: a long poll must not deliver after that."""

        def end() -> None:
            if not outcome.done():
                outcome.cancel()
                self._send(request, send, error_answer(Unauthenticated("this credential has ended")))

        stop = auth.follow(principal, end)

        def deliver(pending: PendingReply[Answer]) -> None:
            stop()
            self._deliver(request, send, pending)

        outcome.deliver(deliver)

    async def ask(self, request: Request) -> Answer | None:
        """Await the answer to a request; None: the client has disconnected. A cancellation withdraws the request."""
        answered: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def send(_: Request, answer: Answer | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        self.respond(request, send)
        try:
            return await answered
        except asyncio.CancelledError:
            if request.pending is not None:
                request.pending.cancel()
            raise

    def _run(self, handling: Coroutine[Any, Any, Answer]) -> Answer | PendingReply[Answer]:
        """Run a coroutine without a task if it waits for one commit only, otherwise in a task."""
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

    def _deliver(self, request: Request, send: Send, pending: PendingReply[Answer]) -> None:
        if pending.cancelled():
            return
        try:
            answer: Answer | None = pending.result()
        except Exception as error:
            answer = self._error_answer(request, error)
        self._send(request, send, answer)

    def _send(self, request: Request, send: Send, answer: Answer | None) -> None:
        if answer is not None:
            self.metrics.answered(request.operation, answer.status)
            if answer.on_sent is not None:
                answer.on_sent()
        send(request, answer)

    def _error_answer(self, request: Request, error: Exception) -> Answer | None:
        if isinstance(error, ClientGone):
            return None
        if isinstance(error, Unauthenticated) and self._is_page(request):
            return to_login(request, error)
        if isinstance(error, PenstockError):
            if error.code in LIMITS:
                actor = "" if request.principal is None else f"{request.principal.kind}:{request.principal.name}"
                self.request_log.limited(error.code, request.operation, actor, request.peer.address)
            return error_answer(error)
        _log.error("request_failed", operation=request.operation, exc_info=error)
        return error_answer(Internal("an unexpected error; the server's log has it"))


def _send_shared(send: Send, request: Request, answer: Answer | None) -> None:
    """Send an answer that pages of another origin, which is allowed, may read."""
    send(request, answer if answer is None else shared_answer(answer, request.fields.origin or b""))


async def _complete(pending: PendingReply[Answer], handling: Suspended[Answer]) -> None:
    try:
        answer = await handling
    except Exception as error:
        pending.fail(error)
    else:
        pending.complete(answer)
