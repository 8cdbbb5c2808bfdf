"""Spark tasks over slots: a slot is a range of offsets of one partition, with all events of its messages.

One task computes a slot in arrays (`timelines.py`), and returns a small result to the driver. Spark only groups rows
and runs tasks: a batch of a few hundred events costs one small job instead of a dozen compiled queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.history import History
from penstock.pipeline.lake.spans import RECORD_BITS
from penstock.pipeline.queue_catalog import QueueCatalog, RangeEnd

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLOT_OFFSETS = 1 << 16
_SLOT = f"concat_ws('.', queue_id, partition, offset div {SLOT_OFFSETS})"
_ABOUT_QUEUES = (
    "frame", "record", "kind", "at", "queue_id", "queue", "partition", "group", "until_offset", "config",
)  # fmt: skip


class EventSummary(NamedTuple):
    """The queues, slots and groups of a batch of events."""

    about_queues: list[dict[str, Any]]
    """Events that concern a queue and not a message, in the order of the journal."""
    slots: set[str]
    groups: set[tuple[int, str | None, str | None]]
    """(number of the queue, its path, group) of all events."""
    events: int


def summarize(events: DataFrame) -> EventSummary:
    """One pass over all events of a batch."""
    seen: list[dict[str, Any]] = []
    slots: set[str] = set()
    groups: set[tuple[int, str | None, str | None]] = set()
    count = 0
    for row in events.mapInArrow(_summarize, "summary binary").collect():
        part_count, part_slots, part_groups, part_events = msgspec.msgpack.decode(row.summary)
        count += part_count
        slots.update(part_slots)
        groups.update((queue, path, group) for queue, path, group in part_groups)
        seen += part_events
    seen.sort(key=lambda event: (event["frame"], event["record"], event["partition"] or 0))
    return EventSummary(seen, slots, groups, count)


def _summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        table = table.filter(pc.is_valid(table["queue_id"]))
        about = table.filter(pc.is_null(table["offset"])).select(list(_ABOUT_QUEUES)).to_pylist()
        for event in about:
            event["at_ms"] = round(event.pop("at").timestamp() * 1000)
        rows = table.filter(pc.is_valid(table["offset"]))
        slots = pc.unique(_slots(rows)).to_pylist() if len(rows) else []
        groups = rows.group_by(["queue_id", "queue", "group"]).aggregate([]).to_pylist()
        summary = [len(table), slots, [[each["queue_id"], each["queue"], each["group"]] for each in groups], about]
        yield pa.RecordBatch.from_pydict({"summary": [msgspec.msgpack.encode(summary)]})


def _slots(rows: pa.Table) -> pa.Array:
    number = pc.divide(rows["offset"].cast(pa.int64()), SLOT_OFFSETS)
    parts = (rows["queue_id"], rows["partition"], number)
    return pc.binary_join_element_wise(*(part.cast(pa.string()) for part in parts), ".")


def message_rows(events: DataFrame) -> DataFrame:
    """The events of messages as rows of a history, with the slot each belongs to."""
    return events.where("offset is not null and queue_id is not null").selectExpr(
        "queue_id", "partition", "offset", f"shiftleft(frame, {RECORD_BITS}) + record as place", "kind",
        "unix_millis(at) as at_ms", "id", "`group`", "consumer", "lease", "reason", "error",
        "unix_millis(due_at) as due_ms", "kept", f"{_SLOT} as slot",
    )  # fmt: skip


def slot_of() -> Column:
    """The slot of a row of a history."""
    from pyspark.sql import functions as F

    return F.expr(_SLOT)


def map_slots(rows: DataFrame, work: Callable[[str, History], bytes]) -> list[bytes]:
    """The results of `work`, which runs in tasks, for each slot; `rows` are those of `message_rows`."""

    def task(table: pa.Table) -> pa.Table:
        return pa.table(
            {"made": [work(table["slot"][0].as_py(), History.of(table))]}, pa.schema([("made", pa.binary())])
        )

    return [row.made for row in rows.groupBy("slot").applyInArrow(task, "made binary").collect()]


def update_catalog(events: DataFrame, catalog: QueueCatalog) -> tuple[EventSummary, list[RangeEnd]]:
    """Apply the events about queues to `catalog`; returns the summary of the events, and the ranges that they end."""
    seen = summarize(events)
    ends = catalog.apply(seen.about_queues)
    for number, path, group in seen.groups:
        catalog.ensure(number, path, group)
    return seen, ends
