"""Records of the journal as Arrow: one row per message of a record.

A record is decoded once and makes one entry for each of its ranges; Arrow repeats entries into rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch import layout
from penstock.pipeline.columns import fixed
from penstock.pipeline.ulids import ulid_column
from penstock.wire.events import BulkRecord, Names


class RecordFields(msgspec.Struct, gc=False):
    """The fields of all kinds of records (docs/formats/journal.md). Absent fields have their defaults."""

    type: str
    at: int
    queue: int = 0
    partition: int | None = None
    group: int | None = None
    offset: int = 0
    id: bytes = b""
    producer: str = ""
    lease: int | None = None
    lease_ms: int = 0
    settled: bool = False
    consumer: str = ""
    runs: list[int] = []
    ranges: list[int] = []
    due: int | None = None
    reason: str | None = None
    error: str = ""
    redrive: str = ""
    ends: list[int] = []
    start: int | None = None
    starts: list[int] = []
    kept: bool = True
    config: dict[str, Any] | None = None
    name: str = ""


_decode = msgspec.msgpack.Decoder(RecordFields).decode
_KINDS = {"queue": "queue_configured", "group": "group_created", "queue_purged": "purged"}
"""Record type -> event kind, where they differ; the same as in `/v1/events`."""


class Entry(NamedTuple):
    """A range of messages with the same event; `first` is None if the event concerns a queue."""

    record: BulkRecord
    fields: RecordFields
    partition: int | None
    first: int | None
    rows: int
    attempt: int | None = None
    until: int | None = None


def rows_of(records: Iterable[BulkRecord], names: Mapping[str, Names], schema: pa.Schema) -> pa.RecordBatch | None:
    """A row for every message of every record; None if there are no records."""
    entries = [entry for record in records for entry in _entries(record)]
    if not entries:
        return None
    table = _Rows(entries, names)
    return pa.RecordBatch.from_arrays([_COLUMNS[field.name](table, field.type) for field in schema], schema=schema)


def _entries(record: BulkRecord) -> Iterable[Entry]:
    fields = _decode(record.meta)
    if record.about:
        count = int(layout.HEADER.unpack_from(record.about)[3])
        return [Entry(record, fields, fields.partition, fields.offset, count)]
    if fields.runs:
        runs = fields.runs
        return [
            Entry(record, fields, fields.partition, first, count, attempt)
            for first, count, attempt in zip(runs[::3], runs[1::3], runs[2::3], strict=True)
        ]
    if fields.ranges:
        partition = fields.partition
        if partition is None and fields.queue:
            partition = 0  # the default of an absent field
        return [
            Entry(record, fields, partition, first, stop - first)
            for first, stop in zip(fields.ranges[::2], fields.ranges[1::2], strict=True)
        ]
    if fields.type == "queue_purged":
        return [Entry(record, fields, number, None, 1, None, end) for number, end in enumerate(fields.ends)]
    if fields.type == "group":
        return [Entry(record, fields, number, None, 1, None, start) for number, start in enumerate(fields.starts)]
    return [Entry(record, fields, fields.partition, None, 1, None, fields.start)]


class _Rows:
    def __init__(self, entries: list[Entry], names: Mapping[str, Names]):
        self.entries = entries
        self.names = names
        self.counts = np.array([entry.rows for entry in entries], dtype=np.int64)
        self.total = int(self.counts.sum())
        self.place = np.repeat(np.arange(len(entries)), self.counts)
        """Row -> the index of its entry."""
        self.within = np.arange(self.total) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)

    def each(self, kind: pa.DataType, value: Callable[[Entry], Any]) -> pa.Array:
        """The same value for all rows of an entry."""
        values = pa.array([value(entry) for entry in self.entries], kind)
        return values if self.total == len(self.entries) else values.take(pa.array(self.place))

    def times(self, kind: pa.DataType, value: Callable[[Entry], int | None]) -> pa.Array:
        """`each` for times in milliseconds."""
        given = self.each(pa.int64(), value)
        scaled = pc.multiply(given, 1000)
        return scaled.cast(pa.timestamp("us")).cast(kind) if scaled.type != kind else scaled

    def path(self, entry: Entry) -> str | None:
        known = self.names.get(str(entry.fields.queue))
        return None if known is None else known.queue

    def uuid(self, entry: Entry) -> str | None:
        known = self.names.get(str(entry.fields.queue))
        return None if known is None else known.uuid or None

    def group(self, entry: Entry) -> str | None:
        if entry.fields.type == "group":
            return entry.fields.name
        group = entry.fields.group
        if group is None and entry.fields.type == "extended" and entry.fields.queue:
            group = 0
        known = self.names.get(str(entry.fields.queue))
        return None if group is None or known is None else known.groups.get(str(group), f"#{group}")


def _offset(rows: _Rows, kind: pa.DataType) -> pa.Array:
    firsts = np.array([-1 if entry.first is None else entry.first for entry in rows.entries], dtype=np.int64)
    starts = firsts[rows.place]
    known = starts >= 0
    values = fixed(starts + rows.within, kind)
    return values if known.all() else pc.if_else(pa.array(known), values, pa.scalar(None, kind))


def _id(rows: _Rows, kind: pa.DataType) -> pa.Array:
    published = [number for number, entry in enumerate(rows.entries) if entry.record.about]
    if not published:
        return pa.nulls(rows.total, kind)
    firsts = [int.from_bytes(rows.entries[number].fields.id, "big") for number in published]
    ids = ulid_column(firsts, rows.counts[published])
    if len(ids) == rows.total:
        return ids
    is_published = np.zeros(len(rows.entries), dtype=bool)
    is_published[published] = True
    return _scattered(ids, is_published[rows.place])


def _due_at(rows: _Rows, kind: pa.DataType) -> pa.Array:
    """One time for all messages of a retry; for a publish, the time that each message asked for, if that is later."""
    parts = []
    for entry in rows.entries:
        if entry.record.about:
            parts.append(_asked_for(entry))
        else:
            parts.append(np.full(entry.rows, -1 if entry.fields.due is None else entry.fields.due, dtype=np.int64))
    due = np.concatenate(parts)
    known = due >= 0
    values = fixed(due * 1000, kind)
    return values if known.all() else pc.if_else(pa.array(known), values, pa.scalar(None, kind))


def _asked_for(entry: Entry) -> Any:
    columns = layout.HEADER.unpack_from(entry.record.about)[4]
    due = np.full(entry.rows, -1, dtype=np.int64)
    at = layout.HEADER.size
    for column, base in ((layout.DELAY_MS, entry.fields.at), (layout.DELIVER_AT_MS, 0)):
        if columns & column:
            values = np.frombuffer(entry.record.about, dtype=np.int64, count=entry.rows, offset=at)
            due = np.maximum(due, values + base)
            at += 8 * entry.rows
    return np.where(due > entry.fields.at, due, -1)


def _scattered(values: pa.Array, where: Any) -> pa.Array:
    """The values at the rows where `where` holds, in order; null elsewhere."""
    index = np.cumsum(where) - 1
    return values.take(pa.array(index, mask=~where))


def _deadline(entry: Entry) -> int | None:
    fields = entry.fields
    return fields.at + fields.lease_ms if fields.lease_ms and not fields.settled else None


def _reason(entry: Entry) -> str | None:
    return "at_most_once" if entry.fields.settled else entry.fields.reason


def _kept(entry: Entry) -> bool | None:
    return entry.fields.kept if entry.fields.type == "dead_lettered" else None


def _config(entry: Entry) -> str | None:
    config = entry.fields.config
    return None if config is None else msgspec.json.encode(config).decode()


_COLUMNS: dict[str, Callable[[_Rows, pa.DataType], pa.Array]] = {
    "shard": lambda rows, kind: fixed(np.zeros(rows.total, dtype=np.int32), kind),
    "frame": lambda rows, kind: rows.each(kind, lambda entry: entry.record.frame),
    "record": lambda rows, kind: rows.each(kind, lambda entry: entry.record.number),
    "kind": lambda rows, kind: rows.each(kind, lambda entry: _KINDS.get(entry.fields.type, entry.fields.type)),
    "at": lambda rows, kind: rows.times(kind, lambda entry: entry.fields.at),
    "queue": lambda rows, kind: rows.each(kind, rows.path),
    "queue_id": lambda rows, kind: rows.each(kind, lambda entry: entry.fields.queue or None),
    "partition": lambda rows, kind: rows.each(kind, lambda entry: entry.partition),
    "offset": _offset,
    "id": _id,
    "group": lambda rows, kind: rows.each(kind, rows.group),
    "consumer": lambda rows, kind: rows.each(kind, lambda entry: entry.fields.consumer or None),
    "lease": lambda rows, kind: rows.each(kind, lambda entry: entry.fields.lease),
    "attempt": lambda rows, kind: rows.each(kind, lambda entry: entry.attempt),
    "reason": lambda rows, kind: rows.each(kind, _reason),
    "error": lambda rows, kind: rows.each(kind, lambda entry: entry.fields.error or None),
    "due_at": _due_at,
    "deadline_at": lambda rows, kind: rows.times(kind, _deadline),
    "until_offset": lambda rows, kind: rows.each(kind, lambda entry: entry.until),
    "producer": lambda rows, kind: rows.each(kind, lambda entry: entry.fields.producer or None),
    "redrive": lambda rows, kind: rows.each(kind, lambda entry: entry.fields.redrive or None),
    "kept": lambda rows, kind: rows.each(kind, _kept),
    "config": lambda rows, kind: rows.each(kind, _config),
    "queue_uuid": lambda rows, kind: rows.each(kind, rows.uuid),
}
