"""Connections, and history from the lake."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.dashboard.api import ApiError
from penstock.dashboard.rendering import now_ms
from penstock.dashboard.views.forms import page_of
from penstock.dashboard.visit import Page, Visit

_encode = msgspec.json.Encoder().encode


async def connections(visit: Visit) -> Page:
    found = await visit.api.get("/v1/connections")
    return visit.page("connections.html", found=found)


DAY_MS = 86_400_000
RANGES = {"day": DAY_MS, "week": 7 * DAY_MS, "month": 30 * DAY_MS}
TIMINGS = {"wait": "Publish to delivery", "processing": "Delivery to end", "end_to_end": "Publish to end"}


async def analytics(visit: Visit) -> Page:
    """History from the lake: all queues, or one with charts; or the way to get one."""
    span, queue = _span(visit), visit.query.get("queue")
    found, error = None, None
    try:
        if queue:
            found = await visit.api.get("/v1/analytics/queue", queue=queue, **span)
        else:
            found = await visit.api.get("/v1/analytics/queues", page=page_of(visit), **span)
    except ApiError as refused:
        error = refused
    charts = [] if found is None or not queue else _charts(found)
    return visit.page(
        "analytics.html", found=found, error=error, queue=queue, charts=charts, ranges=list(RANGES), timings=TIMINGS,
        range=visit.query.get("range", "day"),
    )  # fmt: skip


def _span(visit: Visit) -> dict[str, str | int]:
    """The times of the query, or those of a named range up to now."""
    if "from_ms" in visit.query and "to_ms" in visit.query:
        return {"from_ms": visit.query["from_ms"], "to_ms": visit.query["to_ms"]}
    length = RANGES.get(visit.query.get("range", "day"), DAY_MS)
    return {"from_ms": now_ms() - length, "to_ms": now_ms()}


def _charts(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(title, lines, unit, data) of each chart."""
    points = found["points"]
    counts = {name: [point["counts"][name] for point in points] for name in ("published", "acked", "dead_lettered")}
    charts = [
        ("Messages a second", "published:published:blue acked:acked:good dead_lettered:dead:bad", "second", counts),
        ("Backlog", "depth:backlog:accent", "", {"depth": [point["depth"] for point in points]}),
    ]
    for name, title in TIMINGS.items():
        times = {kind: [point[name][f"{kind}_ms"] for point in points] for kind in ("p50", "p95", "p99")}
        charts.append((f"{title} (ms)", "p50:p50:blue p95:p95:warn p99:p99:bad", "", times))
    head = {"step_ms": found["step_ms"], "at_ms": [point["at_ms"] for point in points]}
    return [(title, lines, per, _encode({**head, "series": series}).decode()) for title, lines, per, series in charts]
