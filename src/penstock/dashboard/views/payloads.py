"""A message of a reply as the pages show it: payload as text, JSON or hex, and the calls that publish it again."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec

from penstock.dashboard.rendering import short
from penstock.dashboard.snippets import Snippets
from penstock.wire.filters import Value

SHOWN_CHARS = 8_000
LINE_CHARS = 300
HEX_BYTES = 1_024
COPIED_BYTES = 4_096
MASK = "••••"


class Shown(NamedTuple):
    """A message with the texts of its payload."""

    message: dict[str, Any]
    text: str
    """JSON with indentation, or text; empty for other bytes."""
    line: str
    """The beginning of the payload, in one line."""
    hex: str
    bytes: int
    is_cut: bool
    curl: str
    python: str


def shown(
    message: dict[str, Any], code: Snippets, *, masked: bool = False, chars: int = SHOWN_CHARS,
    fields: frozenset[str] = frozenset(),
) -> Shown:  # fmt: skip
    """With `masked` no value is shown; the values of `fields` and of headers with these names never are."""
    if fields:
        message = _without(message, fields)
    raw = _bytes(message)
    text, value = "", None
    if "payload" in message:
        value = _masked(message["payload"]) if masked else message["payload"]
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    elif masked:
        text = MASK
    else:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = ""
        text = text if text.isprintable() or "\n" in text else ""
    copied = message if len(raw) <= COPIED_BYTES and not masked else {**message, "payload": "…"}
    line = msgspec.json.encode(value).decode() if "payload" in message else text.replace("\n", " ")
    return Shown(
        message, text[:chars], line[:LINE_CHARS], "" if masked else _hex(raw[:HEX_BYTES]), len(raw), len(text) > chars,
        _curl(copied, code), _python(copied, code),
    )  # fmt: skip


class FilteredMessage:
    """A message as a filter of the API reads it."""

    def __init__(self, message: dict[str, Any], now_ms: int):
        self._message = message
        self._now_ms = now_ms

    def field(self, name: str) -> Value:
        if name == "age":
            return int(self._now_ms - self._message["published_at_ms"])
        value: Value = self._message.get("attempt" if name == "attempts" else name)
        return value

    def header(self, name: str) -> str | None:
        found: str | None = self._message["headers"].get(name)
        return found

    def payload(self) -> Any:
        return self._message.get("payload")


def _bytes(message: dict[str, Any]) -> bytes:
    if "payload" in message:
        return msgspec.json.encode(message["payload"])
    return base64.b64decode(message["payload_b64"])


def _without(message: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """The message with masks for the values of these fields and headers. Bytes have no fields and are shown whole."""
    kept = {**message, "headers": without_fields(message["headers"], fields)}
    if "payload" in message:
        kept["payload"] = without_fields(message["payload"], fields)
    return kept


def without_fields(value: Any, fields: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: MASK if name.lower() in fields else without_fields(each, fields) for name, each in value.items()}
    if isinstance(value, list):
        return [without_fields(each, fields) for each in value]
    return value


def _masked(value: Any) -> Any:
    """The value with its structure, without its content."""
    if isinstance(value, dict):
        return {name: _masked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return value if value is None or isinstance(value, bool) else MASK


def _hex(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)


def _curl(message: dict[str, Any], code: Snippets) -> str:
    body: dict[str, Any] = {name: message[name] for name in ("payload", "payload_b64", "headers") if message.get(name)}
    body |= {name: message[name] for name in ("key", "priority") if message.get(name)}
    return code.curl("/v1/publish", {"queue": short(message["queue"]), "messages": [body]})


def _python(message: dict[str, Any], code: Snippets) -> str:
    value = message["payload"] if "payload" in message else _bytes(message)
    more = "".join(f", {name}={message[name]!r}" for name in ("key", "priority", "headers") if message.get(name))
    return code.python(f"client.queue({short(message['queue'])!r}).publish({value!r}{more})")
