"""One message: why it is where it is, every transition, its payload; cancel and reschedule.

The transitions are a page of their own, which the page of the message loads when it is shown: the search for them reads
the journal from the time of the message on.
"""

from __future__ import annotations

from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import confirmed, field_error, whole_number
from penstock.dashboard.views.payloads import shown
from penstock.dashboard.views.publish import dead_letter
from penstock.dashboard.visit import Page, Visit

PAYLOAD_CHARS = 64_000


async def show(visit: Visit, error: ApiError | None = None) -> Page:
    message_id = visit.names["id"]
    groups = (await visit.api.get("/v1/groups", queue=visit.queue))["groups"]
    names = [entry["group"] for entry in groups] or ["default"]
    letter = await dead_letter(visit, message_id) if len(names) > 1 and "group" not in visit.query else None
    wanted = visit.query.get("group"), letter["group"] if letter else None, "default"
    group = next((name for name in wanted if name in names), names[0])
    explained = (await visit.api.get("/v1/explain", queue=visit.queue, id=message_id, group=group))["messages"][0]
    stored = await _stored(visit, explained) or await dead_letter(visit, message_id)
    masked = visit.query.get("mask") == "1"
    return visit.page(
        "message.html", 400 if error else 200, tab="messages", queue=visit.queue, id=message_id,
        explained=explained, groups=names, group=group, error=error, form=visit.form,
        shown=None if stored is None else shown(
            stored, visit.code, masked=masked, chars=PAYLOAD_CHARS, fields=visit.options.masked
        ),
        masked=masked,
    )  # fmt: skip


async def timeline(visit: Visit) -> Page:
    message_id = visit.names["id"]
    history = await visit.api.get("/v1/history", queue=visit.queue, id=message_id)
    return visit.page("timeline.html", tab="messages", queue=visit.queue, id=message_id, history=history)


async def _stored(visit: Visit, explained: dict[str, Any]) -> dict[str, Any] | None:
    """The message itself; None if it is not stored any more."""
    if explained["partition"] is None or explained["offset"] is None:
        return None
    try:
        reply = await visit.api.get(
            "/v1/read", queue=visit.queue, partition=explained["partition"], offset=explained["offset"], max=1
        )
    except ApiError:
        return None
    found: dict[str, Any] | None = next(iter(reply["messages"]), None)
    return found if found is not None and found["offset"] == explained["offset"] else None


async def cancel(visit: Visit) -> Page:
    message_id = visit.names["id"]
    here = f"/ui/q/{visit.queue}/messages/{message_id}"

    async def act(confirm: str | None) -> Any:  # noqa: ARG001
        reply = await visit.api.post("/v1/cancel", {"queue": visit.queue, "ids": [message_id]})
        _check(reply["results"][0]["status"], "cancelled")

    return await confirmed(
        visit, act, title="Cancel the message", name=message_id, verb="Cancel the message", lost={"messages": 1},
        done=here, back=here,
    )  # fmt: skip


async def reschedule(visit: Visit) -> Page:
    message_id = visit.names["id"]
    try:
        delay = whole_number(visit.form, "delay_ms")
        if delay is None:
            raise field_error("delay_ms", "give the delay from now, in milliseconds")
        body = {"queue": visit.queue, "ids": [message_id], "delay_ms": delay}
        reply = await visit.api.post("/v1/reschedule", body)
        _check(reply["results"][0]["status"], "rescheduled")
        return visit.redirect(f"/ui/q/{visit.queue}/messages/{message_id}", note="rescheduled")
    except ApiError as refused:
        return await show(visit, refused)


def _check(status: str, wanted: str) -> None:
    if status != wanted:
        raise field_error("delay_ms", f"this is not possible now: the message is {status.replace('_', ' ')}")
