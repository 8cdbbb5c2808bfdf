"""The writer that Spark calls to write to a lake: tasks write files, the driver commits them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.pipeline.lake.parquet_files import DataFile, TaskFileWriter
from penstock.pipeline.lake.subject import EVENTS
from penstock.pipeline.lake.tables import Lake


class WrittenFiles(WriterCommitMessage):
    """The files that a task has written."""

    def __init__(self, written: list[DataFile]):
        self.written = written


class LakeWriter(DataSourceStreamArrowWriter):
    """The writer of the data source `penstock` if it has an option `lakeDirectory`. For `archive.py` alone."""

    def __init__(self, lake: str, table: str, queue: str | None, uuid: str | None):
        self._lake = lake
        self._table = table
        self._queue = queue
        self._uuid = uuid

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        table = Lake(self._lake).table(self._table)
        fixed = {} if self._queue is None else {"queue": self._queue}
        writer = TaskFileWriter(table.directory, table.layout, fixed, self._uuid)
        try:
            for rows in iterator:
                writer.put(rows)
            return WrittenFiles(writer.close())
        except BaseException:
            writer.discard()
            raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        written = [file for each in messages if isinstance(each, WrittenFiles) for file in each.written]
        if written:
            lake = Lake(self._lake)
            subject = EVENTS if self._queue is None else lake.subject(self._queue, self._uuid)
            lake.table(self._table).commit(subject, written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files: no version lists them, and the batch that is done again makes the same ones."""
