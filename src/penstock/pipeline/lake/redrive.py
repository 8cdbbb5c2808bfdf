"""Publish messages of the archive again: chosen by a predicate, each once, at a limited rate.

The choice is made once: Spark writes the chosen rows to files, then a record in the table `redrives` names these files.
From there on the redrive is a list that is published in order, under sequence numbers by which the broker recognises a
repeated publish. A later run with the same id goes on with that list, whatever was archived since.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import limits
from penstock.client import lowlevel as calls
from penstock.errors import Conflict, PenstockError, QueueFull
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.parquet_files import sync
from penstock.pipeline.lake.redrive_table import RedriveRows, RedriveTable
from penstock.pipeline.lake.subject import Subject
from penstock.pipeline.lake.tables import Lake, LakeTable
from penstock.pipeline.lifecycle_table import lifecycles
from penstock.pipeline.options import PipelineError
from penstock.pipeline.outgoing import Outgoing, frames
from penstock.pipeline.schema import EVENTS
from penstock.pipeline.union import archived_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = 10
RATE_PER_S = 1_000
STEPS_PER_S = 10
"""A step publishes a tenth of the rate."""
PAUSE_S = 1.0
"""Between attempts while the target is full."""
_FATES = ("fate", "deliveries", "consumer", "ended_at", "error", "wait_ms", "processing_ms", "end_to_end_ms")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_CHOSEN = ("partition", "offset", "id", "key", "priority", "tenant", "headers", "payload", "is_json")


class RedriveSpec(NamedTuple):
    """The messages that are to be published again, and how."""

    queue: QueuePath
    predicate: str
    group: str | None
    """With a group the predicate may use the columns of `lifecycles` for this group."""
    target: QueuePath
    delay_ms: int = 0
    priority: int | None = None
    uuid: str | None = None
    """The incarnation of the queue; needed only if the lake has several."""


class RedrivePreview(NamedTuple):
    messages: int
    sample: list[dict[str, Any]]


class RedriveOutcome(NamedTuple):
    redrive_id: str
    messages: int
    published: int
    """By this run, without those of earlier runs."""
    seconds: float


class ArchiveRedrive:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        broker: BrokerCalls,
        spec: RedriveSpec,
        redrive_id: str | None = None,
    ):
        """Raises PipelineError if the id is not a name."""
        self.id = redrive_id or secrets.token_hex(8)
        if _NAME.fullmatch(self.id) is None:
            raise PipelineError(
                f"--redrive-id is a name of up to 100 letters, digits, '-', '_' and '.', not {self.id[:120]!r}"
            )
        self._spark = spark
        self._lake = lake
        self._broker = broker
        self._spec = spec
        self._records = RedriveTable(lake)

    def preview(self) -> RedrivePreview:
        """The number of chosen messages and a sample. Changes nothing. Raises PipelineError."""
        chosen = self._chosen(self._lake.table("messages")).persist()
        try:
            sample = chosen.orderBy("partition", "offset").limit(SAMPLE).collect()
            return RedrivePreview(chosen.count(), [_shown(row.asDict()) for row in sample])
        finally:
            chosen.unpersist()

    def run(self, rate_per_s: int = RATE_PER_S, report: Callable[[int, int], None] = lambda *_: None) -> RedriveOutcome:
        """Publish the messages; `report` is called with (published, all). Raises PipelineError."""
        with self._records.locked(self.id):
            return self._run(rate_per_s, report)

    def _run(self, rate_per_s: int, report: Callable[[int, int], None]) -> RedriveOutcome:
        began = time.monotonic()
        record = self._records.find(self.id)
        if record is None:
            self._broker.ask(
                calls.operation("stats", dict[str, Any], queue=self._spec.target)
            )  # raises if there is no such target, before Spark works
            record = self._decide(rate_per_s)
        elif not _is_same(_spec_of(record), self._spec):
            raise PipelineError(
                f"redrive {self.id!r} was something else: {_described(_spec_of(record))}. Choose another --redrive-id"
            )
        if record["state"] == "finished":
            return RedriveOutcome(self.id, record["messages"], 0, time.monotonic() - began)
        rows_left = RedriveRows(self._lake.directory / "redrives" / record["rows"])
        published = 0
        for rows in _publish(self._broker, self.id, self._spec, rows_left, rate_per_s):
            published += rows
            report(rows_left.published, record["messages"])
        self._records.add({**record, "state": "finished", "at": _now(), "by": _operator()})
        rows_left.remove()
        return RedriveOutcome(self.id, record["messages"], published, time.monotonic() - began)

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _chosen(self, table: LakeTable) -> DataFrame:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        spec, subject = self._spec, self._subject(table)
        messages = archived_messages(self._spark, table, subject)
        if messages is None:
            raise PipelineError(f"the files of queue {subject} are missing: `penstock pipeline verify` names them")
        rows = messages.withColumn("text", F.expr("cast(payload as string)"))
        if spec.group is not None:
            rows = rows.join(self._fates(subject, spec.group), ["partition", "offset"], "left")
        try:
            chosen = rows.where(spec.predicate)
            chosen.schema  # noqa: B018  Spark Connect looks at it only when it is asked
        except PySparkException as error:
            raise PipelineError(f"--where: {_first_line(error)}") from None
        return chosen.select(*_CHOSEN)

    def _subject(self, table: LakeTable) -> Subject:
        """The incarnation of the queue that is meant. Raises PipelineError if there is none, or if it is not clear."""
        found = table.subjects(self._spec.queue)
        if self._spec.uuid is not None:
            found = [subject for subject in found if subject.uuid == self._spec.uuid]
        if len(found) == 1:
            return found[0]
        where = f"in the lake in {self._lake.directory}"
        if not found:
            known = ", ".join(map(str, table.subjects())) or "no queue"
            raise PipelineError(f"queue {self._spec.queue} is not {where}; it has {known}")
        choices = ", ".join(f"{each.uuid} ({table.rows_committed(each)} messages)" for each in found)
        raise PipelineError(
            f"queue {self._spec.queue} was deleted and created again, and is {where} {len(found)} times: choose one "
            f"with --uuid: {choices}"
        )

    def _fates(self, subject: Subject, group: str) -> DataFrame:
        """The fates of the messages in a group, from the events in the lake."""
        from pyspark.sql import functions as F

        table = self._lake.table("events")
        files = [str(table.directory / file.path) for file in table.files()]
        columns = ", ".join(f"`{name}` {kind}" for name, kind in EVENTS.items())
        events = self._spark.read.schema(columns).option("recursiveFileLookup", "true").parquet(*files)
        of_queue = f"queue_uuid = '{subject.uuid}'"
        if subject.is_legacy:
            of_queue += f" or (queue_uuid is null and queue = '{subject.queue}')"
        timelines = lifecycles(events.where(of_queue))
        if not timelines.where(F.col("group") == group).limit(1).count():
            raise PipelineError(f"no group {group!r} of queue {subject.queue} is known in the lake")
        return timelines.where(F.col("group") == group).select("partition", "offset", *_FATES)

    def _decide(self, rate_per_s: int) -> dict[str, Any]:
        """Write the chosen rows to files, then add the record that makes them the list of this redrive."""
        name = f"_work/{self.id}-{secrets.token_hex(4)}"
        rows = self._lake.directory / "redrives" / name
        rows.parent.mkdir(parents=True, exist_ok=True)
        # One version of the table, which the record names: rows that are archived meanwhile are not in it.
        table = self._lake.table("messages")
        self._chosen(table).orderBy("partition", "offset").write.parquet(str(rows))
        for each in sorted(rows.iterdir()):
            sync(each)
        sync(rows)
        count = sum(pq.read_metadata(path).num_rows for path in rows.glob("*.parquet"))
        spec = self._spec
        record = {
            "redrive_id": self.id, "state": "started", "at": _now(), "by": _operator(), "queue": spec.queue,
            "predicate": spec.predicate, "group": spec.group, "target": spec.target, "delay_ms": spec.delay_ms,
            "priority": spec.priority, "rate_per_s": rate_per_s, "messages": count, "rows": name,
            "version": table.version, "queue_uuid": self._subject(table).uuid,
        }  # fmt: skip
        self._records.add(record)
        return record


def _publish(
    broker: BrokerCalls, redrive_id: str, spec: RedriveSpec, source: RedriveRows, rate_per_s: int
) -> Iterator[int]:
    """Publish in steps; yields the number of rows of each step."""
    step = max(1, min(limits.BATCH_MESSAGES_MAX, rate_per_s // STEPS_PER_S))
    next_at = time.monotonic()
    for rows in source.unpublished(step):
        for outgoing in frames(iter([_with_headers(rows, spec, redrive_id)]), spec.target):
            _send(broker, outgoing, calls.ProducerSeq(f"redrive:{redrive_id}", 1, source.published))
            source.mark_published(outgoing.rows)
            yield outgoing.rows
            next_at = max(next_at, time.monotonic()) + outgoing.rows / rate_per_s
            time.sleep(max(0.0, next_at - time.monotonic()))


def _send(broker: BrokerCalls, outgoing: Outgoing, number: calls.ProducerSeq) -> None:
    while True:
        try:
            broker.ask_raw(calls.publish(outgoing.queue, outgoing.frame, number))
            return
        except QueueFull:
            time.sleep(PAUSE_S)
        except Conflict as error:
            if "seq" not in error.details:
                raise PipelineError(f"queue {outgoing.queue} does not take them: {error.message}") from None
            return  # the broker has this sequence number, but no longer the id of the message
        except PenstockError as error:
            raise PipelineError(f"queue {outgoing.queue} does not take them: {error.message}") from None


def _with_headers(rows: pa.RecordBatch, spec: RedriveSpec, redrive_id: str) -> pa.RecordBatch:
    """The columns to publish: the same bytes, with headers that name queue, message and redrive."""
    table = {name: rows.column(name) for name in ("key", "priority", "tenant", "payload", "is_json")}
    marks = {"penstock-archive-queue": spec.queue, "penstock-redrive": redrive_id}
    headers = [
        _marked(dict(own or ()), {**marks, "penstock-archive-id": id})
        for own, id in zip(rows.column("headers").to_pylist(), rows.column("id").to_pylist(), strict=True)
    ]
    table["headers"] = pa.array(headers, pa.map_(pa.string(), pa.string()))
    if spec.priority is not None:
        table["priority"] = pa.array([spec.priority] * rows.num_rows, pa.int64())
    if spec.delay_ms:
        table["delay_ms"] = pa.array([spec.delay_ms] * rows.num_rows, pa.int64())
    return pa.RecordBatch.from_pydict(table)


def _marked(own: dict[str, str], marks: dict[str, str]) -> list[tuple[str, str]]:
    """The headers with the marks, or without them if they would exceed the limits."""
    headers = {**own, **marks}
    size = len(msgspec.json.encode(headers))
    fits = len(headers) <= limits.HEADERS_COUNT_MAX and size <= limits.HEADERS_BYTES_MAX
    return list((headers if fits else own).items())


def _spec_of(record: dict[str, Any]) -> RedriveSpec:
    return RedriveSpec(
        QueuePath(record["queue"]), record["predicate"], record["group"], QueuePath(record["target"]),
        record["delay_ms"], record["priority"], record["queue_uuid"],
    )  # fmt: skip


def _is_same(known: RedriveSpec, asked: RedriveSpec) -> bool:
    """Whether two specs are equal. Uuids are compared if both have one: the option may be left out."""
    uuid = known.uuid if None not in (known.uuid, asked.uuid) else asked.uuid
    return known._replace(uuid=uuid) == asked


def _described(spec: RedriveSpec) -> str:
    return f"queue {spec.queue}, where {spec.predicate!r}, to {spec.target}"


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    payload = bytes(row["payload"])
    text = payload[:200].decode("utf-8", "backslashreplace")
    return {name: row[name] for name in ("partition", "offset", "id", "key", "priority")} | {"payload": text}


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _now() -> Any:
    return pa.scalar(time.time_ns() // 1000, pa.timestamp("us", "UTC")).as_py()


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def redrive_spec(
    queue: str,
    predicate: str,
    *,
    group: str | None,
    target: str | None,
    delay_ms: int,
    priority: int | None,
    uuid: str | None = None,
) -> RedriveSpec:
    """A spec from the options of the command. Raises PipelineError for names that are not queues."""
    try:
        path = parse_queue(queue)
        return RedriveSpec(path, predicate, group, parse_queue(target) if target else path, delay_ms, priority, uuid)
    except PenstockError as error:
        raise PipelineError(error.message) from None
