"""Messages of a queue: those that a group gets next, or the log by offset or time; without leases.

A page reads at most `LOOKED_MAX` messages, found or not, and says where to go on.
"""

from __future__ import annotations

from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.rendering import now_ms
from penstock.dashboard.views.forms import field_error, moment
from penstock.dashboard.views.payloads import FilteredMessage, shown
from penstock.dashboard.visit import Page, Visit
from penstock.errors import InvalidRequest
from penstock.wire.filters import parse_filter

FOUND_MAX = 25
LOOKED_MAX = 500
READ_BYTES_MAX = 2**20


async def show(visit: Visit) -> Page:
    query = visit.query
    stats = await visit.api.get("/v1/stats", queue=visit.queue)
    view = "log" if query.get("view") == "log" else "next"
    found: list[dict[str, Any]] = []
    looked, then, error = 0, None, None
    try:
        if view == "next":
            group = query.get("group") or "default"
            reply = await visit.api.get("/v1/peek", queue=visit.queue, group=group, max=FOUND_MAX)
            found, looked = reply["messages"], len(reply["messages"])
        else:
            found, looked, then = await _log(visit)
    except ApiError as refused:
        error = refused
    masked = query.get("mask") == "1"
    return visit.page(
        "messages.html", 400 if error else 200, tab="messages", queue=visit.queue, stats=stats, view=view, error=error,
        looked=looked, then=then, masked=masked,
        messages=[shown(message, visit.code, masked=masked, fields=visit.options.masked) for message in found],
    )  # fmt: skip


async def _log(visit: Visit) -> tuple[list[dict[str, Any]], int, int | None]:
    """The messages that were found, the number that was read, and the offset to go on from; None at the end."""
    query = visit.query
    try:
        matches = parse_filter(query.get("filter", "")).matches
    except InvalidRequest as refused:
        raise field_error("filter", refused.message) from None
    since = f"at:{moment(query, 'since')}" if query.get("since") and not query.get("offset") else ""
    now, offset = now_ms(), query.get("offset") or since or "earliest"
    found: list[dict[str, Any]] = []
    looked = 0
    while looked < LOOKED_MAX:
        reply = await visit.api.get(
            "/v1/read", queue=visit.queue, partition=query.get("partition") or 0, offset=offset, max=100,
            max_bytes=READ_BYTES_MAX,
        )  # fmt: skip
        for message in reply["messages"]:
            looked += 1
            if matches(FilteredMessage(message, now)):
                found.append(message)
                if len(found) == FOUND_MAX:
                    then = message["offset"] + 1
                    return found, looked, then if then < reply["end_offset"] else None
        if reply["next_offset"] >= reply["end_offset"] or not reply["messages"]:
            return found, looked, None
        offset = str(reply["next_offset"])
    return found, looked, int(offset)
