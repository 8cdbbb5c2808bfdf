"""`/v1/connections`: the open connections of this server."""

from __future__ import annotations

from typing import Any

from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.parse import parse_query
from penstock.wire.queue_table import ConnectionEntry, ConnectionsQuery, ConnectionsReply


async def connections(edge: Edge, request: Request) -> Answer:
    limit = parse_query(ConnectionsQuery, request.query).limit
    replies = [connections_of(edge, limit)]
    if edge.peers is not None:
        replies += (await edge.peers.ask("connections", limit)).values()
    newest = _newest([entry for reply in replies for entry in reply.connections], limit)
    return json_answer(
        ConnectionsReply(newest, sum(each.total for each in replies), sum(each.grpc for each in replies))
    )


def connections_of(edge: Edge, limit: int) -> ConnectionsReply:
    """Those of this process."""
    opened = edge.list_connections()
    grpc = edge.metrics.count_grpc_connections()
    newest = _newest([ConnectionEntry(**each) for each in opened], limit)
    return ConnectionsReply(newest, len(opened) + grpc, grpc)


def _newest(entries: list[ConnectionEntry], limit: int) -> list[ConnectionEntry]:
    return sorted(entries, key=lambda each: -each.since_at_ms)[:limit]


def described(peer: Any, transport: str, since_ms: int, seen_ms: int, holds: str) -> dict[str, Any]:
    shown = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
    seen = seen_ms or since_ms
    return {"peer": shown, "transport": transport, "since_at_ms": since_ms, "seen_at_ms": seen, "holds": holds}
