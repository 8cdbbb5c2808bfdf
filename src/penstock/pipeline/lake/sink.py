"""What Spark calls to write to a lake: tasks write files, the driver commits them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.pipeline.lake.layout import LAYOUTS
from penstock.pipeline.lake.shelf import Shelf, Written
from penstock.pipeline.lake.tables import EVENTS, Table
from penstock.pipeline.options import PipelineError


class Files(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, query: str, written: list[Written]):
        self.query = query
        self.written = written


class LakeWriter(DataSourceStreamArrowWriter):
    """What the data source `penstock` writes with if it is told a `lakeDirectory`. For `archive.py` alone."""

    def __init__(self, directory: str, table: str, queue: str | None):
        self._directory = Path(directory)
        self._layout = LAYOUTS[table]
        self._queue = queue

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise PipelineError("this version of Spark does not tell its tasks which query they write for")
        shelf = Shelf(self._directory, self._layout, {} if self._queue is None else {"queue": self._queue})
        try:
            for rows in iterator:
                shelf.put(rows)
            return Files(query, shelf.close())
        except BaseException:
            shelf.discard()
            raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done = [each for each in messages if isinstance(each, Files)]
        written = [file for each in done for file in each.written]
        if written:
            Table(self._directory, self._layout).commit(done[0].query, batchId, self._queue or EVENTS, written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Files that no version lists are nobody's; the batch that is done again makes the same ones."""
