"""The audit trail: its newest entries, and whether its chain holds."""

from __future__ import annotations

from penstock.dashboard.visit import Page, Visit

ENTRIES = 100


async def show(visit: Visit) -> Page:
    after = visit.query.get("after", "")
    known = int(after) if after.isascii() and after.isdigit() and len(after) < 16 else None
    found = await visit.api.get("/v1/audit", after=known, limit=ENTRIES)
    state = await visit.api.get("/v1/audit/verify")
    return visit.page("audit.html", entries=found["entries"][::-1], state=state, after=known)
