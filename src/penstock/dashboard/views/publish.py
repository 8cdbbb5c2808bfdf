"""Publish a test message."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.dashboard.api import ApiError
from penstock.dashboard.views.forms import field_error, whole_number
from penstock.dashboard.visit import Page, Visit


async def show(visit: Visit) -> Page:
    form, error = visit.form, None
    if visit.method == "POST":
        try:
            body = {"queue": visit.queue, "messages": [message_of(form)]}
            made = (await visit.api.post("/v1/publish", body))["messages"][0]
            return visit.redirect(f"/ui/q/{visit.queue}/messages/{made['id']}", note="published")
        except ApiError as refused:
            error = refused
    return visit.page("publish.html", 400 if error else 200, tab="publish", queue=visit.queue, form=form, error=error)


def message_of(form: dict[str, str]) -> dict[str, Any]:
    """The message that a form describes. Raises ApiError that names the field."""
    text = form.get("payload", "")
    message: dict[str, Any] = {"payload": text}
    if form.get("kind", "json") == "json":
        try:
            msgspec.json.decode(text.encode())
        except (msgspec.DecodeError, RecursionError) as error:
            raise field_error("payload", f"this is not JSON: {error}") from None
        message["payload"] = msgspec.Raw(text.encode())
    if form.get("key"):
        message["key"] = form["key"]
    for name in ("delay_ms", "priority", "ttl_ms"):
        if (value := whole_number(form, name)) is not None:
            message[name] = value
    headers = {}
    for line in filter(None, form.get("headers", "").split("\n")):
        header, colon, text = line.partition(":")
        if not colon:
            raise field_error(
                "headers", f"write one header per line, as name: value; there is no colon in {line[:80]!r}"
            )
        headers[header.strip()] = text.strip()
    if headers:
        message["headers"] = headers
    return message
