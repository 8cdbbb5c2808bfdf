"""Jump to a queue or a message by typing a part of its name."""

from __future__ import annotations

import re

from penstock.dashboard.visit import Page, Visit

FOUND_MAX = 10
_MESSAGE_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.IGNORECASE)


async def find(visit: Visit) -> Page:
    text = visit.query.get("q", "")[:200]
    is_id = _MESSAGE_ID.fullmatch(text) is not None
    near = visit.query.get("queue", "")
    table = await visit.api.get("/v1/stats/queues", search="" if is_id else text, sort="depth", limit=FOUND_MAX)
    names = [row["queue"] for row in table["queues"]]
    if is_id and near in names:
        names.insert(0, names.pop(names.index(near)))
    return visit.page("jump.html", text=text, message_id=text.upper() if is_id else "", names=names)
