"""Bounded reads: the present content of a table, cut into ranges, one task each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.pipeline import bulk
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.event_rows import rows_of
from penstock.pipeline.offset_options import EARLIEST
from penstock.pipeline.offsets import JournalOffset, Range, between, split
from penstock.pipeline.options import Options, OtherIncarnation, PipelineError
from penstock.pipeline.ranges import (
    JournalRange,
    LogRange,
    ReadArchived,
    gone_frames,
    gone_offsets,
    other_journal,
    read_log,
    resolve,
)
from penstock.pipeline.rows import audit_entries, dead_letters, queues
from penstock.pipeline.schema import VALUE
from penstock.wire.holds import ExtentReply

ROWS_PER_BATCH = 5_000


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares the batches with."""
    return to_arrow_schema(schema, timezone="UTC")


class MessagesReader(DataSourceReader):
    """The log of a queue between two positions."""

    def __init__(self, options: Options, schema: StructType):
        self._broker = BrokerCalls.of(options)
        self._options = options
        self._schema = schema
        self._queue = options.queue

    def partitions(self) -> list[InputPartition]:
        extent = self._broker.ask(bulk.extent(self._queue))
        check_incarnation(self._options, extent)
        start = resolve(self._broker, self._queue, extent, self._options.starting_offset)
        end = resolve(self._broker, self._queue, extent, self._options.ending_offset)
        ends = {each.partition: min(end.get(each.partition, 0), each.end_offset) for each in extent.partitions}
        ranges = between(start, ends)
        if self._options.lake is None:
            lost = gone_offsets(self._queue, extent, ranges)
            if lost is not None and self._options.fail_on_data_loss:
                raise PipelineError(lost)
            starts = {each.partition: each.start_offset for each in extent.partitions}
            ranges = [Range(p, max(first, starts[p]), stop) for p, first, stop in ranges]
        cut = split(
            [each for each in ranges if len(each)],
            at_most=self._options.max_records_per_partition,
            at_least=self._options.min_partitions,
        )
        return [LogRange(*each, uuid=extent.uuid) for each in cut]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogRange):
            schema = arrow_schema(self._schema)
            read_archived = self._archive_reader(partition.partition, schema)
            yield from read_log(
                self._broker, self._queue, partition, schema, self._options.fail_on_data_loss, read_archived
            )

    def _archive_reader(self, partition: int, schema: pa.Schema) -> ReadArchived | None:
        lake = self._options.lake
        if lake is None:
            return None
        from penstock.pipeline.lake.archived_rows import read_archived

        uuid = self._options.queue_uuid
        return lambda first, stop: read_archived(lake, self._queue, uuid, partition, first, stop, schema)


class EventsReader(DataSourceReader):
    """The records of the journal between two positions."""

    def __init__(self, options: Options, schema: StructType):
        self._broker = BrokerCalls.of(options)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        after = journal_position(self._broker, self._options.starting_offset).frame
        until = journal_position(self._broker, self._options.ending_offset).frame
        return list(journal_ranges(self._broker, self._options, after, until))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, JournalRange):
            yield from read_journal(self._broker, partition, arrow_schema(self._schema), self._options)


def check_incarnation(options: Options, extent: ExtentReply) -> None:
    """Raises OtherIncarnation if the archive or `union` means another queue of this path."""
    wanted = options.queue_uuid
    if wanted is not None and extent.uuid != wanted:
        raise OtherIncarnation(f"queue {extent.queue} was deleted and created again: its uuid was {wanted}")


def journal_position(broker: BrokerCalls, given: str | dict[int, int]) -> JournalOffset:
    """The last frame before this position."""
    frame: int | None = None
    if isinstance(given, dict):
        frame = given.get(0, EARLIEST)
        given = "earliest" if frame == EARLIEST else "latest"
    reply = broker.ask(bulk.event_ranges(given, until=0, each=1))
    if frame is None or frame < 0:
        frame = reply.end if given == "latest" else reply.next
    return JournalOffset(frame, reply.broker)


def journal_ranges(broker: BrokerCalls, options: Options, after: int, until: int) -> Iterator[JournalRange]:
    """The frames after `after` up to `until`, cut into ranges with about the same number of rows."""
    if after >= until:
        return
    each = options.max_records_per_partition
    reply = broker.ask(bulk.event_ranges(after, until=until, each=each))
    if options.min_partitions is not None:
        rows = sum(one.rows for one in reply.ranges)
        if rows // options.min_partitions < each:
            each = max(1, rows // options.min_partitions)
            reply = broker.ask(bulk.event_ranges(after, until=until, each=each))
    lost = gone_frames(reply.missing)
    if lost is not None and options.fail_on_data_loss:
        raise PipelineError(lost)
    for one in reply.ranges:
        yield JournalRange(one.after, one.until, reply.broker)


def read_journal(
    broker: BrokerCalls, part: JournalRange, schema: pa.Schema, options: Options
) -> Iterator[pa.RecordBatch]:
    after = str(part.after)
    while True:
        meta, records = broker.ask_patiently(bulk.events(after, until=part.until, max_bytes=bulk_bytes()))
        if meta.broker != part.broker:
            if options.fail_on_data_loss:
                raise PipelineError(other_journal(part.broker, meta.broker))
            return
        lost = gone_frames(meta.missing)
        if lost is not None and options.fail_on_data_loss:
            raise PipelineError(lost)
        rows = rows_of(records, meta.names, schema)
        if rows is not None:
            yield rows
        if meta.next in (after, str(part.until)):
            return
        after = meta.next


def bulk_bytes() -> int:
    """The bytes of records in one reply. A record with a range of 24 bytes may become ten thousand rows."""
    return 64 * 1024


class Everything(InputPartition):
    """A table that is small enough for one task."""

    def __init__(self) -> None:
        super().__init__(None)


class RowsReader(DataSourceReader):
    """`queues`, `dead_letters` and `audit`: read by one task, row by row."""

    def __init__(self, options: Options, schema: StructType):
        self._broker = BrokerCalls.of(options)
        self._options = options
        self._schema = schema
        self._table = options.table
        self._queue = options.queue if self._table == "dead_letters" else options.queue_or_none
        if self._table == "audit" and self._queue is not None:
            raise PipelineError("table 'audit' is about the whole server: leave out the option `queue`, and filter")

    def partitions(self) -> list[InputPartition]:
        if self._queue is not None:
            self._broker.ask(bulk.extent(self._queue))  # raises if the queue does not exist
        return [Everything()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        schema = arrow_schema(self._schema)
        rows: Iterator[dict[str, Any]]
        if self._queue is not None and self._table == "dead_letters":
            value = schema.field(VALUE).type if VALUE in schema.names else None
            rows = dead_letters(self._broker, self._queue, value)
        elif self._table == "audit":
            rows = audit_entries(self._broker)
        else:
            rows = queues(self._broker, self._queue or "")
        while some := list(islice(rows, ROWS_PER_BATCH)):
            arrays = [pa.array([row[field.name] for row in some], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
