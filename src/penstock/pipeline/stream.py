"""Unbounded reads: Spark asks for the latest offset, for partitions up to it, and stores the offset in its checkpoint.

Only Spark's checkpoint says which offsets were read. `commit` of a stream reader is called one batch late, and not for
the last batch, so it is not used.
"""

from __future__ import annotations

import logging
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

from penstock.pipeline import bulk, offsets
from penstock.pipeline.batch import arrow_schema, check_incarnation, journal_position, journal_ranges, read_journal
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.offsets import JournalOffset, QueueOffset
from penstock.pipeline.options import Options, PipelineError
from penstock.pipeline.ranges import (
    JournalRange,
    LogRange,
    gone_offsets,
    other_journal,
    other_queue,
    read_log,
    resolve,
)
from penstock.wire.holds import ExtentReply

_log = logging.getLogger("penstock.pipeline")


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Limits of a batch, and reports of lost data, for both tables.

    Subclasses keep in `_frozen` the end of a run with `Trigger.AvailableNow`: it stays where it was at the start.
    """

    def __init__(self, options: Options, schema: StructType):
        self._broker = BrokerCalls.of(options)._replace(waits=True)
        self._options = options
        self._schema = schema
        self._warned: set[str] = set()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def _limits(self, limit: ReadLimit | None) -> tuple[int | None, int | None]:
        """(rows, bytes) that a batch may have at most: Spark's limit and the user's options. Both hold."""
        if limit is None or isinstance(limit, ReadAllAvailable):
            return None, None
        rows, size = self._options.max_records_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def _report_loss(self, sentence: str) -> None:
        """Raises PipelineError, or logs a warning if the user accepts the loss of data."""
        if self._options.fail_on_data_loss:
            raise PipelineError(sentence)
        self._warn_once(f"stream_data_loss: {sentence}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning(text)

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002
        return

    def stop(self) -> None:
        return


class MessagesStreamReader(_StreamReader):
    """The log of a queue as it grows, partitions that are added included."""

    def __init__(self, options: Options, schema: StructType):
        super().__init__(options, schema)
        self._queue = options.queue
        self._frozen: QueueOffset | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._ends(self._extent())

    def initialOffset(self) -> dict[str, Any]:
        extent = self._extent()
        start = resolve(self._broker, self._queue, extent, self._options.starting_offset)
        return QueueOffset(self._queue, start, extent.uuid, extent.broker).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._ends(self._extent()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        extent = self._extent()
        begin = self._resumed(self._parsed(start), extent)
        ends = self._ends(extent).offsets
        if self._frozen is not None:
            if self._frozen.uuid != extent.uuid:
                self._report_loss(other_queue(self._queue, extent, self._frozen))
                self._frozen = self._ends(extent)
            ends = {partition: min(end, self._frozen.offsets.get(partition, 0)) for partition, end in ends.items()}
        rows, size = self._limits(limit)
        if size is not None:
            by_size = max(1, size // max(1, self._bytes_each(extent)))
            rows = by_size if rows is None else min(rows, by_size)
        # Never before the start: offsets that retention removed are reported when the range is planned.
        ends = {partition: max(end, begin.get(partition, 0)) for partition, end in ends.items()}
        admitted = offsets.admit(self._present(begin, extent), ends, rows)
        return QueueOffset(self._queue, admitted, extent.uuid, extent.broker).to_json()

    def _resumed(self, start: QueueOffset, extent: ExtentReply) -> dict[int, int]:
        """The offsets at which the stream goes on in the present queue. Reports if they are not those of `start`."""
        if start.uuid and extent.uuid and start.uuid != extent.uuid:
            self._report_loss(other_queue(self._queue, extent, start))
            return {each.partition: each.start_offset for each in extent.partitions}
        if not start.uuid and extent.uuid:
            self._warn_once(
                f"stream_checkpoint_adopted: the checkpoint of queue {self._queue} has no uuid and takes the present "
                f"incarnation, {extent.uuid}"
            )
        ends = self._ends(extent).offsets
        beyond = {part: at for part, at in sorted(start.offsets.items()) if at > ends.get(part, 0)}
        if beyond:
            parts = [
                f"partition {part}: the checkpoint is at offset {at}, and the queue ends at {ends.get(part, 0)}"
                for part, at in beyond.items()
            ]
            self._report_loss(
                f"queue {self._queue} has less than the stream has read: {'; '.join(parts)}. It was deleted and "
                "created again, or the broker was restored from an older copy. Set failOnDataLoss to false to go on "
                "from its end, or use another checkpointLocation"
            )
        return {part: min(at, ends.get(part, 0)) for part, at in start.offsets.items()}

    def _ends(self, extent: ExtentReply) -> QueueOffset:
        ends = {each.partition: each.end_offset for each in extent.partitions}
        return QueueOffset(self._queue, ends, extent.uuid, extent.broker)

    def _present(self, begin: Mapping[int, int], extent: ExtentReply) -> dict[int, int]:
        """The first offsets that are still stored: removed ones do not count towards a limit."""
        starts = {each.partition: each.start_offset for each in extent.partitions}
        return {partition: max(begin.get(partition, 0), start) for partition, start in starts.items()}

    def _bytes_each(self, extent: ExtentReply) -> int:
        stored = sum(each.bytes for each in extent.partitions)
        count = sum(each.end_offset - each.start_offset for each in extent.partitions)
        return stored // count if count else 1

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = self._parsed(start), self._parsed(end)
        same_queue = begin.uuid in ("", until.uuid)
        ranges = offsets.between(begin.offsets if same_queue else {}, until.offsets)
        if not ranges:
            return []
        extent = self._extent()
        if until.uuid not in ("", extent.uuid):
            self._report_loss(other_queue(self._queue, extent, until))
            return []
        if not same_queue:
            self._report_loss(other_queue(self._queue, extent, begin))
        lost = gone_offsets(self._queue, extent, ranges)
        if lost is not None:
            self._report_loss(lost)
        cut = offsets.split(
            ranges, at_most=self._options.max_records_per_partition, at_least=self._options.min_partitions
        )
        return [LogRange(*each, uuid=extent.uuid) for each in cut]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogRange):
            schema = arrow_schema(self._schema)
            options = self._options
            yield from read_log(
                self._broker, self._queue, partition, schema, options.fail_on_data_loss, holes=options.holes
            )

    def _extent(self) -> ExtentReply:
        extent = self._broker.ask(bulk.extent(self._queue))
        check_incarnation(self._options, extent)
        return extent

    def _parsed(self, value: Mapping[str, Any]) -> QueueOffset:
        try:
            offset = QueueOffset.from_json(value)
        except ValueError as error:
            raise PipelineError(str(error)) from None
        if offset.queue != self._queue:
            raise PipelineError(
                f"this checkpoint is of queue {offset.queue}, and the query reads {self._queue}: "
                "use another checkpointLocation"
            )
        return offset


class EventsStreamReader(_StreamReader):
    """The journal as it grows."""

    def __init__(self, options: Options, schema: StructType):
        super().__init__(options, schema)
        self._frozen: JournalOffset | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = journal_position(self._broker, "latest")

    def initialOffset(self) -> dict[str, Any]:
        return journal_position(self._broker, self._options.starting_offset).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return journal_position(self._broker, "latest").to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        latest = journal_position(self._broker, "latest")
        after = self._resumed(self._parsed(start), latest)
        if self._frozen is not None and self._frozen.broker == latest.broker:
            latest = self._frozen
        rows, size = self._limits(limit)
        if latest.frame <= after or (rows is None and size is None):
            return latest._replace(frame=max(after, latest.frame)).to_json()
        reply = self._broker.ask(
            bulk.event_ranges(
                after, until=latest.frame, each=self._options.max_records_per_partition, max=rows, max_bytes=size
            )
        )
        return latest._replace(frame=max(after, reply.next)).to_json()

    def _resumed(self, start: JournalOffset, latest: JournalOffset) -> int:
        """The frame behind which the stream goes on. Reports if it is not that of `start`."""
        if start.broker and latest.broker and start.broker != latest.broker:
            self._report_loss(other_journal(start.broker, latest.broker))
            return journal_position(self._broker, "earliest").frame
        if not start.broker and latest.broker:
            self._warn_once(
                f"stream_checkpoint_adopted: the checkpoint of events has no broker id and takes the present broker, "
                f"{latest.broker}"
            )
        if start.frame > latest.frame:
            self._report_loss(
                f"the journal ends with frame {latest.frame}, and the checkpoint is at frame {start.frame}: it is "
                "another broker, or the broker was restored from an older copy. Set failOnDataLoss to false to go on "
                "from its end, or use another checkpointLocation"
            )
        return min(start.frame, latest.frame)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = self._parsed(start), self._parsed(end)
        after = begin.frame
        if begin.broker not in ("", until.broker):
            self._report_loss(other_journal(begin.broker, until.broker))
            after = journal_position(self._broker, "earliest").frame
        return list(journal_ranges(self._broker, self._options, after, until.frame))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, JournalRange):
            yield from read_journal(self._broker, partition, arrow_schema(self._schema), self._options)

    def _parsed(self, value: Mapping[str, Any]) -> JournalOffset:
        try:
            return JournalOffset.from_json(value)
        except ValueError as error:
            raise PipelineError(str(error)) from None
