"""The credential of a WebSocket handshake, checked as that of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from penstock.broker.audit import ORIGIN, Origin
from penstock.errors import InvalidRequest, Unauthenticated
from penstock.transports.auth import Authenticator, offered_credential
from penstock.transports.http.app import HttpApp
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.transports.websocket.handshake import PATH
from penstock.transports.websocket.sockets import Admitted

if TYPE_CHECKING:
    from penstock.transports.websocket.connection import ProtocolSpec

_REFUSED = {"token", "access_token", "key", "api_key", "authorization"}
"""Names under which other systems take credentials from a URL."""


class WebSocketGate:
    """`protocols_of` makes the protocols of dialects for an edge."""

    def __init__(self, app: HttpApp, auth: Authenticator, protocols_of: Callable[[Edge], Mapping[str, ProtocolSpec]]):
        self._app = app
        self._auth = auth
        self._protocols_of = protocols_of

    def admit(self, request: Request) -> Admitted:
        ORIGIN.set(Origin(request.peer.address))
        ticket = _ticket_of(request)
        if ticket is not None:
            principal = request.principal = self._auth.take_ticket(ticket, request.peer.address)
        else:
            # Never by the cookie of a session, which browsers send unasked: a page gets a ticket instead.
            principal = self._app.authenticate(request, offered_credential(request.fields.headers))
        edge = self._app.edge_for(principal)
        return Admitted(principal, request.peer, edge.broker, self._protocols_of(edge), self._auth)


def _ticket_of(request: Request) -> str | None:
    """The ticket in the query of a handshake: `ticket`, or `token` in a dialect. Raises Unauthenticated for others.

    Query strings are logged by proxies and kept in histories, so nothing that can be used again belongs there.
    """
    if not request.query:
        return None
    try:
        given = dict(parse_qsl(request.query.decode(), keep_blank_values=True, max_num_fields=32))
    except ValueError:
        raise InvalidRequest("the query of the handshake is not percent-encoded UTF-8") from None
    taken = ("ticket",) if request.path == PATH else ("ticket", "token")
    found = [given[name] for name in taken if name in given]
    if not found and given.keys() & _REFUSED:
        raise Unauthenticated(
            "keys and tokens are not taken from a URL, which proxies log: send `Authorization: Bearer`, offer the "
            "subprotocol `bearer.<credential>`, or get a ticket by POST /v1/tickets; rotate a key that was in a URL"
        )
    return found[0] if found else None
