"""The lifecycles of messages as a table: one row for each message in each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.pipeline.history import KIND, NONE, Flags, History, Integers, Words
from penstock.pipeline.queue_catalog import QueueCatalog
from penstock.pipeline.slots import message_rows, update_catalog
from penstock.pipeline.timelines import FATES, PHASE, Timelines, build_timelines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIFECYCLE_DDL = (
    "queue string, partition int, offset bigint, id string, `group` string, fate string, published_at timestamp, "
    "due_at timestamp, first_delivered_at timestamp, deliveries int, consumer string, ended_at timestamp, "
    "error string, wait_ms bigint, processing_ms bigint, end_to_end_ms bigint"
)
_TIME = pa.timestamp("us", "UTC")
LIFECYCLE_SCHEMA = pa.schema(
    [("queue", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("id", pa.string()),
     ("group", pa.string()), ("fate", pa.string()), ("published_at", _TIME), ("due_at", _TIME),
     ("first_delivered_at", _TIME), ("deliveries", pa.int32()), ("consumer", pa.string()), ("ended_at", _TIME),
     ("error", pa.string()), ("wait_ms", pa.int64()), ("processing_ms", pa.int64()), ("end_to_end_ms", pa.int64())]
)  # fmt: skip


def lifecycles(events: DataFrame) -> DataFrame:
    """The outcome of every message in every group: one row each, from the table `events`.

    The columns are in docs/analytics.md. Messages without a `published` event have no times of it.
    """
    catalog = QueueCatalog()
    _, ends = update_catalog(events, catalog)

    def task(table: pa.Table) -> pa.Table:
        return lifecycle_table(build_timelines(History.of(table), catalog, ends), catalog)

    return message_rows(events).groupBy("slot").applyInArrow(task, LIFECYCLE_DDL)


def lifecycle_table(timelines: Timelines, catalog: QueueCatalog) -> pa.Table:
    """A message that no group reads has one row, with group null."""
    history, at_ms = timelines.history, timelines.at_ms
    grouped = np.zeros(int(timelines.message.max()) + 1 if len(timelines) else 0, dtype=bool)
    grouped[timelines.message[timelines.group != NONE]] = True
    chosen = np.flatnonzero((timelines.group[timelines.cells] != NONE) | ~grouped[timelines.message[timelines.cells]])
    cells = timelines.cells[chosen]
    rows = timelines.row[cells]
    fate = timelines.fates()[chosen]

    def newest(condition: Flags) -> Integers:
        """Of each cell, the last entry that satisfies the condition."""
        found = np.full(len(timelines.cells), NONE)
        entries = np.flatnonzero(condition)
        found[timelines.cell[entries]] = entries
        return found[chosen]

    def oldest(condition: Flags) -> Integers:
        found = np.full(len(timelines.cells), NONE)
        entries = np.flatnonzero(condition)[::-1]
        found[timelines.cell[entries]] = entries
        return found[chosen]

    def ms(entries: Integers, values: Integers = at_ms) -> Integers:
        return np.where(entries == NONE, NONE, values[entries]) if len(values) else entries

    leased = timelines.kind == KIND["leased"]
    published, first, last = newest(timelines.kind == KIND["published"]), oldest(leased), newest(leased)
    ended = newest(timelines.counts | np.isin(timelines.becomes, [PHASE["acked"], PHASE["dead"], PHASE["removed"]]))
    is_over = ~np.isin(fate, [PHASE["pending"], PHASE["leased"]])
    ended = np.where(is_over, ended, NONE)
    failed = newest(
        np.isin(timelines.kind, [KIND["retried"], KIND["dead_lettered"]]) & (history.error.codes[timelines.row] != NONE)
    )
    acked = (fate == PHASE["acked"]) & (ended != NONE)
    due = ms(published, timelines.due_ms)
    begun = np.maximum(ms(published), due)
    settled = acked & (last != NONE)
    paths = {number: queue.path for number, queue in catalog.queues.items()}
    columns = {
        "queue": pa.array([paths.get(number, f"#{number}") for number in history.queue_id[rows].tolist()], pa.string()),
        "partition": pa.array(history.partition[rows]).cast(pa.int32()),
        "offset": pa.array(history.offset[rows]),
        "id": _texts(history.id, np.where(published == NONE, rows, timelines.row[published])),
        "group": pa.array(
            [None if code == NONE else timelines.groups[code] for code in timelines.group[cells]], pa.string()
        ),
        "fate": pa.array([None if code == NONE else FATES[code] for code in fate], pa.string()),
        "published_at": _moments(ms(published)),
        "due_at": _moments(due),
        "first_delivered_at": _moments(ms(first)),
        "deliveries": pa.array(np.bincount(timelines.cell[leased], minlength=len(timelines.cells))[chosen]).cast(
            pa.int32()
        ),
        "consumer": _texts(history.consumer, np.where(last == NONE, NONE, timelines.row[last])),
        "ended_at": _moments(ms(ended)),
        "error": _texts(history.error, np.where(failed == NONE, NONE, timelines.row[failed])),
        "wait_ms": _numbers(np.maximum(ms(first) - begun, 0), (first != NONE) & (published != NONE)),
        "processing_ms": _numbers(ms(ended) - ms(last), settled),
        "end_to_end_ms": _numbers(ms(ended) - ms(published), acked & (published != NONE) & ~timelines.is_late[cells]),
    }
    return pa.table([columns[field.name] for field in LIFECYCLE_SCHEMA], schema=LIFECYCLE_SCHEMA)


def _moments(ms: Integers) -> pa.Array:
    return pa.array(ms * 1000, mask=ms == NONE).cast(pa.timestamp("us")).cast(_TIME)


def _numbers(values: Integers, known: Flags) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~known)


def _texts(words: Words, rows: Integers) -> pa.Array:
    codes = np.where(rows == NONE, NONE, words.codes[rows]) if len(words.codes) else rows
    return pa.array(words.words, pa.string()).take(pa.array(codes, mask=codes == NONE))
