"""Validate a well-formed frame of a client against the limits of the server and of the queue.

All checks run before any state changes: a frame is accepted or refused as a whole, and the error names the first
message and column that break a rule.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock import limits
from penstock.batch import layout
from penstock.batch.codec import BadBatch, Batch
from penstock.errors import InvalidRequest, TooLarge

_INTEGER_BOUNDS: dict[int, tuple[str, int, int]] = {
    layout.PRIORITY: ("priority", -limits.PRIORITY_MAX - 1, limits.PRIORITY_MAX),
    layout.DELAY_MS: ("delay_ms", 0, limits.DELAY_MS_MAX),
    layout.DELIVER_AT_MS: ("deliver_at_ms", 0, limits.TIME_MS_MAX),
    layout.TTL_MS: ("ttl_ms", 0, limits.TTL_MS_MAX),
    layout.MAX_RETRIES: ("max_retries", -1, limits.RETRIES_MAX),
    layout.PAYLOAD_KIND: ("payload_kind", 0, 1),
    layout.HAS_PRIORITY: ("has_priority", 0, 1),
}
_STRING_BOUNDS: dict[int, tuple[str, int]] = {
    layout.KEY: ("key", limits.KEY_BYTES_MAX),
    layout.ID: ("id", limits.CLIENT_ID_BYTES_MAX),
    layout.HEADERS: ("headers", limits.HEADERS_BYTES_MAX),
    layout.TENANT: ("tenant", limits.TENANT_BYTES_MAX),
}
_headers_decoder = msgspec.json.Decoder(dict[str, str])


def check_client_frame(batch: Batch) -> Batch:
    """Check the flags, columns and values of a client's frame; return the batch for chaining."""
    if batch.flags & layout.FLAG_CHECKED:
        raise BadBatch("flag 'checked' belongs to the server; clear bit 2 of the frame's flags")
    unknown = batch.columns & ~layout.KNOWN
    if unknown:
        raise BadBatch(f"column {unknown.bit_length() - 1} is not known to this server")
    if len(batch.frame) > limits.BATCH_BYTES_MAX:
        raise TooLarge(f"a batch of {len(batch.frame)} bytes is over the limit of {limits.BATCH_BYTES_MAX}")
    if batch.columns:
        for column, (name, low, high) in _INTEGER_BOUNDS.items():
            if batch.columns & column:
                values = batch.integers(column)
                if min(values) < low or max(values) > high:
                    row = next(i for i, value in enumerate(values) if not low <= value <= high)
                    raise broken_rule(row, name, f"{values[row]} is outside {low} to {high}")
        for column, (name, size_max) in _STRING_BOUNDS.items():
            if batch.columns & column:
                _check_strings(batch, column, name, size_max)
    return batch


def check_headers(text: bytes) -> None:
    """Decode headers: a JSON object of strings with a bounded number of fields. Raises InvalidRequest."""
    try:
        headers = _headers_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(
            f"headers must be a JSON object of strings: {error}", details={"field": "headers"}
        ) from None
    if len(headers) > limits.HEADERS_COUNT_MAX:
        raise InvalidRequest(
            f"{len(headers)} headers are over the limit of {limits.HEADERS_COUNT_MAX}", details={"field": "headers"}
        )


def check_payload_sizes(batch: Batch, size_max: int) -> None:
    # Fast path: the sum of all payloads is usually below the limit of one.
    if batch.payload_bytes() > size_max and batch.payload_bytes_max() > size_max:
        offsets = batch.payload_offsets.tolist()
        row = next(i for i in range(batch.count) if offsets[i + 1] - offsets[i] > size_max)
        raise TooLarge(
            f"message {row} has {offsets[row + 1] - offsets[row]} payload bytes, the queue allows {size_max}",
            details={"row": row, "max_payload_bytes": size_max},
        )


def check_delivery_times(batch: Batch, now_ms: int) -> None:
    """Raises InvalidRequest for the first message with a delivery time long past. The column must be present.

    A time in the recent past means now: the client's clock differs, or the publish is a retry. A time long past is an
    error of the client.
    """
    for row, moment in enumerate(batch.integers(layout.DELIVER_AT_MS)):
        if moment and is_long_past(moment, now_ms):
            raise broken_rule(row, "deliver_at_ms", long_past(moment, now_ms))


def is_long_past(moment_ms: int, now_ms: int) -> bool:
    return moment_ms < now_ms - limits.DELIVER_AT_PAST_MS_MAX


def long_past(moment_ms: int, now_ms: int) -> str:
    return f"{moment_ms} is more than ten years ago; now is {now_ms}, in milliseconds since 1970"


def _check_strings(batch: Batch, column: int, name: str, size_max: int) -> None:
    check: Callable[[bytes], object] = check_headers if column == layout.HEADERS else bytes.decode
    for row, value in enumerate(batch.strings(column)):
        if len(value) > size_max:
            raise broken_rule(row, name, f"{len(value)} bytes are over the limit of {size_max}")
        if value:
            try:
                check(value)
            except UnicodeDecodeError:
                raise broken_rule(row, name, "is not UTF-8") from None
            except InvalidRequest as error:
                raise broken_rule(row, name, error.message) from None


def broken_rule(row: int, name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"message {row}, {name}: {reason}", details={"row": row, "field": name})
