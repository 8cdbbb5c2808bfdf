"""Merge small files into large ones. The lake can be verified at any time meanwhile.

`optimize` of delta-rs would put rows of several partitions into one file, under a name without a span, and would copy
damaged bytes. Here each file is checked, neighbours are merged into a file with the name of its span, and one commit
replaces them. The old files stay on the disk for readers that have begun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import limits
from penstock.pipeline.lake.layout import LAYOUTS, Layout
from penstock.pipeline.lake.parquet_files import digest_of, write_file
from penstock.pipeline.lake.spans import LaneSpan, ParsedName, mergeable, parse_name
from penstock.pipeline.lake.tables import Lake, LakeTable, ListedFile
from penstock.pipeline.options import PipelineError

TARGET_BYTES = 128 * limits.MIB
_ROWS_AT_ONCE = 65_536


class Compacted(NamedTuple):
    before: int
    """Files that were replaced."""
    after: int
    """Files that replace them."""


def compact(lake: Lake, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Raises PipelineError if the bytes of a file are not those of its name; merges that were committed stay."""
    before = after = 0
    for layout in LAYOUTS.values():
        table = lake.table(layout.table)
        for old in _mergeable_files(table, target_bytes):
            _merge(table, old)
            before, after = before + len(old), after + 1
    return Compacted(before, after)


class _NamedFile(NamedTuple):
    file: ListedFile
    named: ParsedName


def _mergeable_files(table: LakeTable, target_bytes: int) -> Iterator[list[_NamedFile]]:
    by_directory: dict[tuple[str, str | None], list[_NamedFile]] = defaultdict(list)
    for file in table.files():
        named = parse_name(Path(file.path).name)
        if named is not None:
            by_directory[table.layout.directory(file.values), named.uuid].append(_NamedFile(file, named))
    for known in by_directory.values():
        sizes = [(each.named.span, each.file.size) for each in known]
        for bundle in mergeable(sizes, target_bytes, dense=table.layout.dense):
            yield [known[index] for index in bundle]


def _merge(table: LakeTable, old: Sequence[_NamedFile]) -> None:
    paths = [table.directory / each.file.path for each in old]
    for path, each in zip(paths, old, strict=True):
        if not path.exists() or digest_of(path) != each.named.digest:
            raise PipelineError(f"{path} is missing or damaged: `penstock pipeline verify` lists every fault")
    first, last = old[0].named.span, old[-1].named.span
    span = LaneSpan(first.lane, first.first, last.last)
    rows_of = _rows(table.layout, paths)
    new = write_file(table.directory, table.layout, old[0].file.values, span, rows_of, old[0].named.uuid)
    rows = sum(each.file.rows or 0 for each in old)
    assert new.rows == rows, f"{new.rows} rows were made of {rows}"
    # The newest version: an archive may have added other files since.
    table.newest().replace([each.file for each in old], new)


def _rows(layout: Layout, paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(_ROWS_AT_ONCE):
                yield _widened(rows, layout)


def _widened(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """With nulls for columns that the table did not have when the file was written."""
    schema = layout.file_schema
    arrays = [
        rows.column(field.name) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)
