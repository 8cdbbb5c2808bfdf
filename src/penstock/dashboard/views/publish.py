"""Publish a test message, or a dead letter that was edited."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.dashboard.api import ApiError
from penstock.dashboard.rendering import pretty
from penstock.dashboard.views.forms import field_error, whole_number
from penstock.dashboard.views.payloads import without_fields
from penstock.dashboard.visit import Page, Visit


async def edit(visit: Visit) -> Page:
    """Publish an edited copy of a dead letter, and delete the letter when the copy is durable."""
    letter_id = visit.names["id"]
    here = f"/ui/q/{visit.queue}/messages/{letter_id}"
    letter = await dead_letter(visit, letter_id)
    if letter is None:
        raise field_error("id", f"{letter_id} is not a dead letter of {visit.queue}")
    form, error = visit.form, None
    if visit.method == "POST":
        try:
            made = await visit.api.post("/v1/publish", {"queue": visit.queue, "messages": [message_of(form)]})
            await _delete_letter(visit, letter_id)
            return visit.redirect(f"/ui/q/{visit.queue}/messages/{made['messages'][0]['id']}", note="edited")
        except ApiError as refused:
            error = refused
    else:
        form = _form_of(visit, letter)
    return visit.page(
        "publish.html", 400 if error else 200, tab="dead", queue=visit.queue, form=form, error=error,
        letter=letter_id, back=here,
    )  # fmt: skip


async def dead_letter(visit: Visit, message_id: str) -> dict[str, Any] | None:
    """A message as a dead letter, which outlives its place in the log."""
    body = {"queue": visit.queue, "ids": [message_id], "dry_run": True}
    try:
        found: list[dict[str, Any]] = (await visit.api.post("/v1/dlq/redrive", body))["sample"]
    except ApiError:
        return None
    return found[0] if found else None


async def _delete_letter(visit: Visit, letter_id: str) -> None:
    body = {"queue": visit.queue, "ids": [letter_id]}
    try:
        await visit.api.post("/v1/dlq/delete", body)
    except ApiError as refused:
        if refused.confirm is None:
            raise
        await visit.api.post("/v1/dlq/delete", body, confirm=refused.confirm)


def _form_of(visit: Visit, letter: dict[str, Any]) -> dict[str, str]:
    """The letter as fields of the form. Raises ApiError for one whose content the form cannot hold."""
    if without_fields(letter, visit.options.masked) != letter:
        raise field_error("payload", "the message has masked fields, which a form would overwrite; edit it by the API")
    if "payload" not in letter:
        raise field_error("payload", "the payload is not JSON; publish an edited copy by the API")
    headers = "\n".join(f"{name}: {value}" for name, value in letter["headers"].items())
    return {
        "payload": pretty(letter["payload"]), "kind": "json", "key": letter["key"] or "", "headers": headers,
        "priority": str(letter["priority"] or ""),
    }  # fmt: skip


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
        if not colon or not header.strip():
            missing = "name" if colon else "colon"
            raise field_error(
                "headers", f"write one header per line, as name: value; there is no {missing} in {line[:80]!r}"
            )
        headers[header.strip()] = text.strip()
    if headers:
        message["headers"] = headers
    return message
