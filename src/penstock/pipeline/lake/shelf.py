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
    values: dict[str, str]
    """Of the partition columns."""


class Shelf:
    """What one task writes. Rows come in the order of their places."""

    def __init__(self, table: Path, layout: Layout, fixed: dict[str, str]):
        """`fixed` are the partition columns that are the same for all rows."""
        self._table = table
        self._layout = layout
        self._fixed = fixed
        self._open: _File | None = None
        self._key = (-1, -1)
        self._done: list[Written] = []

    def put(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        places, lanes, days = self._layout.places(rows), self._layout.lanes(rows), self._layout.days(rows)
        for begin, end in _runs(places, lanes, days, dense=self._layout.dense):
            key, first = (int(lanes[begin]), int(days[begin])), int(places[begin])
            if self._open is None or key != self._key or not self._open.takes(first, dense=self._layout.dense):
                self._finish()
                self._key = key
                day = (_EPOCH + timedelta(days=key[1])).date().isoformat()
                self._open = _File(self._table, self._layout, {**self._fixed, "date": day}, key[0], first)
            self._open.put(rows.slice(begin, end - begin), int(places[end - 1]))

    def close(self) -> list[Written]:
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
    table: Path, layout: Layout, values: dict[str, str], span: Span, rows: Iterator[pa.RecordBatch]
) -> Written:
    """One file of exactly these rows."""
    file = _File(table, layout, values, span.lane, span.first)
    try:
        for each in rows:
            file.put(each, span.last)
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
    def __init__(self, table: Path, layout: Layout, values: dict[str, str], lane: int, first: int):
        self._table = table
        self._schema = layout.file_schema
        self._values = values
        self._lane, self._first, self._last = lane, first, first
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
        follows = place == self._last + 1 if dense else place > self._last
        return follows and self._bytes < FILE_BYTES

    def put(self, rows: pa.RecordBatch, last: int) -> None:
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
        path = self._directory / file_name(span, digest_of(self._hidden))
        sync(self._hidden)
        self._hidden.rename(path)
        for directory in (self._directory, *self._directory.parents):
            sync(directory)
            if directory == self._table:
                break
        size = path.stat().st_size
        return Written(path.relative_to(self._table).as_posix(), size, self._rows, span, self._values)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
        self._hidden.unlink(missing_ok=True)


def _runs(places: Any, lanes: Any, days: Any, *, dense: bool) -> Iterator[tuple[int, int]]:
    """Where to cut: another lane, another day, or places that do not follow each other."""
    steps = np.diff(places)
    cut = (np.diff(lanes) != 0) | (np.diff(days) != 0) | ((steps != 1) if dense else (steps < 0))
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(places)]
    yield from pairwise(edges)
