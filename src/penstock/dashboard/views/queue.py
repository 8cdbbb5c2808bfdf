"""One queue: its state now, its groups and partitions; purge and delete."""

from __future__ import annotations

from typing import Any

from penstock.dashboard.rendering import short
from penstock.dashboard.views.forms import confirmed
from penstock.dashboard.visit import Page, Visit

EXPLAINED = 5
CONSUMERS = 25


async def show(visit: Visit) -> Page:
    stats = await visit.api.get("/v1/stats", queue=visit.queue)
    names = [entry["group"] for entry in stats["groups"]]
    group = visit.query.get("group") or ("default" if "default" in names or not names else names[0])
    work = await visit.api.get("/v1/stats/consumers", queue=visit.queue, limit=CONSUMERS)
    explained = await visit.api.get("/v1/explain", queue=visit.queue, group=group)
    return visit.page(
        "queue.html", tab="state", queue=stats["queue"], stats=stats, group=group, work=work,
        explained=explained["messages"][:EXPLAINED],
    )  # fmt: skip


async def _loss(visit: Visit) -> dict[str, int]:
    stats = await visit.api.get("/v1/stats", queue=visit.queue)
    return {"messages": stats["depth"], "in flight": stats["leased"], "dead letters": stats["dead"]}


async def purge(visit: Visit) -> Page:
    async def act(confirm: str | None) -> Any:
        return await visit.api.post(f"/v1/queues/{visit.queue}/purge", None, confirm=confirm)

    here = f"/ui/q/{visit.queue}"
    return await confirmed(
        visit, act, title="Remove all messages of", name=short(visit.queue), verb="Remove all messages",
        lost=await _loss(visit), done=here, back=here,
    )  # fmt: skip


async def delete(visit: Visit) -> Page:
    async def act(confirm: str | None) -> Any:
        return await visit.api.call("DELETE", f"/v1/queues/{visit.queue}", confirm=confirm)

    return await confirmed(
        visit, act, title="Delete the queue", name=short(visit.queue), verb="Delete the queue",
        lost=await _loss(visit), done="/ui/queues", back=f"/ui/q/{visit.queue}",
    )  # fmt: skip
