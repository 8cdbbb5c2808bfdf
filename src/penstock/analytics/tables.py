"""The tables of the analytics, as Delta tables below `analytics/` in a lake.

What is counted is only ever added: a row of `minutes`, `consumers` and `failures` is what one batch has to say about a
minute, and a minute that two batches saw has two rows, which add up. A batch commits to each table under its number, so
that doing it again changes nothing. docs/analytics.md has the columns.
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
"""Whose transactions these are."""
SKETCH = pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))
COUNTS = (
    "published", "delivered", "redelivered", "acked", "retried", "lease_expired", "released", "dead_lettered",
    "redriven", "removed", "expired", "cancelled", "trimmed", "purged", "deleted",
)  # fmt: skip
"""Of messages, in a minute."""
MEASURES = ("wait", "processing", "end_to_end")
_WHO = [("day", pa.string()), ("minute_ms", pa.int64()), ("queue", pa.string()), ("group", pa.string())]
MINUTES = pa.schema(
    [*_WHO, *((name, pa.int64()) for name in COUNTS), ("change", pa.int64()), ("live", pa.int64()),
     ("dead", pa.int64()), *((name, SKETCH) for name in MEASURES), ("queue_id", pa.int64()), ("batch", pa.int64())]
)  # fmt: skip
CONSUMERS = pa.schema(
    [*_WHO, ("consumer", pa.string()), ("delivered", pa.int64()), ("acked", pa.int64()), ("failed", pa.int64()),
     ("lost", pa.int64()), ("processing_ms", pa.int64()), ("queue_id", pa.int64()), ("batch", pa.int64())]
)  # fmt: skip
FAILURES = pa.schema(
    [*_WHO, ("fingerprint", pa.string()), ("pattern", pa.string()), ("reason", pa.string()), ("messages", pa.int64()),
     ("error", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("queue_id", pa.int64()),
     ("batch", pa.int64())]
)  # fmt: skip
GROUND = pa.schema(
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
    "ground": (GROUND, []),
    "open": (OPEN, ["slot"]),
    "batches": (BATCHES, []),
}
COMPACT_EVERY = 32
"""Batches. Each leaves a small file in every table; so many are then made one."""


class Table:
    """One of the tables, where the lake has it."""

    def __init__(self, lake: str | Path, name: str):
        self.name = name
        self.schema, self._by = TABLES[name]
        self.path = lake_directory(lake) / "analytics" / name

    def open(self, version: int | None = None) -> DeltaTable:
        """Raises TableNotFoundError if nothing was analysed yet."""
        return DeltaTable(self.path, version=version)

    def create(self) -> DeltaTable:
        """The table, made if there is none."""
        return DeltaTable.create(self.path, self.schema, mode="ignore", partition_by=self._by or None)

    def committed(self) -> int:
        """The last batch that is in it; 0 if none is."""
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
        """These slots have these files now, and no others; (path below the table, bytes, rows) each."""
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
        """Now and then: make one file of many, forget what nobody can ask for any more."""
        if batch % COMPACT_EVERY == 0:
            table = self.open()
            if self.name in ("minutes", "consumers", "failures", "batches"):
                table.optimize.compact()
            table.create_checkpoint()
            table.cleanup_metadata()
            if self.name in ("open", "ground"):
                # A batch looks back by one; an hour is for those who still read.
                table.vacuum(retention_hours=1, enforce_retention_duration=False, dry_run=False)


def _in(batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(APP, batch)])


def has_analytics(lake: str | Path) -> bool:
    return (lake_directory(lake) / "analytics" / "batches" / "_delta_log").is_dir()


def records_of(table: DeltaTable, **filters: Any) -> list[dict[str, Any]]:
    """The rows of a small table."""
    found: list[dict[str, Any]] = table.to_pyarrow_table(**filters).to_pylist()
    return found
