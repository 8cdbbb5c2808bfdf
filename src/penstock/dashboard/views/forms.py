"""Parts that several forms share."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.dashboard.api import ApiError
from penstock.dashboard.visit import Page, Visit

PAGE_MAX = 10_000


def page_of(visit: Visit) -> int:
    text = visit.query.get("page", "1")
    return min(max(1, int(text)), PAGE_MAX) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def whole_number(form: dict[str, str], name: str) -> int | None:
    """A number of a form; None if the field is empty. Raises ApiError, as the API would."""
    text = form.get(name, "")
    if not text:
        return None
    if not text.removeprefix("-").isdigit() or len(text) > 18 or not text.isascii():
        raise field_error(name, "expected a whole number")
    return int(text)


def moment(form: Mapping[str, str], name: str) -> int:
    """A time of a form, in milliseconds: as browsers send it, without a zone, in UTC. Raises ApiError."""
    try:
        return int(datetime.fromisoformat(form.get(name, "")).replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise field_error(name, "give a time in UTC, like 2026-11-18T20:15") from None


def field_error(name: str, message: str) -> ApiError:
    return ApiError(400, {"code": "invalid_request", "message": message, "details": {"field": name}})


async def confirmed(
    visit: Visit, act: Callable[[str | None], Awaitable[Any]], *, title: str, name: str, verb: str,
    lost: dict[str, int], done: str, back: str, hidden: dict[str, str] | None = None,
) -> Page:  # fmt: skip
    """A destructive act: the page shows the loss, and the act needs the name of its object, typed.

    `act` calls the API with a token or without. `done` is where the browser continues.
    """
    wrong = None
    if visit.method == "POST" and "typed" in visit.form:
        if visit.form["typed"] == name:
            try:
                await act(None)
            except ApiError as refused:
                if refused.confirm is None:
                    raise
                await act(refused.confirm)
            return visit.redirect(done, note="done")
        wrong = field_error("typed", f"type {name} to confirm")
    return visit.page(
        "confirm.html", 400 if wrong else 200, title=title, name=name, verb=verb, back=back, error=wrong, lost=lost,
        hidden=hidden or {},
    )  # fmt: skip


def new_id() -> str:
    return secrets.token_hex(8)
