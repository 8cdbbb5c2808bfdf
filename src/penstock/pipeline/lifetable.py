"""The lives of messages as a table for people: one row for each message in each group. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.pipeline.ground import Ground
from penstock.pipeline.history import KIND, NONE, Flags, Integers, Words
from penstock.pipeline.lives import FATES, PHASE, Lives

LIFETABLE_DDL = (
    "queue string, partition int, offset bigint, id string, `group` string, fate string, published_at timestamp, "
    "due_at timestamp, first_delivered_at timestamp, deliveries int, consumer string, ended_at timestamp, "
    "error string, wait_ms bigint, processing_ms bigint, end_to_end_ms bigint"
)
_TIME = pa.timestamp("us", "UTC")
LIFETABLE = pa.schema(
    [("queue", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("id", pa.string()),
     ("group", pa.string()), ("fate", pa.string()), ("published_at", _TIME), ("due_at", _TIME),
     ("first_delivered_at", _TIME), ("deliveries", pa.int32()), ("consumer", pa.string()), ("ended_at", _TIME),
     ("error", pa.string()), ("wait_ms", pa.int64()), ("processing_ms", pa.int64()), ("end_to_end_ms", pa.int64())]
)  # fmt: skip


def lifetable(lives: Lives, ground: Ground) -> pa.Table:
    """Of messages that no group reads, the one row has no group."""
    history, at_ms = lives.history, lives.at_ms
    grouped = np.zeros(int(lives.message.max()) + 1 if len(lives) else 0, dtype=bool)
    grouped[lives.message[lives.group != NONE]] = True
    chosen = np.flatnonzero((lives.group[lives.cells] != NONE) | ~grouped[lives.message[lives.cells]])
    cells = lives.cells[chosen]
    rows = lives.row[cells]
    fate = lives.fates()[chosen]

    def newest(condition: Flags) -> Integers:
        """Of each cell, the last entry for which this holds."""
        found = np.full(len(lives.cells), NONE)
        entries = np.flatnonzero(condition)
        found[lives.cell[entries]] = entries
        return found[chosen]

    def oldest(condition: Flags) -> Integers:
        found = np.full(len(lives.cells), NONE)
        entries = np.flatnonzero(condition)[::-1]
        found[lives.cell[entries]] = entries
        return found[chosen]

    def ms(entries: Integers, values: Integers = at_ms) -> Integers:
        return np.where(entries == NONE, NONE, values[entries]) if len(values) else entries

    leased = lives.kind == KIND["leased"]
    published, first, last = newest(lives.kind == KIND["published"]), oldest(leased), newest(leased)
    ended = newest(lives.counts | np.isin(lives.becomes, [PHASE["acked"], PHASE["dead"], PHASE["removed"]]))
    is_over = ~np.isin(fate, [PHASE["pending"], PHASE["leased"]])
    ended = np.where(is_over, ended, NONE)
    failed = newest(
        np.isin(lives.kind, [KIND["retried"], KIND["dead_lettered"]]) & (history.error.codes[lives.row] != NONE)
    )
    acked = (fate == PHASE["acked"]) & (ended != NONE)
    due = ms(published, lives.due_ms)
    begun = np.maximum(ms(published), due)
    settled = acked & (last != NONE)
    paths = {number: queue.path for number, queue in ground.queues.items()}
    columns = {
        "queue": pa.array([paths.get(number, f"#{number}") for number in history.queue_id[rows].tolist()], pa.string()),
        "partition": pa.array(history.partition[rows]).cast(pa.int32()),
        "offset": pa.array(history.offset[rows]),
        "id": _texts(history.id, np.where(published == NONE, rows, lives.row[published])),
        "group": pa.array([None if code == NONE else lives.groups[code] for code in lives.group[cells]], pa.string()),
        "fate": pa.array([None if code == NONE else FATES[code] for code in fate], pa.string()),
        "published_at": _moments(ms(published)),
        "due_at": _moments(due),
        "first_delivered_at": _moments(ms(first)),
        "deliveries": pa.array(np.bincount(lives.cell[leased], minlength=len(lives.cells))[chosen]).cast(pa.int32()),
        "consumer": _texts(history.consumer, np.where(last == NONE, NONE, lives.row[last])),
        "ended_at": _moments(ms(ended)),
        "error": _texts(history.error, np.where(failed == NONE, NONE, lives.row[failed])),
        "wait_ms": _numbers(np.maximum(ms(first) - begun, 0), (first != NONE) & (published != NONE)),
        "processing_ms": _numbers(ms(ended) - ms(last), settled),
        "end_to_end_ms": _numbers(ms(ended) - ms(published), acked & (published != NONE) & ~lives.is_late[cells]),
    }
    return pa.table([columns[field.name] for field in LIFETABLE], schema=LIFETABLE)


def _moments(ms: Integers) -> pa.Array:
    return pa.array(ms * 1000, mask=ms == NONE).cast(pa.timestamp("us")).cast(_TIME)


def _numbers(values: Integers, known: Flags) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~known)


def _texts(words: Words, rows: Integers) -> pa.Array:
    codes = np.where(rows == NONE, NONE, words.codes[rows]) if len(words.codes) else rows
    return pa.array(words.words, pa.string()).take(pa.array(codes, mask=codes == NONE))
