"""The writers that Spark calls: tasks stage rows as frames, the commit publishes them as messages (`staging.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.ids import QueuePath
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.options import Options, PipelineError
from penstock.pipeline.outgoing import frames
from penstock.pipeline.staging import Commit, Stage, Staged

COLUMNS = {
    "payload": ("binary", "string"),
    "key": ("string",),
    "priority": ("bigint", "int", "smallint", "tinyint"),
    "delay_ms": ("bigint", "int", "smallint", "tinyint"),
    "headers": ("map<string,string>",),
    "tenant": ("string",),
    "is_json": ("boolean",),
    "queue": ("string",),
}
ONCE = 0
"""The batch of a job that has only one."""


class StagedTask(WriterCommitMessage):
    """The frames that a task has staged."""

    def __init__(self, job: str, batch: int, task: int, staged: Sequence[Staged]):
        self.job = job
        self.batch = batch
        self.task = task
        self.staged = list(staged)


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: Options, schema: StructType):
        self._broker = BrokerCalls.of(options)
        self._queue = checked_target(options, schema)
        self._named = options.job_id is not None
        self._job = options.job_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task().partitionId()
        return StagedTask(self._job, ONCE, task, _staged(self._broker, self._job, ONCE, iterator, self._queue))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit = Commit(self._broker, self._job, ONCE)
        commit.publish(_by_task(messages))
        if not self._named:
            commit.forget()  # a repeated job would have another random name

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        Commit(self._broker, self._job, ONCE).give_up(late_tasks=_others_run(messages))


class StreamSink(DataSourceStreamArrowWriter):
    """Spark makes one instance per batch and another for its commit; they share data through the commit messages."""

    def __init__(self, options: Options, schema: StructType):
        self._broker = BrokerCalls.of(options)
        self._queue = checked_target(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise PipelineError("this version of Spark does not pass query and batch to its tasks")
        staged = _staged(self._broker, query, int(batch), iterator, self._queue)
        return StagedTask(query, int(batch), context.partitionId(), staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done = _by_task(messages)
        for job in {each.job for each in messages if isinstance(each, StagedTask)}:
            Commit(self._broker, job, batchId).publish(done)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for job in {each.job for each in messages if isinstance(each, StagedTask)}:
            Commit(self._broker, job, batchId).give_up(late_tasks=_others_run(messages))


def _by_task(messages: Sequence[WriterCommitMessage | None]) -> list[tuple[int, list[Staged]]]:
    return sorted((each.task, each.staged) for each in messages if isinstance(each, StagedTask))


def _others_run(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether a failed job may have running tasks: more than one task has no result."""
    return sum(each is None for each in messages) > 1


def _staged(
    broker: BrokerCalls, job: str, batch: int, rows: Iterator[pa.RecordBatch], queue: QueuePath | None
) -> list[Staged]:
    stage = Stage(broker, job, batch)
    return [stage.put(frame) for frame in frames(rows, queue)]


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer writes inside a task"
    return context


def checked_target(options: Options, schema: StructType) -> QueuePath | None:
    """The queue for rows without a column `queue`. Raises PipelineError for columns that the sink does not take."""
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise PipelineError(
                f"the sink has no column {field.name!r}; it takes {', '.join(COLUMNS)}. To publish whole rows, select "
                "to_json(struct(*)) as payload"
            )
        if field.dataType.simpleString() not in kinds:
            raise PipelineError(
                f"column {field.name!r} of the sink is {' or '.join(kinds)}, not {field.dataType.simpleString()}"
            )
    names = schema.fieldNames()
    if "payload" not in names:
        raise PipelineError("the sink needs a column `payload`, binary or string")
    queue = options.queue_or_none
    if queue is None and "queue" not in names:
        raise PipelineError('the sink needs a queue: .option("queue", "orders"), or a column `queue`')
    return queue
