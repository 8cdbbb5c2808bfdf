"""From a JSON publish to batch frames: the friendly door builds the same frame that a fast client sends.

The work goes by column, not by message: one pass per field, and nothing more for a field that nobody used. Payloads
are never decoded; they travel as the bytes that came in, from the request's body straight into the frame.
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


class Publish(NamedTuple):
    """A publish as it was asked for. Of a publish that is not atomic a message may be the error it met instead."""

    queue: str | None
    atomic: bool
    producer: Producer | None
    messages: Sequence[PublishMessage | PenstockError]


class PlainPublish(NamedTuple):
    """An atomic publish of payloads and nothing else, which most are: no column but the payload to look at."""

    queue: str
    producer: Producer | None
    payloads: Sequence[msgspec.Raw]


def parse_publish(body: bytes) -> Publish | PlainPublish:
    """Raises InvalidRequest for the whole of an atomic publish; otherwise a bad message stands for itself."""
    try:
        plain = parse_json(_plain_decoder, body)
        if plain.atomic:
            return PlainPublish(plain.queue, plain.producer, [message.payload for message in plain.messages])
    except InvalidRequest:
        pass  # given up at the first field that is not a payload: this look costs next to nothing
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


def rows_by_queue(
    default: str | None, messages: Sequence[PublishMessage], *, in_order: bool
) -> list[tuple[QueuePath, list[int] | None]]:
    """Which messages go to which queue; rows are None when all go to one.

    `in_order` keeps the order of the messages over all parts, even if a queue then comes more than once: the numbers
    that a producer gave its messages count up in that order.
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
    """Where this message goes; its own queue wins over that of the whole publish."""
    name = default if message.queue is None else message.queue
    if name is None:
        raise InvalidRequest("name a queue, for the whole publish or for each message", details={"field": "queue"})
    return parse_queue(name)


def plain_batch(publish: PlainPublish) -> Batch:
    """One frame of these payloads; raises as `batch_of` does."""
    payloads = cast("Sequence[bytes]", publish.payloads)
    try:
        _check_sizes_and_depth(payloads)
        return Batch.open(build(payloads, checked=True), known=True)
    except _RuleBroken as broken:
        raise broken.for_caller(0) from None
    except BadBatch as error:
        raise TooLarge(error.message) from None


def batch_of(messages: Sequence[PublishMessage], *, first_row: int = 0) -> Batch:
    """One frame of these messages; raises InvalidRequest or TooLarge with the row of the first that breaks a rule.

    `first_row` is the place of the first of them in the request, for those errors.
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
    """One message breaks one rule; its row is counted from the first message of the batch at hand."""

    def __init__(self, row: int, field: str, reason: str, kind: type[PenstockError] = InvalidRequest):
        super().__init__(row, field, reason, kind)
        self.row, self.field, self.reason, self.kind = row, field, reason, kind

    def for_caller(self, first_row: int) -> PenstockError:
        row = first_row + self.row
        return self.kind(f"message {row}, {self.field}: {self.reason}", details={"row": row, "field": self.field})


def _columns(messages: Sequence[PublishMessage]) -> dict[int, Sequence[int] | Sequence[bytes]]:
    """The columns that at least one of the messages uses."""
    columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
    if any(priorities := [m.priority for m in messages]):
        columns[layout.PRIORITY] = priorities
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
    # Raw is a buffer with a length, which is all that a frame asks of a payload: no copy before the frame itself.
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
"""What is nested deeper than the limit has more bytes than this: each level opens and closes."""
_OPENERS_ONLY = bytes(set(range(256)) - set(b"[{\0"))
_ONE_OPENER = bytes.maketrans(b"{", b"[")
_TOO_MANY_OPENERS = b"[" * (limits.JSON_DEPTH_MAX + 1)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_BRACKETS_ONLY = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def is_json(payload: bytes) -> bool:
    """True if these bytes are what a publish would take for JSON."""
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
    # A payload that is too deep has more than the limit of opening brackets, wherever they stand. That is asked of
    # all payloads at once: NUL is in no JSON text, so it parts them, and of the rest only opening brackets stay.
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
