"""The tables of the analytics, as Delta tables below `analytics/` in a lake.

Counts are only ever added: a row of `minutes`, `consumers` or `failures` has the counts of one batch for one minute. A
minute that two batches cover has two rows, which add up. A batch commits to each table under its number, so a batch
that is done again changes nothing. docs/analytics.md has the columns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from penstock.analytics.directory import lake_directory

APP = "penstock-analytics"
"""The application id of the transactions that number the batches."""
SKETCH = pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))
COUNTS = (
    "published", "delivered", "redelivered", "acked", "retried", "lease_expired", "released", "dead_lettered",
    "redriven", "removed", "expired", "cancelled", "trimmed", "purged", "deleted",
)  # fmt: skip
"""Columns of `minutes` that count messages."""
MEASURES = ("wait", "processing", "end_to_end")
_KEYS = [("day", pa.string()), ("minute_ms", pa.int64()), ("queue", pa.string()), ("group", pa.string())]
MINUTES = pa.schema(
    [*_KEYS, *((name, pa.int64()) for name in COUNTS), ("change", pa.int64()), ("live", pa.int64()),
     ("dead", pa.int64()), *((name, SKETCH) for name in MEASURES), ("queue_id", pa.int64()), ("batch", pa.int64())]
)  # fmt: skip
CONSUMERS = pa.schema(
    [*_KEYS, ("consumer", pa.string()), ("delivered", pa.int64()), ("acked", pa.int64()), ("failed", pa.int64()),
     ("lost", pa.int64()), ("processing_ms", pa.int64()), ("queue_id", pa.int64()), ("batch", pa.int64())]
)  # fmt: skip
FAILURES = pa.schema(
    [*_KEYS, ("fingerprint", pa.string()), ("pattern", pa.string()), ("reason", pa.string()), ("messages", pa.int64()),
     ("error", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("queue_id", pa.int64()),
     ("batch", pa.int64())]
)  # fmt: skip
CATALOG = pa.schema(
    [("queue_id", pa.int64()), ("queue", pa.string()), ("facts", pa.string()), ("standing", pa.string())]
)
OPEN = pa.schema(
    [("queue_id", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64()), ("place", pa.int64()),
     ("kind", pa.string()), ("at_ms", pa.int64()), ("id", pa.string()), ("group", pa.string()),
     ("consumer", pa.string()), ("lease", pa.int64()), ("reason", pa.string()), ("error", pa.string()),
     ("due_ms", pa.int64()), ("kept", pa.bool_()), ("slot", pa.string())]
)  # fmt: skip
BATCHES = pa.schema(
    [("batch", pa.int64()), ("after_frame", pa.int64()), ("until_frame", pa.int64()), ("is_whole", pa.bool_()),
     ("ground_version", pa.int64()), ("open_version", pa.int64()), ("missing_frames", pa.int64()),
     ("planned_ms", pa.int64())]
)  # fmt: skip
TABLES: dict[str, tuple[pa.Schema, list[str]]] = {
    "minutes": (MINUTES, ["day"]),
    "consumers": (CONSUMERS, ["day"]),
    "failures": (FAILURES, ["day"]),
    "ground": (CATALOG, []),  # the catalog of queues; the name is part of the format
    "open": (OPEN, ["slot"]),
    "batches": (BATCHES, []),
}
COMPACT_EVERY = 32
"""After so many batches, the small files that each of them left in every table are merged."""


class AnalyticsTable:
    """One of the tables, in the directory of a lake."""

    def __init__(self, lake: str | Path, name: str):
        self.name = name
        self.schema, self._by = TABLES[name]
        self.path = lake_directory(lake) / "analytics" / name

    def open(self, version: int | None = None) -> DeltaTable:
        """Raises TableNotFoundError if nothing was analysed yet."""
        return DeltaTable(self.path, version=version)

    def create(self) -> DeltaTable:
        """The table, created if it does not exist."""
        return DeltaTable.create(self.path, self.schema, mode="ignore", partition_by=self._by or None)

    def committed(self) -> int:
        """The last batch that was committed to the table; 0 if none was."""
        try:
            version = self.open().transaction_version(APP)
        except TableNotFoundError:
            return 0
        return version if version is not None else 0

    def append(self, rows: pa.Table, batch: int) -> None:
        if self.committed() < batch:
            write_deltalake(self.open(), rows, mode="append", commit_properties=_in(batch))

    def overwrite(self, rows: pa.Table, batch: int) -> None:
        if self.committed() < batch:
            write_deltalake(self.open(), rows, mode="overwrite", commit_properties=_in(batch))

    def replace(self, slots: Iterable[str], files: Mapping[str, Sequence[tuple[str, int, int]]], batch: int) -> None:
        """Replace the files of these slots; a file is (path below the table, bytes, rows)."""
        if self.committed() >= batch:
            return
        table, now_ms = self.open(), int(time.time() * 1000)
        added = [
            AddAction(path, size, {"slot": slot}, now_ms, True, json.dumps({"numRecords": rows}))
            for slot, written in files.items()
            for path, size, rows in written
        ]
        table.create_write_transaction(
            added,  # type: ignore[arg-type]
            "overwrite",
            table.schema(),
            partition_by=self._by,
            partition_filters=[("slot", "in", sorted({*slots, *files}))],
            commit_properties=_in(batch),
        )

    def tidy(self, batch: int) -> None:
        """Every `COMPACT_EVERY` batches: merge small files, and remove files and log entries that no reader needs."""
        if batch % COMPACT_EVERY == 0:
            table = self.open()
            if self.name in ("minutes", "consumers", "failures", "batches"):
                table.optimize.compact()
            table.create_checkpoint()
            table.cleanup_metadata()
            if self.name in ("open", "ground"):
                # A batch reads the version before it; an hour is left for readers that have begun.
                table.vacuum(retention_hours=1, enforce_retention_duration=False, dry_run=False)


def _in(batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(APP, batch)])


def has_analytics(lake: str | Path) -> bool:
    return (lake_directory(lake) / "analytics" / "batches" / "_delta_log").is_dir()


def records_of(table: DeltaTable, **filters: Any) -> list[dict[str, Any]]:
    """The rows of a small table."""
    found: list[dict[str, Any]] = table.to_pyarrow_table(**filters).to_pylist()
    return found
