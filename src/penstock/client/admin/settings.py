"""Settings of queues as users write them, in the names and units of the API. Without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from penstock import limits
from penstock.client.units import milliseconds
from penstock.wire.settings import BackoffSettings, QueueSettings

_DURATIONS = {
    field.removesuffix("_ms"): field
    for kind in (QueueSettings, BackoffSettings)
    for field in kind.__struct_fields__
    if field.endswith("_ms")
}
"""`lease` -> `lease_ms`, and so on."""


def settings_body(settings: QueueSettings | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """All of `settings`, and then the changes: a name of the API and its value, or `lease=60` for `lease_ms=60_000`."""
    whole = {} if settings is None else msgspec.to_builtins(settings)
    return {**whole, **_in_milliseconds(changes)}


def _in_milliseconds(values: Mapping[str, Any]) -> dict[str, Any]:
    body = {}
    for name, value in values.items():
        if isinstance(value, msgspec.Struct):
            value = msgspec.to_builtins(value)
        if isinstance(value, Mapping):
            value = _in_milliseconds(value)
        elif name in _DURATIONS and value is not None:
            value = [_whole(name, each) for each in value] if name == "steps" else _whole(name, value)
        elif isinstance(value, timedelta):
            value = _whole(name, value)
        body[_DURATIONS.get(name, name)] = value
    return body


def _whole(name: str, duration: Any) -> int:
    return milliseconds(name, duration, limits.TIME_MS_MAX)
