"""The live tail: events as they become durable. The browser reads the stream itself."""

from __future__ import annotations

from penstock.dashboard.visit import Page, Visit


async def show(visit: Visit) -> Page:
    return visit.page("live.html", queue=visit.query.get("queue", ""), kind=visit.query.get("kind", ""))
