"""`/v1/stats/queues`: all queues in one table, searched, sorted and paged on the server.

The table is built in one pass over the queues, without disk reads, and kept for a while: any number of open dashboards
costs one pass. The time grows with the number of queues, so that the passes take less than a hundredth of a core.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.types import QueueRow
from penstock.pending import value_of
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.parse import parse_query
from penstock.wire.queue_table import QueueTableQuery

KEPT_MS, KEPT_MS_PER_QUEUE, KEPT_MS_MAX = 1_000, 3, 10_000


async def queue_table(edge: Edge, request: Request) -> Answer:
    asked = parse_query(QueueTableQuery, request.query)
    rows = await _rows(edge)
    summed = {
        name: sum(getattr(row, name) for row in rows) for name in ("depth", "ready", "leased", "scheduled", "dead")
    }
    ages = [row.oldest_age_ms for row in rows if row.oldest_age_ms is not None]
    rates = {name: round(sum(row.rates[name] for row in rows), 3) for name in _RATES}
    if asked.names:
        names = asked.names.split(",")
        rows = [row for row in rows if row.queue in names]
    if asked.message:
        storing = await edge.broker.events.queues_of(asked.message)
        rows = [row for row in rows if row.queue in storing]
    search = asked.search.lower()
    if search:
        rows = [row for row in rows if search in row.queue.lower()]
    if asked.sort != "name":
        rows = sorted(rows, key=lambda row: -_value(row, asked.sort))
    first = (asked.page - 1) * asked.limit
    page = rows[first : first + asked.limit]
    return json_answer(
        {
            "queues": [_shown(row, await value_of(edge.broker.series.recent(row.queue))) for row in page],
            "total": len(rows), "page": asked.page, "limit": asked.limit,
            "sum": {**summed, "oldest_age_ms": max(ages, default=None), "rates": rates},
        }
    )  # fmt: skip


_RATES = ("published_per_s", "delivered_per_s", "acked_per_s")


async def _rows(edge: Edge) -> list[QueueRow]:
    """By name; with the queues that were just created."""
    now_ms, count = edge.clock.now_ms(), len(await value_of(edge.broker.queues.paths()))
    kept, kept_ms = edge.queue_rows, min(max(KEPT_MS, KEPT_MS_PER_QUEUE * count), KEPT_MS_MAX)
    if kept is None or not 0 <= now_ms - kept[0] < kept_ms or len(kept[1]) != count:
        kept = edge.queue_rows = now_ms, await edge.broker.stats.rows()
    return kept[1]


def _value(row: QueueRow, sort: str) -> float:
    return row.rates[sort] if sort in _RATES else getattr(row, sort) or 0


def _shown(row: QueueRow, recent: list[int]) -> dict[str, Any]:
    return {
        "queue": row.queue, "order": row.order, "queue_priority": row.priority, "depth": row.depth, "ready": row.ready,
        "scheduled": row.scheduled, "leased": row.leased, "waiting_for_retry": row.waiting_for_retry, "dead": row.dead,
        "oldest_age_ms": row.oldest_age_ms,
        "rates": {name: round(row.rates[name], 3) for name in _RATES}, "totals": row.totals,
        "recent": recent,
    }  # fmt: skip
