"""Events: the records of a journal without payloads, as JSON or in bulk.

Format: docs/formats/events.md.

The JSON form has one event per range of messages. The bulk form, for readers of millions of events, has the records as
they are stored; the client decodes them. A *position* `17` is after frame 17 of the journal, `17.3` after record 3 of
frame 17 (its fourth).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock import limits
from penstock.batch import BadBatch, Buffer
from penstock.wire import patterns
from penstock.wire.messages import QueueName, Request

EVENTS_TYPE = "application/vnd.penstock.events"
HEADER = struct.Struct("<2sBBI")
MAGIC = b"PE"
VERSION = 1
RECORD = struct.Struct("<QIII")
"""Frame, number of the record in it, length of the record, length of the description of its batch."""
WHOLE_FRAME = 2**32 - 1

_encode = msgspec.json.Encoder().encode


class Position(NamedTuple):
    """A position after a record of a frame, or after the whole frame if the number is `WHOLE_FRAME`."""

    frame: int
    number: int = WHOLE_FRAME

    def __str__(self) -> str:
        return str(self.frame) if self.number == WHOLE_FRAME else f"{self.frame}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The text must match the pattern of `EventsQuery.after`."""
        frame, _, number = text.partition(".")
        return cls(int(frame), min(int(number), WHOLE_FRAME) if number else WHOLE_FRAME)


class EventsQuery(Request):
    shard: (
        Annotated[
            int,
            Meta(
                ge=0,
                lt=limits.SHARDS_MAX,
                description="The shard whose journal is read. Left out: that of the queue, or 0 without one.",
            ),
        ]
        | None
    ) = None
    after: Annotated[
        str,
        Meta(
            pattern=patterns.EVENT_POSITION,
            description="A position from `next` of a reply, `earliest`, `latest` or `at:<epoch milliseconds>`.",
            examples=["earliest", "17", "17.3"],
        ),
    ] = "earliest"
    until: Annotated[int, Meta(ge=0, le=2**53, description="The last frame to return.")] | None = None
    queue: QueueName | None = None
    max: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.EVENTS_MAX,
            description="Upper bound of events; the reply may exceed it by the events of one record.",
        ),
    ] = 100
    max_bytes: Annotated[
        int, Meta(ge=1, le=limits.EVENTS_BYTES_MAX, description="Approximate size of a bulk reply.")
    ] = limits.EVENTS_BYTES_MAX


class EventRangesQuery(Request):
    """Splits the journal into ranges that clients can read in parallel."""

    shard: Annotated[int, Meta(ge=0, lt=limits.SHARDS_MAX)] | None = None
    after: Annotated[str, Meta(pattern=patterns.PLACE)] = "earliest"
    until: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    each: Annotated[int, Meta(ge=1, le=2**53, description="Approximate number of messages and records in a range.")] = (
        100_000
    )
    max: (
        Annotated[
            int, Meta(ge=1, le=2**53, description="Approximate number of messages and records in all ranges together.")
        ]
        | None
    ) = None
    max_bytes: (
        Annotated[int, Meta(ge=1, le=2**53, description="Bytes of the journal in all ranges together.")] | None
    ) = None


class Missing(msgspec.Struct):
    """Requested frames that the journal has trimmed."""

    first: int
    last: int
    frames: int


class Event(msgspec.Struct, omit_defaults=True):
    """A change of `count` messages from `offset` on, or of the queue if there is no offset."""

    position: str
    kind: str
    at_ms: int
    queue: str | UnsetType = UNSET
    queue_id: int | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    count: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    consumer: str | UnsetType = UNSET
    lease: int | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    due_at_ms: int | UnsetType = UNSET
    deadline_at_ms: int | UnsetType = UNSET
    until_offset: int | UnsetType = UNSET


class Names(msgspec.Struct):
    """The names behind the numbers of a queue and its groups."""

    queue: str
    groups: dict[str, str]
    uuid: str = ""


class EventsMeta(msgspec.Struct):
    """The end position of the reply and the bounds of the journal. `start` and `end` are frames; `after=start` reads
    all frames."""

    shard: int
    next: str
    start: int
    end: int
    missing: Missing | None = None
    names: dict[str, Names] = {}
    broker: str = ""
    """The id of the broker whose journal this is."""


class EventsReply(msgspec.Struct):
    shard: int
    events: list[Event]
    next: Annotated[str, Meta(description="The value of `after` for the next request.")]
    start: Annotated[int, Meta(description="The journal begins after this frame.")]
    end: Annotated[int, Meta(description="The last frame that is durable.")]
    missing: Annotated[Missing | None, Meta(description="Requested frames that the journal has trimmed.")]


class EventRange(msgspec.Struct):
    after: int
    until: int
    rows: int
    bytes: int


class EventRangesReply(msgspec.Struct):
    shard: int
    ranges: list[EventRange]
    next: int
    start: int
    end: int
    missing: Missing | None
    broker: Annotated[str, Meta(description="The id of the broker whose journal this is.")] = ""


class BulkRecord(NamedTuple):
    frame: int
    number: int
    meta: memoryview
    """MessagePack, as in the journal."""
    about: memoryview


def encode_events(meta: EventsMeta, records: Iterable[Buffer]) -> bytes:
    text = _encode(meta)
    return b"".join((HEADER.pack(MAGIC, VERSION, 0, len(text)), text, *records))


def decode_events(body: Buffer) -> tuple[EventsMeta, Iterator[BulkRecord]]:
    """Decode a bulk reply. Raises BadBatch, also during the iteration over the records, if the bytes are malformed."""
    view = memoryview(body)
    if len(view) < HEADER.size:
        raise BadBatch("events start with a header of 8 bytes")
    magic, version, zero, size = HEADER.unpack_from(view)
    if (magic, version, zero) != (MAGIC, VERSION, 0):
        raise BadBatch("these are not events of a known version")
    try:
        meta = msgspec.json.decode(view[HEADER.size : HEADER.size + size], type=EventsMeta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatch(f"the metadata of the events is damaged: {error}") from None
    return meta, _records(view, HEADER.size + size)


def _records(view: memoryview, at: int) -> Iterator[BulkRecord]:
    size = len(view)
    while at < size:
        if at + RECORD.size > size:
            raise BadBatch("the events end inside a record")
        frame, number, length, about = RECORD.unpack_from(view, at)
        middle = at + RECORD.size + length
        at = middle + about
        if at > size:
            raise BadBatch("the events end inside a record")
        yield BulkRecord(frame, number, view[middle - length : middle], view[middle:at])
