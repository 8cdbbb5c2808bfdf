"""API keys: create, rotate, revoke; their last use."""

from __future__ import annotations

from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.rendering import now_ms
from penstock.dashboard.views.forms import confirmed, field_error, whole_number
from penstock.dashboard.visit import Page, Visit

DAY_MS = 86_400_000


async def show(visit: Visit, made: dict[str, Any] | None = None) -> Page:
    """`made` is a reply with a secret, which is shown this once."""
    found = await visit.api.get("/v1/keys")
    return visit.page("keys.html", keys=found["keys"], made=made)


async def create(visit: Visit) -> Page:
    form, error = visit.form, None
    if visit.method == "POST":
        try:
            return await show(visit, await visit.api.post("/v1/keys", _asked(form)))
        except ApiError as refused:
            error = refused
    return visit.page("key_new.html", error.status if error else 200, form=form, error=error)


def _asked(form: dict[str, str]) -> dict[str, Any]:
    asked: dict[str, Any] = {"name": form.get("name", ""), "scopes": form.get("scopes", "").split()}
    if not asked["scopes"]:
        raise field_error("scopes", "name at least one scope, like publish:shop/*")
    if form.get("rate"):
        asked["rate"] = form["rate"]
    days = whole_number(form, "days")
    if days is not None:
        asked["expires_at_ms"] = now_ms() + days * DAY_MS
    return asked


async def act(visit: Visit) -> Page:
    id = visit.names["key"]
    key = next((each for each in (await visit.api.get("/v1/keys"))["keys"] if each["id"] == id), None)
    if key is None:
        return visit.page("problem.html", 404, title="Not found", message=f"There is no key {id[:64]}")
    if visit.names["act"] == "rotate":
        if visit.method != "POST":
            return visit.redirect("/ui/keys")
        return await show(visit, await visit.api.post("/v1/keys/rotate", {"id": id}))

    async def revoke(confirm: str | None) -> Any:  # noqa: ARG001
        return await visit.api.call("DELETE", f"/v1/keys/{id}")

    return await confirmed(
        visit, revoke, title=f"Revoke the key {key['name']}, which ends its requests and streams at once:", name=id,
        verb="Revoke the key", lost={}, done="/ui/keys", back="/ui/keys",
    )  # fmt: skip
