"""Login, logout and the own password."""

from __future__ import annotations

from penstock.dashboard.api import ApiError
from penstock.dashboard.visit import Page, Visit


async def login(visit: Visit) -> Page:
    """The only page without a session."""
    error = None
    target = _own(visit.form.get("next") or visit.query.get("next", ""))
    if visit.method == "POST":
        asked = {name: visit.form.get(name, "") for name in ("email", "password")}
        try:
            await visit.api.post("/v1/session", asked)
            return visit.moved(target)
        except ApiError as refused:
            error = refused
    return visit.page(
        "login.html", error.status if error else 200, error=error, target=target, email=visit.form.get("email", "")
    )


async def logout(visit: Visit) -> Page:
    if visit.method == "POST":
        await visit.api.call("DELETE", "/v1/session")
    return visit.moved("/ui/login")


async def password(visit: Visit) -> Page:
    error = None
    if visit.method == "POST":
        try:
            asked = {name: visit.form.get(name, "") for name in ("password", "new_password")}
            await visit.api.post("/v1/session/password", asked)
            return visit.redirect("/", note="done")
        except ApiError as refused:
            error = refused
    return visit.page("password.html", error.status if error else 200, error=error)


def _own(target: str) -> str:
    """A page of this server: a link to the login page must not lead to another site."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_path and target.isascii() and target.isprintable() else "/"
