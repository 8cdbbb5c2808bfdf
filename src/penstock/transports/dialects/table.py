"""The dialects by name, and the routing table of a server that serves some of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from websockets.frames import Opcode

from penstock.pending import PendingReply
from penstock.transports.dialects import disheap, epochqueue, pulsar_proxy, queen
from penstock.transports.dialects.pulsar_proxy.subscription import Subscription
from penstock.transports.dialects.queen.dashboard import Dashboard
from penstock.transports.dialects.router import Names, Route, Router
from penstock.transports.dialects.sockets import FRAME_BYTES_MAX, DialectConnection, SessionFactory
from penstock.transports.http import routes
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.transports.websocket.connection import ProtocolSpec


async def _ack_receipts(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    return await cast("PendingReply[Answer]", routes.HANDLERS["ack"](edge, request))


ACK_BY_RECEIPT = Route("receipts.ack", "POST", "/api/v1/ack", _ack_receipts, fields=frozenset({"receipts"}))
"""Two dialects ack by message id at this path; this route also accepts receipts."""

DIALECTS: dict[str, tuple[Route, ...]] = {
    "queen": (*queen.ROUTES, ACK_BY_RECEIPT),
    "pulsar-proxy": (*pulsar_proxy.ROUTES, ACK_BY_RECEIPT),
    "disheap": disheap.ROUTES,
    "epochqueue": epochqueue.ROUTES,
}


SOCKETS: dict[str, dict[str, SessionFactory]] = {
    "queen": {"/ws/dashboard": Dashboard},
    "pulsar-proxy": {"/ws": Subscription},
}
"""WebSockets of dialects, by path."""


def with_dialects(names: Sequence[str]) -> routes.Table:
    """The native operations and those of these dialects. Without dialects it is the native table itself."""
    if not names:
        return routes
    # A route that two dialects share is added once.
    return Router(routes, list(dict.fromkeys(route for name in names for route in DIALECTS[name])))


def sockets_of(names: Sequence[str], edge: Edge) -> dict[str, ProtocolSpec]:
    """The WebSocket protocols of these dialects, by path."""
    return {
        path: ProtocolSpec(Opcode.TEXT, FRAME_BYTES_MAX, partial(DialectConnection, edge, begin))
        for name in names
        for path, begin in SOCKETS.get(name, {}).items()
    }
