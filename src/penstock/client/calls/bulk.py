"""Calls of the pipeline: ranges of the log and of the journal, and the holds that keep them there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.batch import Batch
from penstock.client.calls.call import BATCH, Call, Response, encode, target
from penstock.ids import QueuePath
from penstock.wire.delivery import ReadMeta, decode_delivery
from penstock.wire.events import EVENTS_TYPE, BulkRecord, EventRangesReply, EventsMeta, decode_events
from penstock.wire.holds import ExtentReply, HoldRemovedReply, HoldReply

_decode_extent = msgspec.json.Decoder(ExtentReply).decode
_decode_ranges = msgspec.json.Decoder(EventRangesReply).decode
_decode_hold = msgspec.json.Decoder(HoldReply).decode
_decode_removed = msgspec.json.Decoder(HoldRemovedReply).decode


def extent(queue: QueuePath, at: str = "earliest") -> Call[ExtentReply]:
    return Call("GET", target("/v1/extent", queue=queue, at=at), lambda response: _decode_extent(response.body))


def read_range(
    queue: QueuePath, partition: int, first: int, stop: int, *, max_bytes: int, uuid: str | None = None
) -> Call[tuple[ReadMeta, list[Batch]]]:
    """Messages `first` to `stop` of a partition, as many as fit; `next_offset` says where to go on.

    With `uuid` the broker refuses the call (Conflict) if the queue is another incarnation.
    """
    where = target(
        "/v1/read", queue=queue, partition=partition, offset=first, until=stop, max_bytes=max_bytes, uuid=uuid
    )  # fmt: skip
    return Call("GET", where, _read_range, accept=BATCH)


def _read_range(response: Response) -> tuple[ReadMeta, list[Batch]]:
    return decode_delivery(response.body, ReadMeta, known=True)


def events(after: str, *, until: int, max_bytes: int) -> Call[tuple[EventsMeta, Iterator[BulkRecord]]]:
    """What follows a position, up to the end of frame `until`, as much as fits; `next` says where to go on."""
    where = target("/v1/events", after=after, until=until, max_bytes=max_bytes)
    return Call("GET", where, lambda response: decode_events(response.body), accept=EVENTS_TYPE)


def event_ranges(
    after: str | int, *, until: int | None = None, each: int, max: int | None = None, max_bytes: int | None = None
) -> Call[EventRangesReply]:
    where = target("/v1/events/ranges", after=after, until=until, each=each, max=max, max_bytes=max_bytes)
    return Call("GET", where, lambda response: _decode_ranges(response.body))


def set_hold(
    name: str,
    *,
    events: int | None,
    queues: dict[str, dict[str, int]],
    max_bytes: int | None = None,
    uuids: dict[str, str] | None = None,
) -> Call[HoldReply]:
    body: dict[str, Any] = {"events": events, "queues": queues}
    if uuids:
        body["uuids"] = uuids
    if max_bytes is not None:
        body["max_bytes"] = max_bytes
    return Call("PUT", f"/v1/holds/{name}", lambda response: _decode_hold(response.body), encode(body))


def get_hold(name: str) -> Call[HoldReply]:
    return Call("GET", f"/v1/holds/{name}", lambda response: _decode_hold(response.body))


def remove_hold(name: str) -> Call[HoldRemovedReply]:
    return Call("DELETE", f"/v1/holds/{name}", lambda response: _decode_removed(response.body))
