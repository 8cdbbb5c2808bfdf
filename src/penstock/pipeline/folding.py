"""The same work for many messages at once: Spark brings together what belongs to the same messages, in slots.

A slot is a stretch of offsets of one partition. Whatever is to be known about its messages is worked out by one task,
in arrays (`lives.py`); what comes back to the driver is small. Spark moves rows and runs tasks, nothing else: a step
over a few hundred events costs one small job and not a dozen compiled queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.ground import RECORD_BITS, End, Ground
from penstock.pipeline.history import History
from penstock.pipeline.lifetable import LIFETABLE_DDL, lifetable
from penstock.pipeline.lives import unfold

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLOT_OFFSETS = 1 << 16
_SLOT = f"concat_ws('.', queue_id, partition, offset div {SLOT_OFFSETS})"
_ABOUT_QUEUES = (
    "frame", "record", "kind", "at", "queue_id", "queue", "partition", "group", "until_offset", "config",
)  # fmt: skip


class Glance(NamedTuple):
    """What has to be known about a batch of events before it is worked out."""

    about_queues: list[dict[str, Any]]
    """Events that are about queues as such, in the order of the journal."""
    slots: set[str]
    groups: set[tuple[int, str | None, str | None]]
    """(number of the queue, its path, group) of everything that happened."""
    events: int


def glance(events: DataFrame) -> Glance:
    """One look at all events of a batch."""
    seen: list[dict[str, Any]] = []
    slots: set[str] = set()
    groups: set[tuple[int, str | None, str | None]] = set()
    count = 0
    for row in events.mapInArrow(_glance, "told binary").collect():
        told = msgspec.msgpack.decode(row.told)
        count += told[0]
        slots.update(told[1])
        groups.update((queue, path, group) for queue, path, group in told[2])
        seen += told[3]
    seen.sort(key=lambda event: (event["frame"], event["record"], event["partition"] or 0))
    return Glance(seen, slots, groups, count)


def _glance(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        table = table.filter(pc.is_valid(table["queue_id"]))
        about = table.filter(pc.is_null(table["offset"])).select(list(_ABOUT_QUEUES)).to_pylist()
        for event in about:
            event["at_ms"] = round(event.pop("at").timestamp() * 1000)
        rows = table.filter(pc.is_valid(table["offset"]))
        slots = pc.unique(_slots(rows)).to_pylist() if len(rows) else []
        groups = rows.group_by(["queue_id", "queue", "group"]).aggregate([]).to_pylist()
        told = [len(table), slots, [[each["queue_id"], each["queue"], each["group"]] for each in groups], about]
        yield pa.RecordBatch.from_pydict({"told": [msgspec.msgpack.encode(told)]})


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
    """Of rows of a history."""
    from pyspark.sql import functions as F

    return F.expr(_SLOT)


def fold(rows: DataFrame, work: Callable[[str, History], bytes]) -> list[bytes]:
    """What `work` makes of each slot, in tasks; `rows` are those of `message_rows`."""

    def task(table: pa.Table) -> pa.Table:
        return pa.table(
            {"made": [work(table["slot"][0].as_py(), History.of(table))]}, pa.schema([("made", pa.binary())])
        )

    return [row.made for row in rows.groupBy("slot").applyInArrow(task, "made binary").collect()]


def learned(events: DataFrame, ground: Ground) -> tuple[Glance, list[End]]:
    """What these events say about queues; `ground` knows it afterwards."""
    seen = glance(events)
    ends = ground.learn(seen.about_queues)
    for number, path, group in seen.groups:
        ground.meet(number, path, group)
    return seen, ends


def lifecycles(events: DataFrame) -> DataFrame:
    """What became of every message in every group: one row each, from the table `events`.

    The columns are in docs/analytics.md. Messages whose publish is not among the events have no times of it.
    """
    ground = Ground()
    _, ends = learned(events, ground)

    def task(table: pa.Table) -> pa.Table:
        return lifetable(unfold(History.of(table), ground, ends), ground)

    return message_rows(events).groupBy("slot").applyInArrow(task, LIFETABLE_DDL)
