"""Groups of a queue: create, seek with a preview, delete."""

from __future__ import annotations

from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import confirmed, field_error, moment
from penstock.dashboard.visit import Page, Visit


async def create(visit: Visit) -> Page:
    form, error = visit.form, None
    if visit.method == "POST":
        try:
            body = {"queue": visit.queue, "group": form.get("group", ""), "start": _place(form)}
            await visit.api.call("PUT", "/v1/groups", body)
            return visit.redirect(f"/ui/q/{visit.queue}", note="group_created")
        except ApiError as refused:
            error = refused
    return visit.page("group_new.html", 400 if error else 200, queue=visit.queue, tab="state", form=form, error=error)


async def seek(visit: Visit) -> Page:
    """The first step shows which messages come again or are skipped; the second moves the group."""
    form = visit.form
    group = form.get("group") or visit.query.get("group", "default")
    preview, error = None, None
    if visit.method == "POST":
        step = form.get("step")
        try:
            body = {"queue": visit.queue, "group": group, "to": _place(form), "dry_run": step != "move"}
            preview = await visit.api.post("/v1/groups/seek", body)
            if step == "move":
                return visit.redirect(f"/ui/q/{visit.queue}", note="group_moved")
        except ApiError as refused:
            error = refused
    return visit.page(
        "group_seek.html", 400 if error else 200, queue=visit.queue, tab="state", group=group, form=form,
        preview=preview, error=error,
    )  # fmt: skip


async def delete(visit: Visit) -> Page:
    group = visit.form.get("group") or visit.query.get("group", "")
    stats = await visit.api.get("/v1/groups", queue=visit.queue)
    found = next((entry for entry in stats["groups"] if entry["group"] == group), None)
    if found is None:
        raise field_error("group", f"there is no group {group!r}")

    async def act(confirm: str | None) -> Any:
        return await visit.api.call("DELETE", "/v1/groups", queue=visit.queue, group=group, confirm=confirm)

    here = f"/ui/q/{visit.queue}"
    return await confirmed(
        visit, act, title="Delete the group", name=group, verb="Delete the group", done=here, back=here,
        lost={"unfinished messages of the group": found["lag"], "messages kept for it alone": found["held"]},
        hidden={"group": group},
    )  # fmt: skip


def _place(form: dict[str, str]) -> str:
    """`earliest`, `latest` or `at:<ms>`, from the choice and the time of a form. Raises ApiError."""
    choice = form.get("to", "earliest")
    if choice != "at":
        return choice
    return f"at:{moment(form, 'at')}"
