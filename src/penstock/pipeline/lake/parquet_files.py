"""Parquet files that tasks write. A file is part of a table only when the driver has committed it.

A file gets its name when it is complete and synced. The same rows make the same bytes, and so the same name: a repeated
task replaces its file with the same content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import limits
from penstock.pipeline.lake.layout import Layout
from penstock.pipeline.lake.spans import LaneSpan, file_name

GROUP_BYTES = 32 * limits.MIB
"""Rows that are kept in memory before they are written as one row group."""
FILE_BYTES = 512 * limits.MIB
"""Uncompressed rows of one file; a larger span is cut into several files."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DataFile(NamedTuple):
    """A finished file, described for the commit."""

    path: str
    """Below the table."""
    size: int
    rows: int
    span: LaneSpan
    held: LaneSpan | None
    """The span from the first to the last row; None if there are no rows."""
    values: dict[str, str]
    """The values of the partition columns."""


class TaskFileWriter:
    """Writes the rows of one task, which come in the order of their places.

    Messages that were expired or cancelled are not there to be written. A file covers them too if they lie before or
    between its rows; so files follow each other without a gap, and a gap is a fault.
    """

    def __init__(self, table: Path, layout: Layout, fixed: dict[str, str], uuid: str | None = None):
        """`fixed` are the partition columns that are the same for all rows; `uuid` is that of the queue."""
        self._uuid = uuid
        self._table = table
        self._layout = layout
        self._fixed = fixed
        self._open: _ParquetFile | None = None
        self._key = (-1, -1)
        self._hole: LaneSpan | None = None
        """A hole that no file covers yet."""
        self._done: list[DataFile] = []

    def put(self, rows: pa.RecordBatch) -> None:
        for piece, is_hole in _pieces(rows, self._layout):
            if is_hole:
                self._note(piece)
            else:
                self._put(piece)

    def _put(self, rows: pa.RecordBatch) -> None:
        places, lanes, days = self._layout.places(rows), self._layout.lanes(rows), self._layout.days(rows)
        for begin, end in _runs(places, lanes, days, dense=self._layout.dense):
            key, first = (int(lanes[begin]), int(days[begin])), int(places[begin])
            if self._open is None or key != self._key or not self._open.takes(first, dense=self._layout.dense):
                self._finish()
                self._key = key
                day = (_EPOCH + timedelta(days=key[1])).date().isoformat()
                self._open = self._file(day, key[0], first)
            self._open.put(rows.slice(begin, end - begin), int(places[end - 1]))

    def _note(self, hole: pa.RecordBatch) -> None:
        (row,) = hole.to_pylist()
        span = LaneSpan(row["partition"], row["offset"], int(row["key"]) - 1)
        if self._open is not None and self._key[0] == span.lane:
            self._open.cover(span.last)
        else:
            self._finish()
            self._hole = span

    def _file(self, day: str, lane: int, first: int) -> _ParquetFile:
        before = self._done[-1].span if self._done and self._layout.dense else None
        if before is not None and before.lane == lane and before.last < first:
            first = before.last + 1
        if self._hole is not None:
            first, self._hole = self._hole.first, None
        return _ParquetFile(self._table, self._layout, {**self._fixed, "date": day}, lane, first, self._uuid)

    def close(self) -> list[DataFile]:
        self._finish()
        if self._hole is not None:
            # All messages of the range had ended: a file without rows covers them.
            last = self._hole.last
            self._open = self._file(datetime.now(UTC).date().isoformat(), self._hole.lane, self._hole.first)
            self._open.cover(last)
            self._finish()
        return self._done

    def discard(self) -> None:
        if self._open is not None:
            self._open.discard()

    def _finish(self) -> None:
        if self._open is not None:
            self._done.append(self._open.finish())
            self._open = None


def write_file(
    table: Path,
    layout: Layout,
    values: dict[str, str],
    span: LaneSpan,
    rows: Iterator[pa.RecordBatch],
    uuid: str | None = None,
) -> DataFile:
    """One file of exactly these rows."""
    file = _ParquetFile(table, layout, values, span.lane, span.first, uuid)
    try:
        for each in rows:
            file.put(each, span.last)
        file.cover(span.last)
        return file.finish()
    except BaseException:
        file.discard()
        raise


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def sync(path: Path) -> None:
    """Make the content of a file, or the entries of a directory, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _ParquetFile:
    def __init__(
        self, table: Path, layout: Layout, values: dict[str, str], lane: int, first: int, uuid: str | None = None
    ):
        self._uuid = uuid
        self._table = table
        self._layout = layout
        self._schema = layout.file_schema
        self._values = values
        self._lane, self._first, self._last = lane, first, first - 1
        self._low, self._high = first, first
        self._directory = table / layout.directory(values)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._hidden = self._directory / f".{uuid4().hex}.part"
        self._writer = pq.ParquetWriter(self._hidden, self._schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._bytes = self._rows = 0

    def takes(self, place: int, *, dense: bool) -> bool:
        """Whether rows from this place on go into this file. Rows of one record stay together."""
        if place == self._last and not dense:
            return True
        return place > self._last and self._bytes < FILE_BYTES

    def cover(self, last: int) -> None:
        """Extend the span of the file to this place, without rows."""
        self._last = last

    def put(self, rows: pa.RecordBatch, last: int) -> None:
        places = self._layout.places(rows)
        if not self._rows:
            self._low = int(places[0])
        self._high = int(places[-1])
        arrays = [rows.column(field.name).cast(field.type) for field in self._schema]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._waiting_bytes += rows.nbytes
        self._bytes += rows.nbytes
        self._rows += rows.num_rows
        self._last = last
        if self._waiting_bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> DataFile:
        self._write()
        self._writer.close()
        span = LaneSpan(self._lane, self._first, self._last)
        path = self._directory / file_name(span, digest_of(self._hidden), self._uuid)
        sync(self._hidden)
        self._hidden.rename(path)
        for directory in (self._directory, *self._directory.parents):
            sync(directory)
            if directory == self._table:
                break
        size = path.stat().st_size
        held = LaneSpan(self._lane, self._low, self._high) if self._rows else None
        return DataFile(path.relative_to(self._table).as_posix(), size, self._rows, span, held, self._values)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
        self._hidden.unlink(missing_ok=True)


def _pieces(rows: pa.RecordBatch, layout: Layout) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """(rows, False), and (row, True) for each row that stands for a hole; see `columns.hole`."""
    at = 0
    if layout.dense and rows.column("id").null_count:
        for index in np.flatnonzero(rows.column("id").is_null().to_numpy(zero_copy_only=False)).tolist():
            if at < index:
                yield rows.slice(at, index - at), False
            yield rows.slice(index, 1), True
            at = index + 1
    if at < rows.num_rows:
        yield rows.slice(at), False


def _runs(places: Any, lanes: Any, days: Any, *, dense: bool) -> Iterator[tuple[int, int]]:
    """(begin, end) of rows of one lane and one day whose places count up."""
    steps = np.diff(places)
    cut = (np.diff(lanes) != 0) | (np.diff(days) != 0) | ((steps < 1) if dense else (steps < 0))
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(places)]
    yield from pairwise(edges)
