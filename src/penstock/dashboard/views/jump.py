"""Jump to a queue by a part of its name, or to a message by its id or the id that its client chose."""

from __future__ import annotations

import re

from penstock.dashboard.api import ApiError
from penstock.dashboard.visit import Page, Visit

FOUND_MAX = 10
_MESSAGE_ID = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
"""In lower case, which the API does not take for an id of its own."""
SHORTEST_ID = 4
"""A shorter text is only a part of a name: ids of clients are found whole."""


async def find(visit: Visit) -> Page:
    text = visit.query.get("q", "")[:200]
    text = text.upper() if _MESSAGE_ID.fullmatch(text) else text
    holding = await _tables(visit, message=text) if len(text) >= SHORTEST_ID else []
    return visit.page("jump.html", text=text, holding=holding, names=await _tables(visit, search=text))


async def _tables(visit: Visit, **which: str) -> list[str]:
    try:
        table = await visit.api.get("/v1/stats/queues", **which, sort="depth", limit=FOUND_MAX)
    except ApiError:
        return []  # a text that cannot be a name or an id
    return [row["queue"] for row in table["queues"]]
