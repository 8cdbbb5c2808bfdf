"""Parquet files, written by tasks. Nothing here is part of a table before the driver has committed it.

A file appears under its name when it is whole and on the disk. The same rows make the same bytes and so the same name:
a task that is done again finds its file there, or makes it again.
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
from penstock.pipeline.lake.spans import Span, file_name

GROUP_BYTES = 32 * limits.MIB
"""Rows that are kept in memory before they are written as one group."""
FILE_BYTES = 512 * limits.MIB
"""Of rows in one file, before they are compressed; then comes the next file."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Written(NamedTuple):
    """A file, as the driver has to know it."""

    path: str
    """Below the table."""
    size: int
    rows: int
    span: Span
    held: Span | None
    """The same without what is not there at its edges; None if there are no rows."""
    values: dict[str, str]
    """Of the partition columns."""


class Shelf:
    """What one task writes. Rows come in the order of their places.

    Messages that were expired or cancelled are not there to be written. A file covers them too if they lie before or
    between its rows; so files follow each other without a gap, and a gap is a fault.
    """

    def __init__(self, table: Path, layout: Layout, fixed: dict[str, str], uuid: str | None = None):
        """`fixed` are the partition columns that are the same for all rows; `uuid` is that of the queue."""
        self._uuid = uuid
        self._table = table
        self._layout = layout
        self._fixed = fixed
        self._open: _File | None = None
        self._key = (-1, -1)
        self._hole: Span | None = None
        """Covered by no file yet."""
        self._done: list[Written] = []

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
        span = Span(row["partition"], row["offset"], int(row["key"]) - 1)
        if self._open is not None and self._key[0] == span.lane:
            self._open.cover(span.last)
        else:
            self._finish()
            self._hole = span

    def _file(self, day: str, lane: int, first: int) -> _File:
        before = self._done[-1].span if self._done and self._layout.dense else None
        if before is not None and before.lane == lane and before.last < first:
            first = before.last + 1
        if self._hole is not None:
            first, self._hole = self._hole.first, None
        return _File(self._table, self._layout, {**self._fixed, "date": day}, lane, first, self._uuid)

    def close(self) -> list[Written]:
        self._finish()
        if self._hole is not None:
            # Nothing is left of all that was to be read: a file without rows says that it was looked at.
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
    span: Span,
    rows: Iterator[pa.RecordBatch],
    uuid: str | None = None,
) -> Written:
    """One file of exactly these rows."""
    file = _File(table, layout, values, span.lane, span.first, uuid)
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
    """What is written there survives a loss of power; of a directory, its entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _File:
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
        """Whether rows from this place on belong here. Rows of one record stay together."""
        if place == self._last and not dense:
            return True
        return place > self._last and self._bytes < FILE_BYTES

    def cover(self, last: int) -> None:
        """Up to this place there is nothing more."""
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

    def finish(self) -> Written:
        self._write()
        self._writer.close()
        span = Span(self._lane, self._first, self._last)
        path = self._directory / file_name(span, digest_of(self._hidden), self._uuid)
        sync(self._hidden)
        self._hidden.rename(path)
        for directory in (self._directory, *self._directory.parents):
            sync(directory)
            if directory == self._table:
                break
        size = path.stat().st_size
        held = Span(self._lane, self._low, self._high) if self._rows else None
        return Written(path.relative_to(self._table).as_posix(), size, self._rows, span, held, self._values)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
        self._hidden.unlink(missing_ok=True)


def _pieces(rows: pa.RecordBatch, layout: Layout) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Rows, and those among them that are no messages, one by one (True): see `columns.hole`."""
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
    """Where to cut: another lane, another day, or places that do not count up."""
    steps = np.diff(places)
    cut = (np.diff(lanes) != 0) | (np.diff(days) != 0) | ((steps < 1) if dense else (steps < 0))
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(places)]
    yield from pairwise(edges)
