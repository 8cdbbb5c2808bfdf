"""Webhooks: endpoints, attempts and secrets."""

from __future__ import annotations

from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import confirmed, page_of
from penstock.dashboard.visit import Page, Visit

PER_PAGE = 50
ATTEMPTS = 20


async def show(visit: Visit) -> Page:
    found = await visit.api.get("/v1/webhooks", page=page_of(visit), limit=PER_PAGE)
    return visit.page("webhooks.html", found=found, pages=-(-found["total"] // PER_PAGE))


async def create(visit: Visit) -> Page:
    form, error = visit.form, None
    if visit.method == "POST":
        body = {name: form[name] for name in ("queue", "url", "group", "format", "description") if form.get(name)}
        try:
            return await detail(visit, await visit.api.post("/v1/webhooks", body))
        except ApiError as refused:
            error = refused
    return visit.page("webhook_new.html", 400 if error else 200, form=form, error=error)


async def detail(
    visit: Visit, made: dict[str, Any] | None = None, tested: dict[str, Any] | None = None,
    error: ApiError | None = None,
) -> Page:  # fmt: skip
    """`made` is a reply with a secret, which is shown this once."""
    name = made["id"] if made else visit.names["webhook"]
    webhook = await visit.api.get(f"/v1/webhooks/{name}")
    attempts = await visit.api.get("/v1/webhooks/attempts", id=name, limit=ATTEMPTS)
    return visit.page(
        "webhook.html", 400 if error else 200, error=error, webhook=webhook,
        attempts=attempts["attempts"], secret=made["secret"] if made else None,
        tested=tested,
    )  # fmt: skip


async def act(visit: Visit) -> Page:
    name, verb = visit.names["webhook"], visit.names["act"]
    here = f"/ui/webhooks/w/{name}"
    if verb == "delete":
        webhook = await visit.api.get(f"/v1/webhooks/{name}")

        async def remove(confirm: str | None) -> Any:  # noqa: ARG001
            return await visit.api.call("DELETE", f"/v1/webhooks/{name}")

        return await confirmed(
            visit, remove, title=f"Delete the webhook to {webhook['url']}:", name=name, verb="Delete the webhook",
            lost={}, done="/ui/webhooks", back=here,
        )  # fmt: skip
    if visit.method != "POST":
        return visit.redirect(here)
    asked = {"id": name, **({"message_id": visit.form.get("message_id", "")} if verb == "resend" else {})}
    try:
        reply = await visit.api.post(f"/v1/webhooks/{verb}", asked)
    except ApiError as refused:
        return await detail(visit, error=refused)
    if verb == "rotate":
        return await detail(visit, made=reply)
    if verb in ("test", "resend"):
        return await detail(visit, tested=reply)
    return visit.redirect(here, note="done")
