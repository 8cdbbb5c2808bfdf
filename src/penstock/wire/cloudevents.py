"""Convert CloudEvents 1.0 to messages (binary, structured and batched mode) and back (binary and structured mode).

The message keeps the attributes of an event as text headers `ce-<name>` and its data as the payload. The specification
defines the bytes of the data: the body in binary mode; in structured mode the JSON text of `data` (or the string
inside, if `datacontenttype` is not JSON), or the decoded `data_base64`.

Producers must make source and id unique together, so their digest is the message's id for deduplication. The
partitioning extension, `partitionkey`, is the message's key.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, unquote_to_bytes

import msgspec

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire.messages import PublishMessage
from penstock.wire.parse import parse_json

STRUCTURED_TYPE = "application/cloudevents+json"
BATCH_TYPE = "application/cloudevents-batch+json"
FAMILY = b"application/cloudevents"
HEADER_PREFIX = "ce-"

_REQUIRED = ("specversion", "id", "source", "type")
_NAME = re.compile(r"[a-z0-9]{1,64}")
_JSON_TYPE = re.compile(r"[^/;\s]+/(?:[^/;\s]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_QUOTED_PAIR = re.compile(r"\\(.)")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that a header carries unencoded; all others are percent-encoded."""

_ABSENT = "\0"
"""The marker of a null attribute; no attribute may contain NUL."""

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_raw_decoder = msgspec.json.Decoder(msgspec.Raw)
_value_decoder = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


class CloudEvent(NamedTuple):
    attributes: dict[str, str]
    data: bytes
    is_json: bool


# -- in -----------------------------------------------------------------------------------------------------------


def from_headers(headers: Iterable[tuple[bytes, bytes]], content_type: str, body: bytes) -> CloudEvent:
    """Parse binary mode. `headers` are those that begin with `ce-`, names in lower case."""
    attributes: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.decode("latin-1")[len(HEADER_PREFIX) :]
        if name in attributes:
            _invalid(None, name, "is given twice")
        if name == "datacontenttype":
            _invalid(None, name, "is the Content-Type in this mode")
        attributes[name] = _header_text(name, value)
    if content_type:
        attributes["datacontenttype"] = content_type
    _check(attributes, None)
    if _JSON_TYPE.fullmatch(content_type):
        parse_json(_raw_decoder, body)
        return CloudEvent(attributes, body, True)
    return CloudEvent(attributes, body, False)


def from_json(body: bytes) -> CloudEvent:
    """Structured mode."""
    return _event(parse_json(_object_decoder, body), None)


def from_json_batch(body: bytes) -> list[CloudEvent]:
    events = parse_json(_array_decoder, body)
    if len(events) > limits.BATCH_MESSAGES_MAX:
        raise InvalidRequest(f"a batch has up to {limits.BATCH_MESSAGES_MAX} events, this one has {len(events)}")
    return [_event(members, row) for row, members in enumerate(events)]


def as_message(event: CloudEvent, *, dedup: bool) -> PublishMessage:
    attributes = event.attributes
    message = PublishMessage(
        headers={f"{HEADER_PREFIX}{name}": value for name, value in attributes.items()},
        key=attributes.get("partitionkey"),
        id=dedup_id(attributes["source"], attributes["id"]) if dedup else None,
    )
    if event.is_json:
        message.payload = msgspec.Raw(event.data)
    else:
        message.payload_b64 = b64encode(event.data).decode()
    return message


def dedup_id(source: str, id: str) -> str:
    """A digest of source and id; the length prefix of the source makes it unambiguous."""
    size = len(source.encode()).to_bytes(4, "big")
    return f"ce:{blake2b(size + source.encode() + id.encode(), digest_size=16).hexdigest()}"


def _event(members: dict[str, msgspec.Raw], row: int | None) -> CloudEvent:
    data, data_base64 = members.pop("data", None), members.pop("data_base64", None)
    attributes: dict[str, str] = {}
    for name, raw in members.items():
        value = _attribute(raw)
        if value is None:
            _invalid(row, name, "is neither text nor a whole number nor true or false")
        if value is not _ABSENT:
            attributes[name] = value
    _check(attributes, row)
    if data is not None and data_base64 is not None:
        _invalid(row, "data_base64", "give only one of data and data_base64")
    if data_base64 is not None:
        try:
            return CloudEvent(attributes, msgspec.json.decode(data_base64, type=bytes), False)
        except msgspec.DecodeError:
            _invalid(row, "data_base64", "is not base64")
    if data is None:
        return CloudEvent(attributes, b"", False)
    kind = attributes.get("datacontenttype", "application/json")
    if bytes(data).startswith(b'"') and not _JSON_TYPE.fullmatch(kind):
        text = _attribute(data)
        if text is None:
            _invalid(row, "data", "is not text")
        return CloudEvent(attributes, text.encode(), False)
    return CloudEvent(attributes, bytes(data), True)


def _attribute(raw: msgspec.Raw) -> str | None:
    """The value as text; `_ABSENT` for null, None for a type that attributes cannot have."""
    start = bytes(raw)[:1]
    try:
        if start == b'"':
            return str(_value_decoder.decode(raw))
        if start in (b"[", b"{"):
            return None  # not decoded: it may be nested without limit
        value = _value_decoder.decode(raw)
    except msgspec.DecodeError:
        return None
    if value is None:
        return _ABSENT
    return bytes(raw).decode() if isinstance(value, int) else None


def _check(attributes: dict[str, str], row: int | None) -> None:
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            _invalid(row, name, "is not a valid attribute name: use lower-case letters and digits")
        if _CONTROL.search(value):
            _invalid(row, name, "has characters that an attribute cannot have")
    for name in _REQUIRED:
        if not attributes.get(name):
            _invalid(row, name, "is required")
    if attributes["specversion"] != "1.0":
        _invalid(row, "specversion", "only version 1.0 is supported")
    if "time" in attributes:
        try:
            msgspec.convert(attributes["time"], datetime)
        except msgspec.ValidationError:
            _invalid(row, "time", "is not a time like 2026-01-31T12:00:00Z")
    if len(attributes) > limits.HEADERS_COUNT_MAX:
        _invalid(row, "attributes", f"more than {limits.HEADERS_COUNT_MAX}")
    key = attributes.get("partitionkey")
    if key is not None and not 1 <= len(key) <= limits.KEY_BYTES_MAX:
        _invalid(row, "partitionkey", f"1 to {limits.KEY_BYTES_MAX} bytes")


def _header_text(name: str, value: bytes) -> str:
    """Remove one level of quotes and one of percent-encoding, as the HTTP binding requires."""
    try:
        text = value.decode("ascii").strip()
        if len(text) >= 2 and text[0] == text[-1] == '"':
            text = _QUOTED_PAIR.sub(r"\1", text[1:-1])
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        _invalid(None, name, "is not percent-encoded UTF-8")


def _invalid(row: int | None, name: str, reason: str) -> NoReturn:
    details: dict[str, Any] = {"field": name[:64]}
    if row is not None:
        details["row"] = row
    raise InvalidRequest(f"{'' if row is None else f'event {row}, '}{name[:64]}: {reason}", details=details)


# -- out ----------------------------------------------------------------------------------------------------------


def attributes_of(headers: Mapping[str, str], *, id: str, queue: str, at_ms: int, is_json: bool) -> dict[str, str]:
    """The attributes stored with the message, or derived ones if it was not published as a CloudEvent."""
    given = {
        name: value
        for header, value in headers.items()
        if header.startswith(HEADER_PREFIX) and _NAME.fullmatch(name := header.removeprefix(HEADER_PREFIX))
    }
    if all(given.get(name) for name in _REQUIRED):
        return given
    attributes = {
        "specversion": "1.0",
        "id": id,
        "source": f"penstock:{queue}",
        "type": "penstock.message",
        "time": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json" if is_json else "application/octet-stream",
    }
    return {**attributes, **given, "specversion": "1.0"}


def to_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """The headers of binary mode; the body is the data."""
    headers = {
        f"{HEADER_PREFIX}{name}": quote(value, safe=_SAFE)
        for name, value in attributes.items()
        if name != "datacontenttype"
    }
    kind = attributes.get("datacontenttype")
    if kind is not None:
        headers["content-type"] = kind
    return headers


def to_json(attributes: Mapping[str, str], data: bytes, *, is_json: bool) -> bytes:
    """Structured mode."""
    event: dict[str, Any] = dict(attributes)
    if is_json:
        event["data"] = msgspec.Raw(data)
    elif data:
        event["data_base64"] = b64encode(data).decode()
    return _encode(event)
