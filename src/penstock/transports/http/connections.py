"""`/v1/connections`: the open connections of this server."""

from __future__ import annotations

from typing import Any

from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.parse import parse_query
from penstock.wire.queue_table import ConnectionsQuery


def connections(edge: Edge, request: Request) -> Answer:
    limit = parse_query(ConnectionsQuery, request.query).limit
    opened = edge.list_connections()
    newest = sorted(opened, key=lambda each: -each["since_at_ms"])[:limit]
    grpc = edge.metrics.count_grpc_connections()
    return json_answer({"connections": newest, "total": len(opened) + grpc, "grpc": grpc})


def described(peer: Any, transport: str, since_ms: int, seen_ms: int, holds: str) -> dict[str, Any]:
    shown = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
    seen = seen_ms or since_ms
    return {"peer": shown, "transport": transport, "since_at_ms": since_ms, "seen_at_ms": seen, "holds": holds}
