"""Python values and options in, batch frames out. Without I/O.

Everything that can be refused without asking the server is refused here, with the message's own call, so that one bad
message never fails the others that would have travelled in the same frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, TypedDict, TypeVar

import msgspec

from penstock import limits
from penstock.batch import build, layout, offsets_of
from penstock.batch.priorities import priority_columns
from penstock.client.units import Duration, Moment, bounded, invalid, milliseconds, moment, text_bytes
from penstock.errors import TooLarge

T = TypeVar("T")

_encode_json = msgspec.json.Encoder().encode
_BYTES = (bytes, bytearray, memoryview)
ROW_BYTES_MAX = 4 * 8 + 4 + 1 + 5 * 4
"""Upper bound of the cost of a message in a frame besides its own bytes: every fixed column and every offset."""
FRAME_BYTES_TARGET = limits.BATCH_BYTES_MAX - 1 * limits.KIB
"""`frames` fills a frame up to this size; the rest is room for the header and the last offsets."""

assert max(limits.CLIENT_ID_BYTES_MAX, limits.TENANT_BYTES_MAX) <= limits.KEY_BYTES_MAX, (
    "the largest stands for all when sizes are estimated"
)


KEPT_BYTES_MAX = 1 * limits.MIB
"""A client keeps the last frame that it sent until the next one is made, up to this size. Otherwise the allocator gives
its memory back and has to ask for it again, page by page: half of the time it takes to make one."""


class EncodedFrame(NamedTuple):
    data: bytes
    rows: int

    @property
    def kept(self) -> EncodedFrame | None:
        """Itself, if it is worth keeping."""
        return self if len(self.data) <= KEPT_BYTES_MAX else None


class MessageOptions(NamedTuple):
    """Everything but the payload, in the frame's own units; the defaults mean "nothing" there too."""

    priority: int | None = None
    delay_ms: int = 0
    deliver_at_ms: int = 0
    ttl_ms: int = 0
    max_retries: int = -1
    key: bytes = b""
    id: bytes = b""
    headers: bytes = b""
    tenant: bytes = b""

    @property
    def size(self) -> int:
        return len(self.key) + len(self.id) + len(self.headers) + len(self.tenant)


PLAIN = MessageOptions()
_NOTHING = (None,) * 9
_COLUMNS: tuple[int, ...] = (
    layout.PRIORITY, layout.DELAY_MS, layout.DELIVER_AT_MS, layout.TTL_MS, layout.MAX_RETRIES, layout.KEY, layout.ID,
    layout.HEADERS, layout.TENANT,
)  # fmt: skip
"""The column of each field of MessageOptions, in its order."""


class PublishOptions(TypedDict, total=False):
    """Options of a message as users give them; see `Queue.publish`."""

    key: str | None
    delay: Duration | None
    deliver_at: Moment | None
    ttl: Duration | None
    priority: int | None
    id: str | None
    headers: Mapping[str, str] | None
    max_retries: int | None
    tenant: str | None


class Row(NamedTuple):
    """One message of `publish`, ready to share a frame with others."""

    payload: bytes
    kind: int
    options: MessageOptions
    size: int
    """Most that it can add to a frame."""


# -- one message ------------------------------------------------------------------------------------------------


def row(value: Any, options: MessageOptions) -> Row:
    """Raises TypeError for a value that is neither bytes nor JSON, InvalidRequest for NaN and the like, TooLarge for
    one that no queue can take."""
    kind = layout.KIND_BYTES if isinstance(value, _BYTES) else layout.KIND_JSON
    payload = bytes(value) if kind == layout.KIND_BYTES else json_of(value)
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise _too_large(len(payload))
    more = ROW_BYTES_MAX if options is PLAIN else ROW_BYTES_MAX + options.size
    return Row(payload, kind, options, len(payload) + more)


def with_headers(made: Row, headers: Mapping[str, str]) -> Row:
    """The same message with these headers instead."""
    options = made.options._replace(headers=encode_headers(headers))
    return Row(made.payload, made.kind, options, made.size - made.options.size + options.size)


def frame_of_rows(rows: Sequence[Row]) -> EncodedFrame:
    """The rows of several publish calls as one frame."""
    columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
    if any(each.options is not PLAIN for each in rows):
        for column, default, values in zip(
            _COLUMNS, PLAIN, zip(*(each.options for each in rows), strict=True), strict=True
        ):
            if column == layout.PRIORITY:
                columns |= priority_columns(values)
            elif any(value != default for value in values):
                columns[column] = values
    data = build([each.payload for each in rows], kinds=[each.kind for each in rows], columns=columns)
    return EncodedFrame(data, len(rows))


def make_options(
    *, key: str | None = None, delay: Duration | None = None, deliver_at: Moment | None = None,
    ttl: Duration | None = None, priority: int | None = None, id: str | None = None,
    headers: Mapping[str, str] | None = None, max_retries: int | None = None, tenant: str | None = None,
) -> MessageOptions:  # fmt: skip
    """Check and convert a caller's options: seconds to milliseconds, text to bytes. Raises InvalidRequest."""
    given = (key, delay, deliver_at, ttl, priority, id, headers, max_retries, tenant)
    if given == _NOTHING:
        return PLAIN
    if delay is not None and deliver_at is not None:
        raise invalid("deliver_at", "give either delay or deliver_at, not both")
    options = MessageOptions(
        _priority(priority),
        0 if delay is None else milliseconds("delay", delay, limits.DELAY_MS_MAX),
        0 if deliver_at is None else moment("deliver_at", deliver_at),
        0 if ttl is None else milliseconds("ttl", ttl, limits.TTL_MS_MAX, 1),
        -1 if max_retries is None else bounded("max_retries", max_retries, 0, limits.RETRIES_MAX),
        b"" if key is None else text_bytes("key", key, limits.KEY_BYTES_MAX),
        b"" if id is None else text_bytes("id", id, limits.CLIENT_ID_BYTES_MAX),
        b"" if not headers else encode_headers(headers),
        b"" if tenant is None else text_bytes("tenant", tenant, limits.TENANT_BYTES_MAX),
    )
    # The one shared value lets frame_of_rows see at a glance that no column is needed.
    return PLAIN if options == PLAIN else options


# -- many messages ----------------------------------------------------------------------------------------------


def frames(
    values: Iterable[Any], options: MessageOptions = PLAIN, *, keys: Iterable[str | None] | None = None,
    ids: Iterable[str | None] | None = None, priorities: Iterable[int] | None = None,
    tenants: Iterable[str | None] | None = None,
) -> Iterator[EncodedFrame]:  # fmt: skip
    """As few frames as the limits allow, made one at a time while `values` is read.

    `options` hold for every message; `keys`, `ids`, `priorities` and `tenants` give one value per message and must be
    as long as `values`. Nothing is checked or read before the first frame is asked for.
    """
    source = iter(values)
    sides = {
        column: iter(side)
        for column, side in (
            (layout.KEY, keys),
            (layout.ID, ids),
            (layout.PRIORITY, priorities),
            (layout.TENANT, tenants),
        )
        if side is not None
    }
    while chunk := list(islice(source, limits.BATCH_MESSAGES_MAX)):
        payloads, kinds = _payloads(chunk)
        columns = _common_columns(options, len(payloads))
        for column, side in sides.items():
            values = list(islice(side, len(payloads)))
            if len(values) < len(payloads):
                raise invalid(_SIDES[column], "there are fewer of them than values")
            if column == layout.PRIORITY:
                columns |= priority_columns([options.priority if each is None else _priority(each) for each in values])
            else:
                columns[column] = _texts(column, values)
        yield from _cut_by_size(payloads, kinds, columns, options.size + ROW_BYTES_MAX)
    for column, side in sides.items():
        if next(side, sides) is not sides:
            raise invalid(_SIDES[column], "there are more of them than values")


def _payloads(values: list[Any]) -> tuple[list[bytes], list[int] | int]:
    """The payload bytes, and their kind: one for all, or one each if they differ."""
    types = list(map(type, values))
    if types.count(bytes) == len(types):
        return values, layout.KIND_BYTES
    kinds_seen = {issubclass(each, _BYTES) for each in set(types)}
    if kinds_seen == {False}:
        payloads, kinds = _json(values), layout.KIND_JSON
    elif kinds_seen == {True}:
        payloads, kinds = list(map(bytes, values)), layout.KIND_BYTES
    else:
        rows = [row(value, PLAIN) for value in values]
        return [each.payload for each in rows], [each.kind for each in rows]
    return payloads, kinds


def _json(values: Sequence[Any]) -> list[bytes]:
    """Raises InvalidRequest for values that JSON does not have."""
    try:
        texts = list(map(_encode_json, values))
    except UnicodeEncodeError:
        raise invalid("value", "a text in it is not valid Unicode") from None
    # The encoder writes null for numbers that JSON does not have. A payload is never changed silently.
    if b"null" in b"".join(texts) and any(map(_has_other_numbers, values)):
        raise invalid("value", "NaN and infinity are not JSON; publish None, a text, or leave it out")
    return texts


def json_of(value: Any) -> bytes:
    """One value. Raises InvalidRequest if JSON does not have it."""
    return _json([value])[0]


def _has_other_numbers(value: Any) -> bool:
    left = [msgspec.to_builtins(value, builtin_types=(datetime,))]
    while left:
        each = left.pop()
        if isinstance(each, float) and not math.isfinite(each):
            return True
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            left += each
    return False


_Columns = dict[int, Sequence[int] | Sequence[bytes]]
_SIDES = {layout.KEY: "keys", layout.ID: "ids", layout.PRIORITY: "priorities", layout.TENANT: "tenants"}
_TEXTS = {
    layout.KEY: ("key", limits.KEY_BYTES_MAX),
    layout.ID: ("id", limits.CLIENT_ID_BYTES_MAX),
    layout.TENANT: ("tenant", limits.TENANT_BYTES_MAX),
}


def _common_columns(options: MessageOptions, count: int) -> _Columns:
    columns: _Columns = {}
    if options is not PLAIN:
        for column, default, value in zip(_COLUMNS, PLAIN, options, strict=True):
            if value != default:
                columns[column] = [value] * count  # type: ignore[assignment]
    return columns


def _texts(column: int, values: list[Any]) -> list[bytes]:
    name, size_max = _TEXTS[column]
    return [b"" if value is None else text_bytes(name, value, size_max) for value in values]


def _priority(value: int | None) -> int | None:
    return None if value is None else bounded("priority", value, -limits.PRIORITY_MAX - 1, limits.PRIORITY_MAX)


def _cut_by_size(
    payloads: list[bytes], kinds: list[int] | int, columns: _Columns, overhead: int
) -> Iterator[EncodedFrame]:
    count = len(payloads)
    offsets = offsets_of(payloads)
    together = offsets[-1]
    if together > limits.PAYLOAD_BYTES_MAX and (largest := max(map(len, payloads))) > limits.PAYLOAD_BYTES_MAX:
        raise _too_large(largest)
    texts: list[Sequence[Any]] = [columns[column] for column in _TEXTS if column in columns]
    # Almost every chunk fits as it is, however long its texts are; only one that may not is walked.
    if together + (overhead + len(texts) * limits.KEY_BYTES_MAX) * count <= FRAME_BYTES_TARGET:
        yield _frame(payloads, kinds, columns, offsets)
        return
    first = size = 0
    for at, payload in enumerate(payloads):
        more = len(payload) + sum(len(text[at]) for text in texts) + overhead
        if size + more > FRAME_BYTES_TARGET:
            yield _part(payloads, kinds, columns, first, at)
            first, size = at, 0
        size += more
    yield _part(payloads, kinds, columns, first, count)


def _part(payloads: list[bytes], kinds: list[int] | int, columns: _Columns, first: int, stop: int) -> EncodedFrame:
    """A frame of the messages from `first` up to `stop`."""
    columns = {column: values[first:stop] for column, values in columns.items()}
    return _frame(payloads[first:stop], kinds if isinstance(kinds, int) else kinds[first:stop], columns)


def _frame(
    payloads: list[bytes], kinds: list[int] | int, columns: _Columns, offsets: list[int] | None = None
) -> EncodedFrame:
    if isinstance(kinds, int):
        return EncodedFrame(build(payloads, kind=kinds, columns=columns, offsets=offsets), len(payloads))
    return EncodedFrame(build(payloads, kinds=kinds, columns=columns, offsets=offsets), len(payloads))


# -- headers and errors ------------------------------------------------------------------------------------------------


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """As they are in a frame. Raises InvalidRequest."""
    if len(headers) > limits.HEADERS_COUNT_MAX:
        raise invalid("headers", f"{len(headers)} of them are over the limit of {limits.HEADERS_COUNT_MAX}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise invalid("headers", f"names and values are strings, not {name!r}: {value!r}")
    data = _encode_json(dict(headers))
    if len(data) > limits.HEADERS_BYTES_MAX:
        raise invalid("headers", f"{len(data)} bytes are over the limit of {limits.HEADERS_BYTES_MAX}")
    return data


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"a payload of {size} bytes is over the limit of {limits.PAYLOAD_BYTES_MAX}",
        details={"max_payload_bytes": limits.PAYLOAD_BYTES_MAX},
    )
