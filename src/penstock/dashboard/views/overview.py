"""The first page: the state of the whole server."""

from __future__ import annotations

from penstock.dashboard.api import ApiError
from penstock.dashboard.visit import Page, Visit

LISTED = 8


async def show(visit: Visit) -> Page:
    api = visit.api
    summary = await api.get("/v1/stats/summary")
    backlog = await api.get("/v1/stats/queues", sort="depth", limit=LISTED)
    dead = await api.get("/v1/stats/queues", sort="dead", limit=LISTED)
    try:
        health = await api.get("/readyz")
    except ApiError as error:
        health = {"status": error.message}
    try:
        storage = await api.get("/v1/stats/storage")
    except ApiError:
        storage = None  # the visitor may not see it
    return visit.page(
        "overview.html", summary=summary, sum=backlog["sum"], health=health, storage=storage,
        backlog=[row for row in backlog["queues"] if row["depth"]],
        dead=[row for row in dead["queues"] if row["dead"]],
    )  # fmt: skip
