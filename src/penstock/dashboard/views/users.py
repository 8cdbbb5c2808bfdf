"""People that log in: add, change, remove."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import confirmed
from penstock.dashboard.visit import Page, Visit

ROLES = ("viewer", "operator", "admin")


async def show(visit: Visit) -> Page:
    found = await visit.api.get("/v1/users")
    return visit.page("users.html", users=found["users"])


async def add(visit: Visit) -> Page:
    form, error = visit.form, None
    if visit.method == "POST":
        asked = {name: form.get(name, "") for name in ("email", "role", "password")}
        try:
            await visit.api.post("/v1/users", asked)
            return visit.redirect("/ui/users", note="done")
        except ApiError as refused:
            error = refused
    return visit.page("user_new.html", error.status if error else 200, form=form, error=error, roles=ROLES)


async def act(visit: Visit) -> Page:
    email, error = unquote(visit.names["email"]), None
    user = next((each for each in (await visit.api.get("/v1/users"))["users"] if each["email"] == email), None)
    if user is None:
        return visit.page("problem.html", 404, title="Not found", message=f"There is no user {email[:256]}")
    if visit.names["act"] == "remove":

        async def remove(confirm: str | None) -> Any:  # noqa: ARG001
            return await visit.api.call("DELETE", f"/v1/users/{email}")

        return await confirmed(
            visit, remove, title=f"Remove {email}, which ends their sessions:", name=email, verb="Remove the person",
            lost={"open sessions": user["sessions"]}, done="/ui/users", back="/ui/users",
        )  # fmt: skip
    if visit.method == "POST":
        asked = {name: visit.form[name] for name in ("role", "password") if visit.form.get(name)}
        try:
            await visit.api.call("PATCH", f"/v1/users/{email}", asked)
            return visit.redirect("/ui/users", note="done")
        except ApiError as refused:
            error = refused
    return visit.page("user.html", error.status if error else 200, user=user, error=error, roles=ROLES)
