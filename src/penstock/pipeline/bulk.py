"""Calls of the pipeline: ranges of the log and of the journal, and the holds that keep them there."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.batch import Batch
from penstock.client.lowlevel import Call, Response, call, operation
from penstock.ids import QueuePath
from penstock.wire.delivery import ReadMeta, decode_delivery
from penstock.wire.events import EVENTS_TYPE, BulkRecord, EventRangesReply, EventsMeta, decode_events
from penstock.wire.holds import ExtentReply, HoldRemovedReply, HoldReply
from penstock.wire.operations import BATCH


def extent(queue: QueuePath, at: str = "earliest") -> Call[ExtentReply]:
    return operation("extent", ExtentReply, queue=queue, at=at)


def read_range(
    queue: QueuePath, partition: int, first: int, stop: int, *, max_bytes: int, uuid: str | None = None
) -> Call[tuple[ReadMeta, list[Batch]]]:
    """Messages `first` to `stop` of a partition, as many as fit; `next_offset` says where to go on.

    With `uuid` the broker refuses the call (Conflict) if the queue is another incarnation.
    """
    return call(
        "read", _read_range, accept=BATCH, queue=queue, partition=partition, offset=first, until=stop,
        max_bytes=max_bytes, uuid=uuid,
    )  # fmt: skip


def _read_range(response: Response) -> tuple[ReadMeta, list[Batch]]:
    return decode_delivery(response.body, ReadMeta, known=True)


def events(after: str, *, until: int, max_bytes: int) -> Call[tuple[EventsMeta, Iterator[BulkRecord]]]:
    """The events after a position, up to the end of frame `until`, as many as fit; `next` says where to go on."""
    return call("events", _read_events, accept=EVENTS_TYPE, after=after, until=until, max_bytes=max_bytes)


def _read_events(response: Response) -> tuple[EventsMeta, Iterator[BulkRecord]]:
    return decode_events(response.body)


def event_ranges(
    after: str | int, *, until: int | None = None, each: int, max: int | None = None, max_bytes: int | None = None
) -> Call[EventRangesReply]:
    return operation(
        "event_ranges", EventRangesReply, after=after, until=until, each=each, max=max, max_bytes=max_bytes
    )


def set_hold(
    name: str, *, events: int | None, queues: dict[str, dict[str, int]], max_bytes: int | None = None,
    uuids: dict[str, str] | None = None,
) -> Call[HoldReply]:  # fmt: skip
    return operation(
        "put_hold", HoldReply, name=name, events=events, queues=queues, max_bytes=max_bytes, uuids=uuids or None
    )


def get_hold(name: str) -> Call[HoldReply]:
    return operation("get_hold", HoldReply, name=name)


def remove_hold(name: str) -> Call[HoldRemovedReply]:
    return operation("delete_hold", HoldRemovedReply, name=name)
