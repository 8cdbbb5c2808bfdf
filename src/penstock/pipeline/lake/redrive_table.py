"""The table `redrives` of a lake, and the rows of redrives that have not ended.

The table has one row when a redrive was decided and one when it had ended: its author, its predicate, its target. The
chosen rows are Parquet files below `redrives/_work`, beside the number of rows that were published.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock.pipeline.lake.lock import locked
from penstock.pipeline.lake.parquet_files import sync
from penstock.pipeline.lake.tables import Lake

RECORDS = pa.schema(
    [
        ("redrive_id", pa.string()), ("state", pa.string()), ("at", pa.timestamp("us", "UTC")), ("by", pa.string()),
        ("queue", pa.string()), ("predicate", pa.string()), ("group", pa.string()), ("target", pa.string()),
        ("delay_ms", pa.int64()), ("priority", pa.int64()), ("rate_per_s", pa.int64()), ("messages", pa.int64()),
        ("rows", pa.string()), ("version", pa.int64()), ("queue_uuid", pa.string()),
    ]
)  # fmt: skip
STATES = ("started", "finished")


class RedriveTable:
    def __init__(self, lake: Lake):
        self._path = lake.directory / "redrives"

    def locked(self, redrive_id: str) -> AbstractContextManager[None]:
        """Entering it raises PipelineError if another process runs this redrive."""
        work = self._path / "_work"
        work.mkdir(parents=True, exist_ok=True)
        return locked(work / f"{redrive_id}.lock", f"redrive {redrive_id!r} is being run by another process")

    def find(self, redrive_id: str) -> dict[str, Any] | None:
        """The newest record of a redrive; None if there is none."""
        if not DeltaTable.is_deltatable(str(self._path)):
            return None
        rows = DeltaTable(self._path).to_pyarrow_table(filters=[("redrive_id", "=", redrive_id)]).to_pylist()
        last = max(rows, key=lambda row: STATES.index(row["state"]), default=None)
        return None if last is None else {"queue_uuid": None, **last}

    def add(self, record: dict[str, Any]) -> None:
        """Durable when it returns. A record that is there already is not added again."""
        table = DeltaTable.create(self._path, RECORDS, mode="ignore")
        name, number = f"redrive:{record['redrive_id']}", STATES.index(record["state"])
        known = table.transaction_version(name)
        if known is not None and known >= number:
            return
        properties = CommitProperties(app_transactions=[Transaction(name, number)])
        rows = pa.Table.from_pylist([record], RECORDS)
        # A table of an earlier version may lack some of these columns.
        write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
        log = self._path / "_delta_log"
        for each in (*self._path.glob("*.parquet"), *log.glob("*.json")):
            sync(each)
        sync(log)
        sync(self._path)


class RedriveRows:
    """The rows of a redrive, and how many of them were published."""

    def __init__(self, rows: Path):
        self._rows = rows
        self._counter = rows.with_name(rows.name + ".done")
        self.published = int(self._counter.read_text()) if self._counter.exists() else 0

    def unpublished(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows that were not published yet, in the order of the files."""
        files = sorted(str(path) for path in self._rows.glob("*.parquet"))
        if not files:
            return
        skip = self.published
        for batch in ds.dataset(files, format="parquet").to_batches(batch_size=batch_rows, batch_readahead=2):
            if skip < batch.num_rows:
                yield batch.slice(skip)
            skip = max(0, skip - batch.num_rows)

    def mark_published(self, rows: int) -> None:
        """Durable when it returns."""
        self.published += rows
        hidden = self._counter.with_name(self._counter.name + ".new")
        hidden.write_text(str(self.published))
        sync(hidden)
        hidden.replace(self._counter)

    def remove(self) -> None:
        shutil.rmtree(self._rows, ignore_errors=True)
        self._counter.unlink(missing_ok=True)
