"""Fields of log events that are not shown, by path.

A path is names with dots, from a field of the event inwards: `headers.cookie`. `*` is any name, and a first `**` any
number of names, so `**.password` is that field wherever it is. Names are compared without case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

MASK = "***"
CREDENTIAL_FIELDS = tuple(
    f"**.{name}"
    for name in ("authorization", "cookie", "set-cookie", "x-api-key", "x-csrf-token", "proxy-authorization",
                 "password", "secret", "token", "ticket", "credential", "payload", "payload_b64")
)  # fmt: skip
_DEPTH_MAX = 16


class FieldMask:
    """A processor of log events."""

    def __init__(self, paths: Iterable[str]):
        self._paths = [tuple(path.lower().split(".")) for path in paths]

    def __call__(self, _logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {name: self._shown((name.lower(),), value) for name, value in event.items()}

    def _shown(self, path: tuple[str, ...], value: Any) -> Any:
        if any(_matches(masked, path) for masked in self._paths):
            return MASK
        if len(path) > _DEPTH_MAX:
            return MASK
        if isinstance(value, Mapping):
            return {name: self._shown((*path, str(name).lower()), inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            # A pair in a list is a header: its first item is the name of the second.
            return [self._item(path, item) for item in value]
        return value

    def _item(self, path: tuple[str, ...], item: Any) -> Any:
        if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str | bytes):
            name = item[0] if isinstance(item[0], str) else item[0].decode("latin-1")
            return [name, self._shown((*path, name.lower()), item[1])]
        return self._shown(path, item)


def _matches(masked: tuple[str, ...], path: tuple[str, ...]) -> bool:
    if masked and masked[0] == "**":
        masked = masked[1:]
        path = path[len(path) - len(masked) :] if len(path) >= len(masked) else ()
    return len(masked) == len(path) and all(want in ("*", name) for want, name in zip(masked, path, strict=True))
