"""The two tables of a lake: their columns, and the directory of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from penstock.pipeline.lake.spans import RECORD_BITS
from penstock.pipeline.schema import EVENTS, MESSAGES

_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_US_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class Layout:
    table: str
    columns: dict[str, str]
    """Name -> type, as Spark writes it."""
    partition_by: tuple[str, ...]
    """Columns that are directories, and not in the files."""
    lane: str
    moment: str
    """The column whose day is the partition `date`."""
    dense: bool
    """Whether places count up without gaps."""

    @property
    def file_schema(self) -> pa.Schema:
        fields = [(name, _ARROW[kind]) for name, kind in self.columns.items() if name not in self.partition_by]
        return pa.schema(fields)

    @property
    def table_schema(self) -> pa.Schema:
        """The columns that readers of the table see."""
        fields = [(name, _ARROW[kind]) for name, kind in self.columns.items()]
        return pa.schema([*fields, ("date", pa.date32())])

    def directory(self, values: dict[str, str]) -> str:
        """Hive-style directories: readers that parse paths find the partition columns there."""
        return "/".join(f"{name}={quote(values[name], safe='')}" for name in self.partition_by)

    def places(self, rows: pa.RecordBatch | pa.Table) -> Any:
        if self.dense:
            return _integers(rows.column("offset"))
        return _integers(rows.column("frame")) << RECORD_BITS | _integers(rows.column("record"))

    def lanes(self, rows: pa.RecordBatch) -> Any:
        return _integers(rows.column(self.lane))

    def days(self, rows: pa.RecordBatch) -> Any:
        return _integers(rows.column(self.moment).cast(pa.timestamp("us", "UTC"))) // _US_PER_DAY


def _integers(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


MESSAGES_LAYOUT = Layout("messages", MESSAGES, ("queue", "date"), "partition", "published_at", dense=True)
EVENTS_LAYOUT = Layout("events", EVENTS, ("date",), "shard", "at", dense=False)
LAYOUTS = {layout.table: layout for layout in (MESSAGES_LAYOUT, EVENTS_LAYOUT)}
