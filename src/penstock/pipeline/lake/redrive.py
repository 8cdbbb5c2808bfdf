"""Messages out of the archive, published again: chosen by a predicate, each once, no faster than a live queue can take.

What was chosen is decided once: Spark writes the chosen rows down, then a record in the table `redrives` says that they
are what this redrive is about. From there on it is a list that is published in order, under numbers by which the broker
knows what it has. Whoever comes again under the same id goes on with that list, whatever the archive has become.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock import limits
from penstock.client import lowlevel as calls
from penstock.errors import Conflict, PenstockError, QueueFull
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline.connect import Broker
from penstock.pipeline.folding import lifecycles
from penstock.pipeline.lake.lock import locked
from penstock.pipeline.lake.shelf import sync
from penstock.pipeline.lake.subject import Subject
from penstock.pipeline.lake.tables import Lake, Table
from penstock.pipeline.options import PipelineError
from penstock.pipeline.outgoing import Outgoing, frames
from penstock.pipeline.schema import EVENTS
from penstock.pipeline.seam import archived_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = 10
RATE_PER_S = 1_000
STEPS_PER_S = 10
"""A step publishes a tenth of the rate."""
PAUSE_S = 1.0
"""When the target is full."""
RECORDS = pa.schema(
    [
        ("redrive_id", pa.string()), ("state", pa.string()), ("at", pa.timestamp("us", "UTC")), ("by", pa.string()),
        ("queue", pa.string()), ("predicate", pa.string()), ("group", pa.string()), ("target", pa.string()),
        ("delay_ms", pa.int64()), ("priority", pa.int64()), ("rate_per_s", pa.int64()), ("messages", pa.int64()),
        ("rows", pa.string()), ("version", pa.int64()), ("queue_uuid", pa.string()),
    ]
)  # fmt: skip
"""Of the table `redrives`: one row when it was decided, one when it had ended."""
STATES = ("started", "finished")
_FATES = ("fate", "deliveries", "consumer", "ended_at", "error", "wait_ms", "processing_ms", "end_to_end_ms")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_CHOSEN = ("partition", "offset", "id", "key", "priority", "tenant", "headers", "payload", "is_json")


class Wish(NamedTuple):
    """The messages that are to be published again, and how."""

    queue: QueuePath
    predicate: str
    group: str | None
    """With it the predicate may speak of what became of a message in this group."""
    target: QueuePath
    delay_ms: int = 0
    priority: int | None = None
    uuid: str | None = None
    """The incarnation of the queue; needed only if the lake has several."""


class Preview(NamedTuple):
    messages: int
    sample: list[dict[str, Any]]


class Outcome(NamedTuple):
    redrive_id: str
    messages: int
    published: int
    """By this run; what an earlier one had done is not among them."""
    seconds: float


class Redrive:
    def __init__(self, spark: SparkSession, lake: Lake, broker: Broker, wish: Wish, redrive_id: str | None = None):
        """Raises PipelineError."""
        self.id = redrive_id or secrets.token_hex(8)
        if _NAME.fullmatch(self.id) is None:
            raise PipelineError(
                f"--redrive-id is a name of up to 100 letters, digits, '-', '_' and '.', not {self.id[:120]!r}"
            )
        self._spark = spark
        self._lake = lake
        self._broker = broker
        self._wish = wish
        self._records = _Records(lake)

    def preview(self) -> Preview:
        """How many, and the first of them. Changes nothing. Raises PipelineError."""
        chosen = self._chosen(self._lake.table("messages")).persist()
        try:
            sample = chosen.orderBy("partition", "offset").limit(SAMPLE).collect()
            return Preview(chosen.count(), [_shown(row.asDict()) for row in sample])
        finally:
            chosen.unpersist()

    def run(self, rate_per_s: int = RATE_PER_S, report: Callable[[int, int], None] = lambda *_: None) -> Outcome:
        """Publish them; `report` is told how many of how many. Raises PipelineError."""
        with self._records.locked(self.id):
            return self._run(rate_per_s, report)

    def _run(self, rate_per_s: int, report: Callable[[int, int], None]) -> Outcome:
        began = time.monotonic()
        record = self._records.find(self.id)
        if record is None:
            self._broker.ask(calls.stats(self._wish.target))  # a target that is not there is told before the work
            record = self._decide(rate_per_s)
        elif not _is_same(_wish_of(record), self._wish):
            raise PipelineError(
                f"redrive {self.id!r} was something else: {_said(_wish_of(record))}. Choose another --redrive-id"
            )
        if record["state"] == "finished":
            return Outcome(self.id, record["messages"], 0, time.monotonic() - began)
        work = _Work(self._lake.directory / "redrives" / record["rows"])
        published = 0
        for rows in _publish(self._broker, self.id, self._wish, work, rate_per_s):
            published += rows
            report(work.done, record["messages"])
        self._records.note({**record, "state": "finished", "at": _now(), "by": _who()})
        work.remove()
        return Outcome(self.id, record["messages"], published, time.monotonic() - began)

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _chosen(self, table: Table) -> DataFrame:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        wish, subject = self._wish, self._subject(table)
        messages = archived_messages(self._spark, table, subject)
        if messages is None:
            raise PipelineError(f"the files of queue {subject} are missing: `penstock pipeline verify` names them")
        rows = messages.withColumn("text", F.expr("cast(payload as string)"))
        if wish.group is not None:
            rows = rows.join(self._fates(subject, wish.group), ["partition", "offset"], "left")
        try:
            chosen = rows.where(wish.predicate)
            chosen.schema  # noqa: B018  Spark Connect looks at it only when it is asked
        except PySparkException as error:
            raise PipelineError(f"--where: {_first_line(error)}") from None
        return chosen.select(*_CHOSEN)

    def _subject(self, table: Table) -> Subject:
        """The incarnation of the queue that is meant. Raises PipelineError if there is none, or if it is not clear."""
        found = table.subjects(self._wish.queue)
        if self._wish.uuid is not None:
            found = [subject for subject in found if subject.uuid == self._wish.uuid]
        if len(found) == 1:
            return found[0]
        where = f"in the lake in {self._lake.directory}"
        if not found:
            known = ", ".join(map(str, table.subjects())) or "no queue"
            raise PipelineError(f"queue {self._wish.queue} is not {where}; it has {known}")
        choices = ", ".join(f"{each.uuid} ({table.rows_committed(each)} messages)" for each in found)
        raise PipelineError(
            f"queue {self._wish.queue} was deleted and created again, and is {where} {len(found)} times: choose one "
            f"with --uuid: {choices}"
        )

    def _fates(self, subject: Subject, group: str) -> DataFrame:
        """The fates of the messages in a group, as far as the events in the lake tell them."""
        from pyspark.sql import functions as F

        table = self._lake.table("events")
        files = [str(table.directory / file.path) for file in table.files()]
        columns = ", ".join(f"`{name}` {kind}" for name, kind in EVENTS.items())
        events = self._spark.read.schema(columns).option("recursiveFileLookup", "true").parquet(*files)
        of_queue = f"queue_uuid = '{subject.uuid}'"
        if subject.is_legacy:
            of_queue += f" or (queue_uuid is null and queue = '{subject.queue}')"
        lives = lifecycles(events.where(of_queue))
        if not lives.where(F.col("group") == group).limit(1).count():
            raise PipelineError(f"no group {group!r} of queue {subject.queue} is known in the lake")
        return lives.where(F.col("group") == group).select("partition", "offset", *_FATES)

    def _decide(self, rate_per_s: int) -> dict[str, Any]:
        """Write down what was chosen, then that this is it."""
        name = f"_work/{self.id}-{secrets.token_hex(4)}"
        rows = self._lake.directory / "redrives" / name
        rows.parent.mkdir(parents=True, exist_ok=True)
        # One version of the table, which the record names: whatever is archived meanwhile is not looked at.
        table = self._lake.table("messages")
        self._chosen(table).orderBy("partition", "offset").write.parquet(str(rows))
        for each in sorted(rows.iterdir()):
            sync(each)
        sync(rows)
        count = sum(pq.read_metadata(path).num_rows for path in rows.glob("*.parquet"))
        wish = self._wish
        record = {
            "redrive_id": self.id, "state": "started", "at": _now(), "by": _who(), "queue": wish.queue,
            "predicate": wish.predicate, "group": wish.group, "target": wish.target, "delay_ms": wish.delay_ms,
            "priority": wish.priority, "rate_per_s": rate_per_s, "messages": count, "rows": name,
            "version": table.version, "queue_uuid": self._subject(table).uuid,
        }  # fmt: skip
        self._records.note(record)
        return record


class _Records:
    """The table `redrives` of a lake: who published what again, and when."""

    def __init__(self, lake: Lake):
        self._path = lake.directory / "redrives"

    def locked(self, redrive_id: str) -> AbstractContextManager[None]:
        """Entering it raises PipelineError if another process runs this redrive."""
        work = self._path / "_work"
        work.mkdir(parents=True, exist_ok=True)
        return locked(work / f"{redrive_id}.lock", f"redrive {redrive_id!r} is being run by another process")

    def find(self, redrive_id: str) -> dict[str, Any] | None:
        """The last that is known about it."""
        if not DeltaTable.is_deltatable(str(self._path)):
            return None
        rows = DeltaTable(self._path).to_pyarrow_table(filters=[("redrive_id", "=", redrive_id)]).to_pylist()
        last = max(rows, key=lambda row: STATES.index(row["state"]), default=None)
        return None if last is None else {"queue_uuid": None, **last}

    def note(self, record: dict[str, Any]) -> None:
        """Durable when it returns. Noted once, whatever is repeated."""
        table = DeltaTable.create(self._path, RECORDS, mode="ignore")
        name, number = f"redrive:{record['redrive_id']}", STATES.index(record["state"])
        known = table.transaction_version(name)
        if known is not None and known >= number:
            return
        properties = CommitProperties(app_transactions=[Transaction(name, number)])
        rows = pa.Table.from_pylist([record], RECORDS)
        # The table may have been made before it had all of these columns.
        write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
        log = self._path / "_delta_log"
        for each in (*self._path.glob("*.parquet"), *log.glob("*.json")):
            sync(each)
        sync(log)
        sync(self._path)


class _Work:
    """The rows of a redrive, and how many of them were published."""

    def __init__(self, rows: Path):
        self._rows = rows
        self._noted = rows.with_name(rows.name + ".done")
        self.done = int(self._noted.read_text()) if self._noted.exists() else 0

    def left(self, at_once: int) -> Iterator[pa.RecordBatch]:
        """What is not published yet, in the order in which it was written down."""
        files = sorted(str(path) for path in self._rows.glob("*.parquet"))
        if not files:
            return
        skip = self.done
        for batch in ds.dataset(files, format="parquet").to_batches(batch_size=at_once, batch_readahead=2):
            if skip < batch.num_rows:
                yield batch.slice(skip)
            skip = max(0, skip - batch.num_rows)

    def note(self, rows: int) -> None:
        self.done += rows
        hidden = self._noted.with_name(self._noted.name + ".new")
        hidden.write_text(str(self.done))
        sync(hidden)
        hidden.replace(self._noted)

    def remove(self) -> None:
        shutil.rmtree(self._rows, ignore_errors=True)
        self._noted.unlink(missing_ok=True)


def _publish(broker: Broker, redrive_id: str, wish: Wish, work: _Work, rate_per_s: int) -> Iterator[int]:
    """In steps; yields how many rows each has published."""
    step = max(1, min(limits.BATCH_MESSAGES_MAX, rate_per_s // STEPS_PER_S))
    next_at = time.monotonic()
    for rows in work.left(step):
        for outgoing in frames(iter([_dressed(rows, wish, redrive_id)]), wish.target):
            _send(broker, outgoing, calls.ProducerSeq(f"redrive:{redrive_id}", 1, work.done))
            work.note(outgoing.rows)
            yield outgoing.rows
            next_at = max(next_at, time.monotonic()) + outgoing.rows / rate_per_s
            time.sleep(max(0.0, next_at - time.monotonic()))


def _send(broker: Broker, outgoing: Outgoing, number: calls.ProducerSeq) -> None:
    while True:
        try:
            broker.ask_raw(calls.publish(outgoing.queue, outgoing.frame, number))
            return
        except QueueFull:
            time.sleep(PAUSE_S)
        except Conflict as error:
            if "seq" not in error.details:
                raise PipelineError(f"queue {outgoing.queue} does not take them: {error.message}") from None
            return  # it has this number, and only no longer knows under which id
        except PenstockError as error:
            raise PipelineError(f"queue {outgoing.queue} does not take them: {error.message}") from None


def _dressed(rows: pa.RecordBatch, wish: Wish, redrive_id: str) -> pa.RecordBatch:
    """As they are to be published: the same bytes, and headers that say where they come from."""
    table = {name: rows.column(name) for name in ("key", "priority", "tenant", "payload", "is_json")}
    marks = {"penstock-archive-queue": wish.queue, "penstock-redrive": redrive_id}
    headers = [
        _marked(dict(own or ()), {**marks, "penstock-archive-id": id})
        for own, id in zip(rows.column("headers").to_pylist(), rows.column("id").to_pylist(), strict=True)
    ]
    table["headers"] = pa.array(headers, pa.map_(pa.string(), pa.string()))
    if wish.priority is not None:
        table["priority"] = pa.array([wish.priority] * rows.num_rows, pa.int64())
    if wish.delay_ms:
        table["delay_ms"] = pa.array([wish.delay_ms] * rows.num_rows, pa.int64())
    return pa.RecordBatch.from_pydict(table)


def _marked(own: dict[str, str], marks: dict[str, str]) -> list[tuple[str, str]]:
    """As long as there is room for that."""
    headers = {**own, **marks}
    size = len(msgspec.json.encode(headers))
    fits = len(headers) <= limits.HEADERS_COUNT_MAX and size <= limits.HEADERS_BYTES_MAX
    return list((headers if fits else own).items())


def _wish_of(record: dict[str, Any]) -> Wish:
    return Wish(
        QueuePath(record["queue"]), record["predicate"], record["group"], QueuePath(record["target"]),
        record["delay_ms"], record["priority"], record["queue_uuid"],
    )  # fmt: skip


def _is_same(known: Wish, asked: Wish) -> bool:
    """The uuid counts if both have one: it need not be asked for, and older records have none."""
    uuid = known.uuid if None not in (known.uuid, asked.uuid) else asked.uuid
    return known._replace(uuid=uuid) == asked


def _said(wish: Wish) -> str:
    return f"queue {wish.queue}, where {wish.predicate!r}, to {wish.target}"


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    payload = bytes(row["payload"])
    text = payload[:200].decode("utf-8", "backslashreplace")
    return {name: row[name] for name in ("partition", "offset", "id", "key", "priority")} | {"payload": text}


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _now() -> Any:
    return pa.scalar(time.time_ns() // 1000, pa.timestamp("us", "UTC")).as_py()


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def wish_of(
    queue: str,
    predicate: str,
    *,
    group: str | None,
    target: str | None,
    delay_ms: int,
    priority: int | None,
    uuid: str | None = None,
) -> Wish:
    """As people write it. Raises PipelineError."""
    try:
        path = parse_queue(queue)
        return Wish(path, predicate, group, parse_queue(target) if target else path, delay_ms, priority, uuid)
    except PenstockError as error:
        raise PipelineError(error.message) from None
