"""Read messages from the lake that the broker had when a read was planned, and has removed since.

A hold moves only behind messages that are committed, so messages that the broker has removed are in the newest version
of the lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.ids import QueuePath
from penstock.pipeline.lake.spans import LaneSpan, parse_name
from penstock.pipeline.lake.subject import Subject
from penstock.pipeline.lake.tables import Lake, LakeTable
from penstock.pipeline.options import PipelineError


def read_archived(
    directory: str, queue: QueuePath, uuid: str | None, partition: int, first: int, stop: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Offsets `first` to `stop` (exclusive) of a partition. Raises PipelineError if the lake does not have all."""
    lake = Lake(directory)
    table = lake.table("messages")
    at = first
    for span, path in _files(table, lake.subject(queue, uuid), LaneSpan(partition, first, stop - 1)):
        if span.first > at:
            break
        until = min(stop, span.last + 1)
        for rows in _rows(path, at, until):
            yield _shaped(rows, queue, uuid, schema)
        at = until
    if at < stop:
        raise PipelineError(
            f"queue {queue}, partition {partition}: offsets {at} to {stop - 1} are in neither broker nor lake. If no "
            "archive was holding them, call union again; else the queue was purged, or the hold was lost"
        )


def _files(table: LakeTable, subject: Subject, wanted: LaneSpan) -> list[tuple[LaneSpan, Path]]:
    """The files that overlap the span, in the order of their offsets."""
    named = [(parse_name(Path(each.path).name), table.directory / each.path) for each in table.files(subject)]
    return sorted(
        (name.span, path)
        for name, path in named
        if name is not None
        and name.span.lane == wanted.lane
        and name.span.first <= wanted.last
        and name.span.last >= wanted.first
    )


def _rows(path: Path, first: int, stop: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file with offsets `first` to `stop` (exclusive). Rows of a file are in order."""
    with pq.ParquetFile(path) as file:
        for rows in file.iter_batches():
            begin, end = np.searchsorted(rows.column("offset").to_numpy(), (first, stop)).tolist()
            if begin < end:
                yield rows.slice(begin, end - begin)


def _shaped(rows: pa.RecordBatch, queue: QueuePath, uuid: str | None, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns that Spark wants. `queue` is a directory; files of format 1 have no `queue_uuid`."""
    constants = {"queue": str(queue), "queue_uuid": uuid}
    arrays = [
        pa.array([constants[field.name]] * rows.num_rows, field.type)
        if field.name in constants
        else rows.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
