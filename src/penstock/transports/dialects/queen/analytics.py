"""`analytics`: counts and rates of queues, and their sums over a namespace or a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.broker.types import QueueRow
from penstock.errors import QueueNotFound
from penstock.ids import parse_scope
from penstock.transports.dialects.delivered import iso_timestamp
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_query

_RATES = {
    "pushedPerSecond": "published_per_s",
    "poppedPerSecond": "delivered_per_s",
    "completedPerSecond": "acked_per_s",
}


async def queues(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    return json_answer({"queues": [_stats(row) for row in await edge.broker.stats.rows()]})


async def scope_stats(edge: Edge, request: Request, names: Names) -> Answer:
    """The statistics of a namespace or of a task of it."""
    parse_query(NoQuery, request.query)
    scope = parse_scope("/".join(names.values()))
    rows = await edge.broker.stats.rows(f"{scope}/")
    if not rows:
        raise QueueNotFound(f"there is no queue in {scope}", details={"scope": scope})
    stats = [_stats(row) for row in rows]
    totals = {name: sum(each[name] for each in stats) for name in _counts(rows[0])}
    return json_answer({**names, "totals": totals, "queues": stats})


async def depths(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    rows = await edge.broker.stats.rows()
    return json_answer(
        {
            "timestamp": iso_timestamp(edge.clock.now_ms()),
            "totalDepth": sum(row.depth for row in rows),
            "queues": [{"queue": row.queue, "depth": row.depth} for row in rows],
        }
    )


async def throughput(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Messages per second over the last minute."""
    parse_query(NoQuery, request.query)
    rows = await edge.broker.stats.rows()
    return json_answer(
        {
            "timestamp": iso_timestamp(edge.clock.now_ms()),
            **_throughput(rows),
            "queues": [{"queue": row.queue, **_throughput([row])} for row in rows],
        }
    )


def _throughput(rows: Sequence[QueueRow]) -> dict[str, float]:
    return {name: round(sum(row.rates[rate] for row in rows), 3) for name, rate in _RATES.items()}


def _stats(row: QueueRow) -> dict[str, Any]:
    ns, task, queue = row.queue.split("/")
    return {"ns": ns, "task": task, "queue": queue, "priority": row.priority, **_counts(row)}


def _counts(row: QueueRow) -> dict[str, int]:
    """Messages by status. `completed` counts since the start of the server, the others are current numbers."""
    return {
        "depth": row.depth,
        "pending": row.ready + row.scheduled + row.waiting_for_retry,
        "processing": row.leased,
        "completed": row.totals["acked"],
        "deadLetter": row.dead,
    }
