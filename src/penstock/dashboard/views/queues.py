"""The list of queues, and new queues."""

from __future__ import annotations

from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import field_error, page_of, whole_number
from penstock.dashboard.visit import Page, Visit
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue

PER_PAGE = 50
PINS_MAX = 10
COLUMNS = (
    ("name", "Queue"), ("ready", "Ready"), ("leased", "In flight"), ("scheduled", "Scheduled"), ("dead", "Dead"),
    ("published_per_s", "In /s"), ("acked_per_s", "Out /s"),
)  # fmt: skip
"""(sort key, title)."""


async def show(visit: Visit) -> Page:
    search, sort = visit.query.get("q", ""), visit.query.get("sort", "name")
    sort = sort if sort in dict(COLUMNS) else "name"
    table = await visit.api.get(
        "/v1/stats/queues", search=search[:200], sort=sort, page=page_of(visit), limit=PER_PAGE
    )  # fmt: skip
    pins = visit.pins
    pinned = [] if search else await _rows(visit, pins)
    rows = pinned + [row for row in table["queues"] if not pinned or row["queue"] not in pins]
    return visit.page(
        "queues.html", table=table, rows=rows, pins=pins, search=search, sort=sort, columns=COLUMNS,
        pages=-(-table["total"] // PER_PAGE),
    )  # fmt: skip


async def _rows(visit: Visit, names: list[str]) -> list[dict[str, Any]]:
    if not names:
        return []
    table = await visit.api.get("/v1/stats/queues", names=",".join(names[:PINS_MAX]), limit=PINS_MAX)
    return list(table["queues"])


async def pin(visit: Visit) -> Page:
    """Keep a queue on top of the list, or no longer. The browser remembers it."""
    queue = visit.form.get("queue", "")
    pins = [name for name in visit.pins if name != queue]
    if len(pins) == len(visit.pins) and queue and not set(queue) & set("~;, "):
        pins = [queue, *pins][:PINS_MAX]
    page = visit.redirect("/ui/queues")
    cookie = f"penstock_pins={'~'.join(pins)}; Path=/; Max-Age=31536000; SameSite=Lax; HttpOnly"
    return page._replace(headers=(*page.headers, (b"set-cookie", cookie.encode("latin-1", "replace"))))


async def create(visit: Visit) -> Page:
    form = visit.form
    error = None
    if visit.method == "POST":
        path = "/".join(
            part for part in (form.get("namespace", ""), form.get("task", ""), form.get("name", "")) if part
        )
        config = {"order": form.get("order", "fifo"), "ordered_keys": "ordered_keys" in form}
        if form.get("retention") == "keep":
            config["retention"] = {"mode": "keep"}
        try:
            if (partitions := whole_number(form, "partitions")) is not None:
                config["partitions"] = partitions
            if not form.get("name"):
                raise field_error("name", "a queue needs a name")
            made = await visit.api.call("PUT", f"/v1/queues/{path}", config)
            return visit.redirect(f"/ui/q/{made['queue']}", note="queue_created")
        except ApiError as refused:
            if refused.field == "queue":
                refused.details["field"] = _wrong_part(form)
            error = refused
    return visit.page("queue_new.html", 400 if error else 200, form=form, error=error)


def _wrong_part(form: dict[str, str]) -> str:
    """The field of a queue path that is not a name."""
    for part in ("namespace", "task"):
        try:
            parse_queue(form.get(part) or "default")
        except InvalidRequest:
            return part
        if "/" in form.get(part, ""):
            return part
    return "name"
