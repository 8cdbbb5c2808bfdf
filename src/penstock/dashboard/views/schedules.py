"""Scheduled messages, and schedules that publish by the calendar."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import confirmed, page_of
from penstock.dashboard.views.publish import message_of
from penstock.dashboard.visit import Page, Visit

PER_PAGE = 50


async def scheduled_queues(visit: Visit) -> Page:
    table = await visit.api.get("/v1/stats/queues", sort="scheduled", page=page_of(visit), limit=PER_PAGE)
    rows = [row for row in table["queues"] if row["scheduled"]]
    return visit.page("scheduled_queues.html", rows=rows)


async def scheduled(visit: Visit) -> Page:
    """The messages of a queue that are not due yet, earliest first."""
    found = await visit.api.get("/v1/scheduled", queue=visit.queue, limit=PER_PAGE, after=visit.query.get("after"))
    return visit.page("scheduled.html", tab="scheduled", queue=visit.queue, found=found)


async def show(visit: Visit) -> Page:
    found = await visit.api.get("/v1/schedules", page=page_of(visit), limit=PER_PAGE)
    return visit.page("schedules.html", found=found, pages=-(-found["total"] // PER_PAGE))


async def edit(visit: Visit) -> Page:
    form, error = visit.form, None
    if visit.method == "POST":
        try:
            body = {
                "queue": form.get("queue", ""), "cron": form.get("cron", ""), "timezone": form.get("timezone") or "UTC",
                "catch_up": form.get("catch_up", "latest"), "message": message_of(form),
            }  # fmt: skip
            made = await visit.api.call("PUT", _api_path(form.get("name", "")), body)
            return visit.redirect(f"/ui/schedules/s/{made['name']}", note="schedule_saved")
        except ApiError as refused:
            error = refused
    return visit.page("schedule_new.html", 400 if error else 200, form=form, error=error)


async def detail(visit: Visit) -> Page:
    found = await visit.api.get(_api_path(visit.names["schedule"]))
    return visit.page("schedule.html", schedule=found)


async def act(visit: Visit) -> Page:
    name, verb = visit.names["schedule"], visit.names["act"]
    here = f"/ui/schedules/s/{name}"
    if verb == "delete":

        async def remove(confirm: str | None) -> Any:  # noqa: ARG001
            return await visit.api.call("DELETE", _api_path(name))

        return await confirmed(
            visit, remove, title="Delete the schedule", name=name, verb="Delete the schedule", lost={},
            done="/ui/schedules", back=here,
        )  # fmt: skip
    if visit.method != "POST":
        return visit.redirect(here)
    if verb == "run":
        found = await visit.api.get(_api_path(name))
        message = {field: value for field, value in found["message"].items() if value is not None}
        made = (await visit.api.post("/v1/publish", {"queue": found["queue"], "messages": [message]}))["messages"][0]
        return visit.redirect(f"/ui/q/{made['queue']}/messages/{made['id']}", note="published")
    await visit.api.post(f"{_api_path(name)}/{verb}", None)
    return visit.redirect(here, note="done")


def _api_path(name: str) -> str:
    return "/v1/schedules/" + quote(name, safe="/")
