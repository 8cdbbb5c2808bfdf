"""The settings of a queue: a form, the difference that it makes, and a confirmation if messages would be removed."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from penstock.dashboard.api import ApiError
from penstock.dashboard.rendering import short
from penstock.dashboard.views.forms import field_error, whole_number
from penstock.dashboard.visit import Page, Visit


class Setting(NamedTuple):
    name: str
    """Dotted for a field of an object."""
    label: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    """Empty: a number. `yes`, `no`: a Boolean."""


_YES_NO = ("no", "yes")
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "Delivery": (
        Setting("lease_ms", "Lease (ms)", "How long a consumer has for a message, if it does not say."),
        Setting("delivery", "Delivery", "", ("at_least_once", "at_most_once")),
        Setting("order", "Order", "Lanes and heaps deliver by priority.", ("fifo", "lanes", "heap")),
        Setting("heap_mode", "Heap", "Only of order heap.", ("min", "max")),
        Setting("ordered_keys", "One message per key at a time", "", _YES_NO),
        Setting("exclusive", "One lease at a time", "", _YES_NO),
        Setting("queue_priority", "Queue priority", "For leases by scope: higher ones first."),
        Setting("partitions", "Partitions", "They can grow, not shrink."),
    ),
    "Retries and dead letters": (
        Setting("max_retries", "Retries", "Deliveries after the first."),
        Setting("backoff.kind", "Backoff", "", ("exponential", "fixed", "none", "steps")),
        Setting("backoff.base_ms", "First wait (ms)"),
        Setting("backoff.factor", "Factor"),
        Setting("backoff.cap_ms", "Longest wait (ms)"),
        Setting("dead_letter", "Keep dead letters", "", _YES_NO),
        Setting("dead_letter_max", "At most", "Empty: no limit."),
        Setting("dead_letter_ttl_ms", "For at most (ms)", "Empty: for ever."),
    ),
    "Time and space": (
        Setting("delay_ms", "Delay (ms)", "Every message waits at least this long."),
        Setting("ttl_ms", "Time to live (ms)", "Empty: for ever."),
        Setting("window_ms", "Window (ms)", "Deliver when nothing new came for so long."),
        Setting("max_messages", "Most messages", "Beyond it a publish is refused. Empty: no limit."),
        Setting("max_payload_bytes", "Largest payload (bytes)"),
        Setting("retention.mode", "Retention", "", ("until_acked", "keep")),
        Setting("retention.ms", "Keep for (ms)", "Only of retention keep. Empty: for ever."),
        Setting("retention.bytes", "Keep at most (bytes)", "Only of retention keep. Empty: no limit."),
    ),
}
_ALL = {setting.name: setting for group in SETTINGS.values() for setting in group}


async def show(visit: Visit) -> Page:
    found = await visit.api.get(f"/v1/queues/{visit.queue}")
    now = {name: _text(_get(found["config"], name)) for name in _ALL}
    form, error, changes, lost = visit.form, None, {}, None
    values = {name: form.get(name, now[name]) for name in _ALL} if visit.method == "POST" else now
    status = 200
    if visit.method == "POST":
        try:
            changes = {name: values[name] for name in _ALL if values[name] != now[name]}
            body = _body(changes)
            if form.get("step") == "apply":
                return await _apply(visit, body)
        except ApiError as refused:
            error, status = refused, 400
            refused.details["field"] = _field(refused, changes)
            lost = refused.details.get("would_lose") if refused.confirm else None
    return visit.page(
        "settings.html", status, tab="settings", queue=found["queue"], config=found["config"], groups=SETTINGS,
        values=values, now=now, changes=changes, error=error, lost=lost,
        review=visit.method == "POST" and bool(changes) and (error is None or lost is not None),
    )  # fmt: skip


async def _apply(visit: Visit, body: dict[str, Any]) -> Page:
    path, here = f"/v1/queues/{visit.queue}", f"/ui/q/{visit.queue}/settings"
    try:
        await visit.api.call("PATCH", path, body)
    except ApiError as refused:
        if refused.confirm is None or "typed" not in visit.form:
            raise
        if visit.form["typed"] != short(visit.queue):
            refused.details["field"] = "typed"
            refused.message = f"type {short(visit.queue)} to confirm"
            raise
        await visit.api.call("PATCH", path, body, confirm=refused.confirm)
    return visit.redirect(here, note="settings_saved")


def _field(refused: ApiError, changes: dict[str, str]) -> str:
    """The changed setting that a refusal is about; the API may name the object that it belongs to, in its text."""
    if refused.field in _ALL or refused.field == "typed":
        return refused.field
    return next((name for name in changes if name.partition(".")[0] in refused.message), refused.field)


def _get(config: dict[str, Any], name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = value[part]
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _body(changes: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, text in changes.items():
        outer, _, inner = name.rpartition(".")
        (body.setdefault(outer, {}) if outer else body)[inner] = _value(_ALL[name], text)
    return body


def _value(setting: Setting, text: str) -> Any:
    if setting.choices == _YES_NO:
        return text == "yes"
    if setting.choices:
        return text
    if setting.name == "backoff.factor":
        try:
            return msgspec.convert(text, float, strict=False)
        except msgspec.ValidationError:
            raise field_error(setting.name, "expected a number") from None
    return whole_number({setting.name: text}, setting.name)
