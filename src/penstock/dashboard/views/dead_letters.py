"""The dead-letter workbench: groups by error, filter, selection, dry run, redrive at a rate, export, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.dashboard.api import ApiError
from penstock.dashboard.rendering import short
from penstock.dashboard.views.forms import confirmed, new_id, page_of, whole_number
from penstock.dashboard.views.payloads import shown, without_fields
from penstock.dashboard.visit import NOT_STORED, SAFE_HEADERS, Page, Visit

PER_PAGE = 25
EXPORT_PAGES = 10
EXPORT_PER_PAGE = 100
EXPORT_BYTES_MAX = 8 * 2**20


async def all_queues(visit: Visit) -> Page:
    table = await visit.api.get("/v1/stats/queues", sort="dead", page=page_of(visit), limit=50)
    rows = [row for row in table["queues"] if row["dead"]]
    return visit.page("dead_queues.html", rows=rows, table=table)


async def show(visit: Visit, error: ApiError | None = None, plan: dict[str, Any] | None = None) -> Page:
    query = visit.query if visit.method != "POST" else visit.form
    wanted, after = query.get("filter", ""), visit.query.get("after")
    found: dict[str, Any] = {"messages": [], "total": 0, "next": None}
    try:
        found = await visit.api.get(
            "/v1/dlq", queue=visit.queue, filter=wanted or None, limit=PER_PAGE, after=after or None
        )
    except ApiError as refused:
        if refused.code == "queue_not_found":
            raise
        error = error or refused
    reasons = await visit.api.get("/v1/dlq/reasons", queue=visit.queue)
    redrives = (await visit.api.get("/v1/dlq/redrives", queue=visit.queue))["redrives"]
    return visit.page(
        "dead.html", 400 if error else 200, tab="dead", queue=visit.queue, filter=wanted, found=found, error=error,
        letters=[shown(letter, visit.code, fields=visit.options.masked) for letter in found["messages"]],
        reasons=reasons, plan=plan,
        redrives=sorted(redrives, key=lambda each: -each["started_at_ms"])[:5], form=visit.form, chosen=visit.chosen,
        per_page=PER_PAGE,
    )  # fmt: skip


def _which(visit: Visit) -> dict[str, Any]:
    """The selected letters, or those of the filter."""
    if visit.chosen:
        return {"ids": visit.chosen}
    return {"filter": visit.form.get("filter", "")}


async def redrive(visit: Visit) -> Page:
    """The first step is a dry run, which changes nothing; the second starts the redrive."""
    form = visit.form
    try:
        rate = whole_number(form, "rate_per_s")
        body = {
            "queue": visit.queue, **_which(visit), "target": form.get("target") or None,
            "delay_ms": whole_number(form, "delay_ms"), "rate_per_s": 100 if rate is None else rate,
            "dry_run": form.get("step") != "start", "redrive_id": form.get("redrive_id") or new_id(),
        }  # fmt: skip
        done = await visit.api.post("/v1/dlq/redrive", body)
    except ApiError as refused:
        if refused.field == "queue" and form.get("target"):
            refused.details["field"] = "target"
        return await show(visit, refused)
    if done["dry_run"]:
        return await show(visit, plan=done)
    return visit.redirect(f"/ui/q/{visit.queue}/dead", note="redrive_started")


async def stop(visit: Visit) -> Page:
    body = {"queue": visit.queue, "redrive_id": visit.form.get("redrive_id", "")}
    await visit.api.post("/v1/dlq/redrive/stop", body)
    return visit.redirect(f"/ui/q/{visit.queue}/dead", note="redrive_stopped")


async def delete(visit: Visit) -> Page:
    which = _which(visit)
    hidden = {"filter": visit.form.get("filter", "")}
    if visit.form.get("all_ids"):
        which = {"ids": visit.form["all_ids"].split()}
    if "ids" in which:
        hidden["all_ids"] = " ".join(which["ids"])
        count = len(which["ids"])
    else:
        plan = await visit.api.post("/v1/dlq/redrive", {"queue": visit.queue, **which, "dry_run": True})
        count = plan["count"]

    async def act(confirm: str | None) -> Any:
        return await visit.api.post("/v1/dlq/delete", {"queue": visit.queue, **which}, confirm=confirm)

    here = f"/ui/q/{visit.queue}/dead"
    return await confirmed(
        visit, act, title="Delete dead letters of", name=short(visit.queue), verb="Delete them",
        lost={"dead letters": count}, done=here, back=here, hidden=hidden,
    )  # fmt: skip


async def export(visit: Visit) -> Page:
    """Dead letters as JSON lines, in bounded time and space; the last line says where to go on."""
    lines: list[bytes] = []
    after, size = visit.query.get("after") or None, 0
    for _ in range(EXPORT_PAGES):
        found = await visit.api.get(
            "/v1/dlq", queue=visit.queue, filter=visit.query.get("filter") or None, limit=EXPORT_PER_PAGE, after=after
        )
        lines += [msgspec.json.encode(without_fields(letter, visit.options.masked)) for letter in found["messages"]]
        size, after = sum(map(len, lines)), found["next"]
        if after is None or size > EXPORT_BYTES_MAX:
            break
    if after is not None:
        lines.append(msgspec.json.encode({"next": after}))
    name = short(visit.queue).replace("/", "-")
    headers = (
        *SAFE_HEADERS,
        *NOT_STORED,
        (b"content-disposition", f'attachment; filename="{name}-dead.jsonl"'.encode("latin-1", "replace")),
    )
    return visit.sent(Page(200, b"".join(line + b"\n" for line in lines), b"application/x-ndjson", headers))
