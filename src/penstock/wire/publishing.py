"""Build batch frames from a JSON publish: the same frames that the SDK sends.

The work is done by column: one pass per field, and none for a field that no message uses. Payloads are not decoded;
their bytes are copied from the body of the request into the frame.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import NamedTuple, cast

import msgspec

from penstock import limits
from penstock.batch import BadBatch, Batch, build, layout
from penstock.batch.priorities import priority_columns
from penstock.errors import InvalidRequest, PenstockError, TooLarge
from penstock.ids import QueuePath
from penstock.wire.messages import (
    PlainPublishRequest,
    Producer,
    PublishEnvelope,
    PublishMessage,
    PublishRequest,
)
from penstock.wire.parse import named_error, parse_json, parse_queue

_plain_decoder = msgspec.json.Decoder(PlainPublishRequest)
_request_decoder = msgspec.json.Decoder(PublishRequest)
_envelope_decoder = msgspec.json.Decoder(PublishEnvelope)
_message_decoder = msgspec.json.Decoder(PublishMessage)
_any_decoder = msgspec.json.Decoder(msgspec.Raw)
_encoder = msgspec.json.Encoder()
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context."""


class Publish(NamedTuple):
    """A decoded publish. If it is not atomic, an item may be the error of that message."""

    queue: str | None
    atomic: bool
    producer: Producer | None
    messages: Sequence[PublishMessage | PenstockError]


class PlainPublish(NamedTuple):
    """An atomic publish with no column but the payload: the most common one."""

    queue: str
    producer: Producer | None
    payloads: Sequence[msgspec.Raw]


def parse_publish(body: bytes) -> Publish | PlainPublish:
    """Decode a publish. An invalid message raises InvalidRequest if the publish is atomic, or else becomes an item."""
    try:
        plain = parse_json(_plain_decoder, body)
        if plain.atomic:
            return PlainPublish(plain.queue, plain.producer, [message.payload for message in plain.messages])
    except InvalidRequest:
        pass  # decoding stops at the first field that is not a payload, so this attempt is cheap
    try:
        request = parse_json(_request_decoder, body)
    except InvalidRequest as error:
        if "row" not in error.details:
            raise
        envelope = parse_json(_envelope_decoder, body)
        if envelope.atomic:
            raise
        messages = [_parse_message(raw, row) for row, raw in enumerate(envelope.messages)]
        return Publish(envelope.queue, False, envelope.producer, messages)
    return Publish(request.queue, request.atomic, request.producer, request.messages)


def with_trace(publish: Publish | PlainPublish, traceparent: str) -> Publish | PlainPublish:
    """The publish with the trace of its request in the headers of its messages, unless they have one of their own.

    A context that is not valid, and headers without room for it, are left as they are.
    """
    if _TRACEPARENT.fullmatch(traceparent) is None:
        return publish
    carried = {"traceparent": traceparent}
    if isinstance(publish, PlainPublish):
        messages = [PublishMessage(payload, headers=carried) for payload in publish.payloads]
        return Publish(publish.queue, True, publish.producer, messages)
    for message in publish.messages:
        if isinstance(message, PublishMessage):
            headers = message.headers or {}
            size = sum(len(name) + len(value) for name, value in headers.items())
            if len(headers) < limits.HEADERS_COUNT_MAX and 4 * size < limits.HEADERS_BYTES_MAX:
                message.headers = {**carried, **headers}
    return publish


def rows_by_queue(
    default: str | None, messages: Sequence[PublishMessage], *, in_order: bool
) -> list[tuple[QueuePath, list[int] | None]]:
    """Group the rows by queue; rows are None if all messages go to one queue.

    `in_order` keeps the order of the messages over all parts, even if a queue then occurs more than once: the sequence
    numbers of a producer follow that order.
    """
    names = [message.queue for message in messages]
    if names.count(None) == len(names):
        return [(queue_of(messages[0], default), None)]
    paths = [queue_of(message, default) for message in messages]
    if in_order:
        return [(path, list(rows)) for path, rows in groupby(range(len(paths)), key=paths.__getitem__)]
    parts: dict[QueuePath, list[int]] = {}
    for row, path in enumerate(paths):
        parts.setdefault(path, []).append(row)
    return list(parts.items())


def queue_of(message: PublishMessage, default: str | None) -> QueuePath:
    """The queue of the message, or else that of the whole publish."""
    name = default if message.queue is None else message.queue
    if name is None:
        raise InvalidRequest("name a queue, for the whole publish or for each message", details={"field": "queue"})
    return parse_queue(name)


def plain_batch(publish: PlainPublish) -> Batch:
    """Build one frame of these payloads; raises as `batch_of` does."""
    payloads = cast("Sequence[bytes]", publish.payloads)
    try:
        _check_sizes_and_depth(payloads)
        return Batch.open(build(payloads, checked=True), known=True)
    except _RuleBroken as broken:
        raise broken.for_caller(0) from None
    except BadBatch as error:
        raise TooLarge(error.message) from None


def batch_of(messages: Sequence[PublishMessage], *, first_row: int = 0) -> Batch:
    """Build one frame of these messages. Raises InvalidRequest or TooLarge with the row of the first invalid message.

    `first_row` is the row of the first message in the request, for these errors.
    """
    try:
        payloads, kinds = _payloads(messages)
        columns = _columns(messages)
        return Batch.open(build(payloads, kinds=kinds, columns=columns, checked=True), known=True)
    except _RuleBroken as broken:
        raise broken.for_caller(first_row) from None
    except BadBatch as error:
        raise TooLarge(error.message) from None


class _RuleBroken(Exception):
    """One message breaks one rule; the row counts from the first message of this batch."""

    def __init__(self, row: int, field: str, reason: str, kind: type[PenstockError] = InvalidRequest):
        super().__init__(row, field, reason, kind)
        self.row, self.field, self.reason, self.kind = row, field, reason, kind

    def for_caller(self, first_row: int) -> PenstockError:
        row = first_row + self.row
        return self.kind(f"message {row}, {self.field}: {self.reason}", details={"row": row, "field": self.field})


def _columns(messages: Sequence[PublishMessage]) -> dict[int, Sequence[int] | Sequence[bytes]]:
    """The columns that at least one message uses."""
    columns = priority_columns([m.priority for m in messages])
    if any(delays := [m.delay_ms for m in messages]):
        columns[layout.DELAY_MS] = delays
    if any(moments := [m.deliver_at_ms for m in messages]):
        for row, moment in enumerate(moments):
            if moment is not None and delays[row]:
                raise _RuleBroken(row, "deliver_at_ms", "give only one of deliver_at_ms and delay_ms")
        columns[layout.DELIVER_AT_MS] = [moment or 0 for moment in moments]
    if any(ttls := [m.ttl_ms for m in messages]):
        columns[layout.TTL_MS] = [ttl or 0 for ttl in ttls]
    retries = [m.max_retries for m in messages]
    if retries.count(None) != len(retries):
        columns[layout.MAX_RETRIES] = [-1 if retry is None else retry for retry in retries]
    if any(keys := [m.key for m in messages]):
        columns[layout.KEY] = _texts("key", keys, limits.KEY_BYTES_MAX)
    if any(own_ids := [m.id for m in messages]):
        columns[layout.ID] = _texts("id", own_ids, limits.CLIENT_ID_BYTES_MAX)
    if any(headers := [m.headers for m in messages]):
        texts = [_encoder.encode(each) if each else b"" for each in headers]
        columns[layout.HEADERS] = _bounded("headers", texts, limits.HEADERS_BYTES_MAX)
    if any(tenants := [m.tenant for m in messages]):
        columns[layout.TENANT] = _texts("tenant", tenants, limits.TENANT_BYTES_MAX)
    return columns


def _parse_message(raw: msgspec.Raw, row: int) -> PublishMessage | PenstockError:
    try:
        return _message_decoder.decode(raw)
    except msgspec.DecodeError as error:
        return named_error(error, row)


# -- payloads -----------------------------------------------------------------------------------------------------


def _payloads(messages: Sequence[PublishMessage]) -> tuple[Sequence[bytes], list[int] | None]:
    """The payloads as bytes, and the kind of each unless all are JSON."""
    # Raw is a buffer with a length, as the frame encoder needs, so payloads are copied only once, into the frame.
    payloads = cast("list[bytes]", [m.payload for m in messages])
    encoded = [m.payload_b64 for m in messages]
    kinds = None
    if encoded.count(None) != len(encoded):
        kinds = [layout.KIND_JSON if text is None else layout.KIND_BYTES for text in encoded]
        for row, text in enumerate(encoded):
            if text is not None:
                if len(payloads[row]) and bytes(payloads[row]) != b"null":
                    raise _RuleBroken(row, "payload", "give exactly one of payload and payload_b64")
                payloads[row] = _unbase64(text, row)
    sizes = list(map(len, payloads))
    if 0 in sizes:
        for row, size in enumerate(sizes):
            if not size and encoded[row] is None:
                raise _RuleBroken(row, "payload", "give one of payload and payload_b64")
    _check_sizes_and_depth(payloads, kinds)
    return payloads, kinds


def _check_sizes_and_depth(payloads: Sequence[bytes], kinds: Sequence[int] | None = None) -> None:
    largest = max(map(len, payloads))
    if largest > limits.PAYLOAD_BYTES_MAX:
        row = list(map(len, payloads)).index(largest)
        raise _RuleBroken(row, "payload", f"{largest} bytes are over the limit of {limits.PAYLOAD_BYTES_MAX}", TooLarge)
    if largest > _DEEP_BYTES_MIN:
        _check_depth(
            payloads if kinds is None else [p if kind else b"" for p, kind in zip(payloads, kinds, strict=True)]
        )


def _unbase64(text: str, row: int) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise _RuleBroken(row, "payload_b64", f"is not base64: {error}") from None


# -- nesting ------------------------------------------------------------------------------------------------------

_DEEP_BYTES_MIN = 2 * limits.JSON_DEPTH_MAX + 1
"""JSON nested deeper than the limit is longer than this: each level has two brackets."""
_OPENERS_ONLY = bytes(set(range(256)) - set(b"[{\0"))
_ONE_OPENER = bytes.maketrans(b"{", b"[")
_TOO_MANY_OPENERS = b"[" * (limits.JSON_DEPTH_MAX + 1)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_BRACKETS_ONLY = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def is_json(payload: bytes) -> bool:
    """True if a publish accepts these bytes as JSON."""
    try:
        payload.decode()
        _any_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return not is_too_deep(payload)


def is_too_deep(payload: bytes) -> bool:
    """True if this JSON is nested deeper than the limit."""
    if len(payload.translate(None, _OPENERS_ONLY)) <= limits.JSON_DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", payload).translate(None, _BRACKETS_ONLY)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limits.JSON_DEPTH_MAX


def _check_depth(payloads: Sequence[bytes]) -> None:
    # A too deep payload has more opening brackets than the limit. One translate counts those of all payloads: it keeps
    # opening brackets and the NUL bytes that separate the payloads, as no JSON text contains NUL.
    if _TOO_MANY_OPENERS in b"\0".join(payloads).translate(_ONE_OPENER, _OPENERS_ONLY):
        for row, payload in enumerate(payloads):
            if is_too_deep(bytes(payload)):
                raise _RuleBroken(row, "payload", f"is nested deeper than {limits.JSON_DEPTH_MAX} levels")


# -- texts --------------------------------------------------------------------------------------------------------


def _texts(name: str, values: Sequence[str | None], size_max: int) -> list[bytes]:
    return _bounded(name, [value.encode() if value else b"" for value in values], size_max)


def _bounded(name: str, values: list[bytes], size_max: int) -> list[bytes]:
    if max(map(len, values)) > size_max:
        row = next(row for row, value in enumerate(values) if len(value) > size_max)
        raise _RuleBroken(row, name, f"{len(values[row])} bytes are over the limit of {size_max}")
    return values
