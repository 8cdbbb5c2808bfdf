"""The credential of a WebSocket handshake, checked as that of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock.transports.auth import Authenticator, offered_credential
from penstock.transports.http.app import HttpApp
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.transports.websocket.sockets import Admitted

if TYPE_CHECKING:
    from penstock.transports.websocket.connection import ProtocolSpec


class WebSocketGate:
    """`protocols_of` makes the protocols of dialects for an edge."""

    def __init__(self, app: HttpApp, auth: Authenticator, protocols_of: Callable[[Edge], Mapping[str, ProtocolSpec]]):
        self._app = app
        self._auth = auth
        self._protocols_of = protocols_of

    def admit(self, request: Request) -> Admitted:
        principal = self._app.authenticate(request, offered_credential(request.fields.headers))
        edge = self._app.edge_for(principal)
        return Admitted(
            principal, request.peer, edge.broker, self._protocols_of(edge), partial(self._auth.follow, principal)
        )
