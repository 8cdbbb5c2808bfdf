"""The range that a task reads, the resolution of positions to offsets, and the errors for removed data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock import limits
from penstock.batch import Batch
from penstock.ids import QueuePath
from penstock.pipeline import bulk
from penstock.pipeline.columns import hole, messages
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.offset_options import EARLIEST, LATEST
from penstock.pipeline.offsets import QueueOffset, Range
from penstock.pipeline.options import OtherIncarnation, PipelineError
from penstock.wire.delivery import ReadMeta
from penstock.wire.events import Missing
from penstock.wire.holds import ExtentReply, PartitionExtent

READ_BYTES = 4 * limits.MIB
"""The size of one reply: some ten thousand messages, for large Arrow batches in little memory."""
ReadArchived = Callable[[int, int], Iterator[pa.RecordBatch]]
"""Reads offsets `first` to `stop` (exclusive) from the lake."""
_IGNORE = "set failOnDataLoss to false to go on without it, or start from `earliest`"
_IGNORE_LATER = "Start again, or set failOnDataLoss to false to go on with the present queue"


class LogRange(InputPartition):
    """Offsets of a partition, in one incarnation of its queue."""

    def __init__(self, partition: int, first: int, stop: int, uuid: str = ""):
        super().__init__((partition, first, stop))
        self.partition = partition
        self.first = first
        self.stop = stop
        self.uuid = uuid


class JournalRange(InputPartition):
    """Frames after `after`, up to `until`, in the journal of one broker."""

    def __init__(self, after: int, until: int, broker: str = ""):
        super().__init__((after, until))
        self.after = after
        self.until = until
        self.broker = broker


def resolve(broker: BrokerCalls, queue: QueuePath, extent: ExtentReply, given: str | dict[int, int]) -> dict[int, int]:
    """The offset in every partition that a position means. Partitions that are not named are read from the start."""
    if isinstance(given, dict):
        unknown = sorted(set(given) - {each.partition for each in extent.partitions})
        if unknown:
            raise PipelineError(
                f"queue {queue} has partitions 0 to {len(extent.partitions) - 1}, not {', '.join(map(str, unknown))}"
            )
        return {each.partition: _offset_in(each, given.get(each.partition, EARLIEST)) for each in extent.partitions}
    if given == "earliest":
        return {each.partition: each.start_offset for each in extent.partitions}
    if given == "latest":
        return {each.partition: each.end_offset for each in extent.partitions}
    return {each.partition: each.offset for each in broker.ask(bulk.extent(queue, given)).partitions}


def _offset_in(partition: PartitionExtent, offset: int) -> int:
    return {LATEST: partition.end_offset, EARLIEST: partition.start_offset}.get(offset, offset)


def gone_offsets(queue: QueuePath, extent: ExtentReply, ranges: Sequence[Range]) -> str | None:
    """An error text with the offsets of these ranges that retention has removed, or None."""
    starts = {each.partition: each.start_offset for each in extent.partitions}
    lost = [
        (partition, first, min(stop, starts[partition]))
        for partition, first, stop in ranges
        if first < starts.get(partition, 0)
    ]
    if not lost:
        return None
    parts = [f"partition {p}: offsets {first} to {stop - 1} ({stop - first} messages)" for p, first, stop in lost]
    return f"queue {queue} no longer has all that was asked for: {'; '.join(parts)}. To read what is left, {_IGNORE}"


def gone_frames(missing: Missing | None) -> str | None:
    if missing is None:
        return None
    return (
        f"the journal no longer has all that was asked for: frames {missing.first} to {missing.last} "
        f"({missing.frames} frames) are gone. A hold keeps them (docs/events.md); to read what is left, {_IGNORE}"
    )


def other_queue(queue: QueuePath, extent: ExtentReply, known: QueueOffset) -> str:
    """The error text for offsets of another incarnation of the queue."""
    reason = f"queue {queue} was deleted and created again"
    if known.broker and extent.broker and known.broker != extent.broker:
        reason = f"queue {queue} was deleted and created again, in another broker ({known.broker}, now {extent.broker})"
    return (
        f"{reason}: the checkpoint is about the queue with uuid {known.uuid}, and the present one has {extent.uuid}. "
        "Messages of the former one that were not read are lost. Set failOnDataLoss to false to go on with the first "
        "message of the present queue, or use another checkpointLocation"
    )


def other_journal(known: str, present: str) -> str:
    """The error text for a checkpoint of another broker's journal."""
    return (
        f"this is the journal of another broker: the checkpoint is about broker {known}, and this is broker {present}. "
        "Set failOnDataLoss to false to go on with the first event of this one, or use another checkpointLocation"
    )


def read_log(
    broker: BrokerCalls,
    queue: QueuePath,
    part: LogRange,
    schema: pa.Schema,
    fail_on_data_loss: bool,
    read_archived: ReadArchived | None = None,
    *,
    holes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The messages of a range as Arrow. While one reply is converted to Arrow, the next one is requested.

    `read_archived` reads from the lake the offsets that the broker has removed. With `holes` a row marks missing
    messages at the first and at the last offset of the range. If the queue was deleted and created again meanwhile,
    `read_archived` reads the rest, or PipelineError is raised; without `fail_on_data_loss` the rest is skipped.
    """
    first = covered = part.first
    if first >= part.stop:
        return
    with ThreadPoolExecutor(1) as ahead:

        def ask(offset: int) -> Future[tuple[ReadMeta, list[Batch]]]:
            call = bulk.read_range(
                queue, part.partition, offset, part.stop, max_bytes=READ_BYTES, uuid=part.uuid or None
            )
            return ahead.submit(broker.ask_patiently, call)

        coming = ask(first)
        while True:
            try:
                meta, batches = coming.result()
            except OtherIncarnation as error:
                if read_archived is not None:
                    yield from read_archived(first, part.stop)
                elif fail_on_data_loss:
                    raise PipelineError(f"{error}: it has not all that was asked for. {_IGNORE_LATER}") from None
                return
            if meta.skipped and read_archived is not None:
                yield from read_archived(first, min(part.stop, first + meta.skipped))
            elif meta.skipped and fail_on_data_loss:
                stop = min(part.stop, first + meta.skipped)
                raise PipelineError(
                    f"queue {queue} no longer has all that was asked for: partition {part.partition}: offsets {first} "
                    f"to {stop - 1} ({stop - first} messages). To read what is left, {_IGNORE}"
                )
            ended = meta.next_offset >= part.stop or meta.next_offset <= first
            if not ended:
                first = meta.next_offset
                coming = ask(first)
            if batches:
                if holes and covered == part.first < meta.runs[0].offset:
                    yield hole(part.partition, covered, meta.runs[0].offset, schema)
                yield messages(meta.runs, batches, schema, part.uuid)
                covered = meta.runs[-1].offset + meta.runs[-1].count
            if ended:
                reached = min(meta.next_offset, part.stop)
                if holes and covered < reached:
                    yield hole(part.partition, covered, reached, schema)
                return
