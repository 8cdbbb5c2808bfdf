"""Unbounded reads: Spark asks how far it may go, cuts that into tasks, and writes down where it was.

Spark's checkpoint is the truth about what was read. `commit` of a stream reader comes a batch late and for the last
batch never, so nothing here relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.client.lowlevel import bulk
from penstock.pipeline import offsets
from penstock.pipeline.batch import arrow_schema, journal_position, journal_ranges, read_journal
from penstock.pipeline.connect import Broker
from penstock.pipeline.options import Options, PipelineError
from penstock.pipeline.ranges import JournalRange, LogRange, gone_offsets, read_log, resolve
from penstock.wire.holds import ExtentReply


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What both tables have in common: limits, and an end that stands still for `Trigger.AvailableNow`."""

    def __init__(self, options: Options, schema: StructType):
        self._broker = Broker.of(options)
        self._options = options
        self._schema = schema
        self._frozen: dict[str, Any] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def _limits(self, limit: ReadLimit | None) -> tuple[int | None, int | None]:
        """(rows, bytes): what Spark says, and what the user has said beside it. Both hold."""
        if limit is None or isinstance(limit, ReadAllAvailable):
            return None, None
        rows, size = self._options.max_records_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self.reportLatestOffset()

    def reportLatestOffset(self) -> dict[str, Any]:
        raise NotImplementedError

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002
        return

    def stop(self) -> None:
        return


class MessagesStreamReader(_StreamReader):
    """The log of a queue as it grows, partitions that are added included."""

    def __init__(self, options: Options, schema: StructType):
        super().__init__(options, schema)
        self._queue = options.queue

    def initialOffset(self) -> dict[str, Any]:
        extent = self._extent()
        start = resolve(self._broker, self._queue, extent, self._options.starting_offset)
        return offsets.to_json(self._queue, start)

    def reportLatestOffset(self) -> dict[str, Any]:
        ends = {each.partition: each.end_offset for each in self._extent().partitions}
        return offsets.to_json(self._queue, ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._positions(start)
        extent = self._extent()
        ends = {each.partition: each.end_offset for each in extent.partitions}
        if self._frozen is not None:
            frozen = self._positions(self._frozen)
            ends = {partition: min(end, frozen.get(partition, 0)) for partition, end in ends.items()}
        rows, size = self._limits(limit)
        if size is not None:
            by_size = max(1, size // max(1, self._bytes_each(extent)))
            rows = by_size if rows is None else min(rows, by_size)
        # Never back: what was removed is told when the range is planned.
        ends = {partition: max(end, begin.get(partition, 0)) for partition, end in ends.items()}
        return offsets.to_json(self._queue, offsets.admit(self._present(begin, extent), ends, rows))

    def _present(self, begin: Mapping[int, int], extent: ExtentReply) -> dict[int, int]:
        """Where there is something to read: what is gone does not use up a limit."""
        starts = {each.partition: each.start_offset for each in extent.partitions}
        return {partition: max(begin.get(partition, 0), start) for partition, start in starts.items()}

    def _bytes_each(self, extent: ExtentReply) -> int:
        stored = sum(each.bytes for each in extent.partitions)
        count = sum(each.end_offset - each.start_offset for each in extent.partitions)
        return stored // count if count else 1

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = offsets.between(self._positions(start), self._positions(end))
        if not ranges:
            return []
        lost = gone_offsets(self._queue, self._extent(), ranges)
        if lost is not None and self._options.fail_on_data_loss:
            raise PipelineError(lost)
        cut = offsets.split(
            ranges, at_most=self._options.max_records_per_partition, at_least=self._options.min_partitions
        )
        return [LogRange(*each) for each in cut]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogRange):
            schema = arrow_schema(self._schema)
            options = self._options
            yield from read_log(
                self._broker, self._queue, partition, schema, options.fail_on_data_loss, holes=options.holes
            )

    def _extent(self) -> ExtentReply:
        return self._broker.ask(bulk.extent(self._queue))

    def _positions(self, value: Mapping[str, Any]) -> dict[int, int]:
        if value.get("queue") != self._queue:
            raise PipelineError(
                f"this checkpoint is of queue {value.get('queue')}, and the query reads {self._queue}: "
                "use another checkpointLocation"
            )
        return offsets.from_json(value)


class EventsStreamReader(_StreamReader):
    """The journal as it grows."""

    def initialOffset(self) -> dict[str, Any]:
        return _frames(journal_position(self._broker, self._options.starting_offset))

    def reportLatestOffset(self) -> dict[str, Any]:
        return _frames(journal_position(self._broker, "latest"))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        after = _frame(start)
        until = _frame(self._frozen or self.reportLatestOffset())
        rows, size = self._limits(limit)
        if until <= after or (rows is None and size is None):
            return _frames(max(after, until))
        reply = self._broker.ask(
            bulk.event_ranges(
                after, until=until, each=self._options.max_records_per_partition, max=rows, max_bytes=size
            )
        )
        return _frames(max(after, reply.next))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return list(journal_ranges(self._broker, self._options, _frame(start), _frame(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, JournalRange):
            yield from read_journal(self._broker, partition, arrow_schema(self._schema), self._options)


def _frames(frame: int) -> dict[str, Any]:
    return {"v": offsets.VERSION, "shards": {"0": frame}}


def _frame(value: Mapping[str, Any]) -> int:
    if value.get("v") != offsets.VERSION or "shards" not in value:
        raise PipelineError("this checkpoint is not one of the table `events`: use another checkpointLocation")
    return int(value["shards"]["0"])
