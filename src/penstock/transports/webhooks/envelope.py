"""A message as an HTTP request: its body and its headers, without the signature (`signing.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from penstock.batch import layout
from penstock.broker.types import DeliveredRun
from penstock.ids import ulid_text
from penstock.wire import cloudevents
from penstock.wire.webhooks import Format

JSON = "application/json"
BYTES = "application/octet-stream"
_FORWARDED = ("traceparent", "tracestate")
"""Headers of a message that are sent as headers of the request."""
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?")
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class WebhookMessage(NamedTuple):
    """One leased message."""

    id: str
    queue: str
    payload: bytes
    is_json: bool
    headers: Mapping[str, str]
    key: str | None
    attempt: int
    published_at_ms: int
    receipt: str | None
    """None if the queue delivers at most once."""


class Envelope(NamedTuple):
    headers: dict[str, str]
    body: bytes


def messages_of(run: DeliveredRun) -> list[WebhookMessage]:
    batch = run.batch
    headers = batch.strings(layout.HEADERS) if batch.has(layout.HEADERS) else [b""] * run.count
    keys = batch.strings(layout.KEY) if batch.has(layout.KEY) else [b""] * run.count
    return [
        WebhookMessage(
            ulid_text(run.id + row),
            run.queue,
            batch.payload(row),
            batch.is_json(row),
            _decode_headers(headers[row]) if headers[row] else {},
            keys[row].decode() or None,
            run.attempt,
            run.published_at_ms,
            None if run.receipt is None else f"{run.receipt}{run.offset + row}",
        )
        for row in range(run.count)
    ]


def envelope_of(message: WebhookMessage, form: Format) -> Envelope:
    headers = {"penstock-queue": message.queue, "penstock-attempt": str(message.attempt)}
    headers |= {
        name: value
        for name in _FORWARDED
        if (value := message.headers.get(name)) is not None and _HEADER_VALUE.fullmatch(value)
    }
    if form == "plain":
        kind = message.headers.get("content-type") or message.headers.get("ce-datacontenttype", "")
        if not _HEADER_VALUE.fullmatch(kind):
            kind = JSON if message.is_json else BYTES
        return Envelope({**headers, "content-type": kind}, message.payload)
    attributes = cloudevents.attributes_of(
        message.headers,
        id=message.id,
        queue=message.queue,
        at_ms=message.published_at_ms,
        is_json=message.is_json,
    )
    if message.key is not None:
        attributes.setdefault("partitionkey", message.key)
    if form == "cloudevents-structured":
        body = cloudevents.to_json(attributes, message.payload, is_json=message.is_json)
        return Envelope({**headers, "content-type": f"{cloudevents.STRUCTURED_TYPE}; charset=utf-8"}, body)
    if not _HEADER_VALUE.fullmatch(attributes.get("datacontenttype", BYTES)):
        attributes["datacontenttype"] = JSON if message.is_json else BYTES
    return Envelope({"content-type": BYTES, **headers, **cloudevents.to_headers(attributes)}, message.payload)
