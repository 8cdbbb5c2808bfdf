"""Copy queues and events into a lake: one Spark query for each of them, and a hold that follows what is committed.

The lake has the position of each subject (`tables.py`), so every query begins where its table ends, with a new
checkpoint. The checkpoint of an earlier run could ask for a batch that is in the lake and that the broker has removed.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import PenstockError
from penstock.ids import parse_queue
from penstock.pipeline import bulk
from penstock.pipeline.connect import BrokerCalls, broker_id, listed_queues
from penstock.pipeline.lake.hold import LakeHold, NoSuchQueue
from penstock.pipeline.lake.spans import frame_of
from penstock.pipeline.lake.subject import EVENTS, Subject
from penstock.pipeline.lake.tables import OVERTAKEN, Lake
from penstock.pipeline.options import PipelineError
from penstock.pipeline.staging import NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AT_ONCE_MAX = 4
"""Queries that run at the same time in `once`: they share the same cores."""
ROWS_PER_TASK = 100_000
LOOK_EVERY_S = 0.2
NEW_QUEUES_EVERY_S = 1.0
"""The shortest interval; the interval of batches applies if it is longer."""
FAILURES_MAX = 5
"""Consecutive failures of one query."""
_OURS = "PipelineError: "
_log = logging.getLogger("penstock.pipeline")


class BatchProgress(NamedTuple):
    """A batch that is in the lake."""

    source: str
    """The path of the queue, or `events`."""
    batch: int
    rows: int
    rows_per_second: float


class Archive:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        broker: BrokerCalls,
        *,
        queues: list[str] | None = None,
        events: bool = True,
        rows_per_batch: int = 1_000_000,
        hold_bytes: int | None = None,
        adopt: bool = False,
        report: Callable[[BatchProgress], None] = lambda _: None,
    ):
        """`queues` None: those that keep their log and are not encrypted; queues may be created and deleted while the
        archive runs.

        Without `events` the queues alone are copied.
        """
        self._spark = spark
        self._lake = lake
        self._broker = broker
        self._asked = None if queues is None else [_path(queue) for queue in queues]
        self._events = events
        self._rows_per_batch = rows_per_batch
        self._hold = LakeHold(broker, lake, hold_bytes)
        self._adopt = adopt
        self._report = report
        self._held: list[Subject] = []
        self._seen: dict[Subject, int] = {}
        """The last batch that was reported."""
        self._failures: dict[Subject, int] = {}
        """How often the query has failed since its last batch."""
        self._looked: dict[Subject, str] = {}
        """The timestamp of the query's progress that was looked at last."""
        self._overtaken = 0
        """How often another process had committed the batch that a query was about to commit."""
        self._rows = 0

    def once(self) -> int:
        """Copy what is there now. Returns the number of rows. Raises PipelineError."""
        with self._lake.locked("archive"):
            return self._once()

    def _once(self) -> int:
        waiting = self._prepare()
        running: dict[Subject, StreamingQuery] = {}
        try:
            while waiting or running:
                if len(running) < AT_ONCE_MAX:
                    self._start_next(waiting, running, {"availableNow": True})
                time.sleep(LOOK_EVERY_S)
                ended = [subject for subject, query in running.items() if not query.isActive]
                waiting += self._look(running)
                for subject in ended:
                    running.pop(subject, None)
        finally:
            self._stop(running)
        self._move()
        return self._rows

    def follow(self, every_s: float, stopping: threading.Event) -> None:
        """Copy what is there and what comes, until `stopping` is set. Raises PipelineError."""
        with self._lake.locked("archive"):
            self._follow(every_s, stopping)

    def _follow(self, every_s: float, stopping: threading.Event) -> None:
        trigger = {"processingTime": f"{round(every_s * 1000)} milliseconds"}
        waiting = self._prepare()
        running: dict[Subject, StreamingQuery] = {}
        looked = time.monotonic()
        try:
            while not stopping.wait(LOOK_EVERY_S):
                self._start_next(waiting, running, trigger)
                waiting += self._look(running)
                if self._asked is None and time.monotonic() - looked > max(every_s, NEW_QUEUES_EVERY_S):
                    looked = time.monotonic()
                    waiting += self._begin(each for each in self._queues() if each not in {*running, *waiting})
        finally:
            self._stop(running)
        self._move()

    def _start_next(
        self, waiting: list[Subject], running: dict[Subject, StreamingQuery], trigger: dict[str, Any]
    ) -> None:
        """Start one query at a time: each starts a Python process, which has to answer Spark within ten seconds."""
        if waiting and all(_has_begun(query) for query in running.values()):
            subject = waiting.pop(0)
            if subject not in running:
                running[subject] = self._start(subject, trigger)

    def _prepare(self) -> list[Subject]:
        """The subjects to copy. All checks are made, and the hold is set, before the first row is read."""
        broker, present = broker_id(self._broker), _present(self._broker)
        self._lake.check_broker(broker)
        self._hold.check(adopt=self._adopt)
        for subject in self._lake.bind(broker, {path: uuid for path, (uuid, _) in present.items()}):
            _log.warning(
                "lake_queue_adopted: the lake has no uuid for queue %s and takes the present incarnation, %s",
                subject.queue, subject.uuid,
            )  # fmt: skip
        for path in self._asked or ():
            if path not in present:
                self._broker.ask(bulk.extent(parse_queue(path)))  # raises the broker's own sentence
        archived = {subject for subject in self._lake.table("messages").subjects() if _is_present(subject, present)}
        self._held = sorted(archived)
        queues = self._begin(self._queues())
        return [EVENTS, *queues] if self._events else queues

    def _begin(self, queues: Iterable[Subject]) -> list[Subject]:
        """Check and hold new queues."""
        new = list(queues)
        for subject in new:
            self._check(subject)
        if new:
            self._held = sorted({*self._held, *new})
            self._move()
        return new

    def _check(self, subject: Subject) -> None:
        """Raises PipelineError if the lake has more of this queue than the broker."""
        extent = self._broker.ask(bulk.extent(parse_queue(subject.queue)))
        ends = {each.partition: each.end_offset for each in extent.partitions}
        done = self._lake.table("messages").positions(subject)
        beyond = {lane: at for lane, at in done.items() if at > ends.get(lane, 0)}
        if beyond and subject.uuid in (None, extent.uuid):
            raise PipelineError(
                f"the lake has more of queue {subject} than the broker at {self._broker.url} has "
                f"(partition, offset: {beyond}): it is another broker, or it was restored from an older copy. "
                "Use another lake"
            )

    def _move(self) -> None:
        try:
            self._hold.move(self._held)
        except NoSuchQueue:
            present = _present(self._broker)
            self._held = [subject for subject in self._held if _is_present(subject, present)]
            if any(path not in present for path in self._asked or ()):
                raise
            self._hold.move(self._held)

    def _queues(self) -> list[Subject]:
        """The queues to copy, as they are now."""
        present = _present(self._broker)
        if self._asked is not None:
            return [self._lake.subject(path, present[path][0]) for path in self._asked if path in present]
        return [
            self._lake.subject(path, uuid)
            for path, (uuid, config) in present.items()
            if is_copied_unnamed(path, config)
        ]

    def _start(self, subject: Subject, trigger: dict[str, Any]) -> StreamingQuery:
        table = self._lake.table("events" if subject == EVENTS else "messages")
        done = table.positions(subject)
        if subject == EVENTS:
            done = {lane: frame_of(place - 1) for lane, place in done.items()}
        begin = json.dumps({str(lane): at for lane, at in done.items()}) if done else "earliest"
        options = {
            "url": self._broker.url, "table": table.layout.table, "startingOffset": begin,
            "maxRecordsPerTrigger": str(self._rows_per_batch), "maxRecordsPerPartition": str(ROWS_PER_TASK),
            "retryFor": str(round(self._broker.retry_for_s)),
        }  # fmt: skip
        sink = {"lakeDirectory": str(self._lake.directory), "table": table.layout.table}
        if subject.uuid is not None:
            options["queue"] = sink["queue"] = subject.queue
            options["queueUuid"] = sink["queueUuid"] = subject.uuid
            options["holes"] = "true"
        if self._broker.token is not None:
            options["token"] = self._broker.token
        checkpoint = self._checkpoint(subject)
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._seen.pop(subject, None)
        rows = self._spark.readStream.format("penstock").options(**options).load()
        return (
            rows.writeStream.format("penstock").options(**sink).queryName(f"archive {subject.key}")
            .option("checkpointLocation", str(checkpoint))
            .trigger(**trigger).start()
        )  # fmt: skip

    def _checkpoint(self, subject: Subject) -> Path:
        """Each incarnation of a queue has its own checkpoint and query name: the query of a deleted queue may still run
        when the query of its successor starts."""
        return self._lake.checkpoints / ("events" if subject == EVENTS else "messages") / subject.key

    def _look(self, running: dict[Subject, StreamingQuery]) -> list[Subject]:
        """Report new batches, and move the hold to what is in the lake now. Returns the subjects to start.

        A query that failed in Spark itself is started again: a worker has crashed, or started too late. So is a query
        that was overtaken: a worker of an archive that was killed may still commit its batch. A queue that was deleted
        and created again is another subject.
        """
        moved = False
        again: list[Subject] = []
        for subject, query in list(running.items()):
            for batch, rows, speed in self._batches(subject, query):
                moved = True
                self._failures.pop(subject, None)
                self._rows += rows
                self._report(BatchProgress(subject.queue, batch, rows, speed))
            failure = query.exception()
            if failure is None:
                continue
            del running[subject]
            if self._is_gone(subject):
                self._seen.pop(subject, None)
                shutil.rmtree(self._checkpoint(subject), ignore_errors=True)
                self._held = [each for each in self._held if each != subject]
                again += self._begin(each for each in self._queues() if each.queue == subject.queue)
                moved = True
                continue
            self._failures[subject] = self._failures.get(subject, 0) + 1
            self._overtaken += (was_overtaken := OVERTAKEN in str(failure))
            is_ours = _OURS in str(failure) and not was_overtaken
            if is_ours or self._failures[subject] > FAILURES_MAX or self._overtaken > FAILURES_MAX:
                raise PipelineError(_pipeline_sentence(str(failure))) from None
            again.append(subject)
        if moved:
            self._move()
        return again

    def _batches(self, subject: Subject, query: StreamingQuery) -> Iterator[tuple[int, int, float]]:
        """(batch, rows, rows per second) of the batches that were not reported yet and have rows."""
        last = query.lastProgress
        if last is None or last["timestamp"] == self._looked.get(subject):
            return
        self._looked[subject] = last["timestamp"]
        for each in query.recentProgress:
            # The properties, not the items: over Spark Connect the sums are None, and only the sources have numbers.
            batch, rows = each.batchId, each.numInputRows
            # While there is no data, Spark repeats the progress of the next batch, without rows.
            if rows and batch > self._seen.get(subject, -1):
                self._seen[subject] = batch
                yield batch, rows, sum(source.processedRowsPerSecond or 0.0 for source in each.sources)

    def _is_gone(self, subject: Subject) -> bool:
        """The queue was deleted. One that was asked for by name must have been created again, or it is an error."""
        if subject == EVENTS:
            return False
        present = _present(self._broker)
        return not _is_present(subject, present) and (self._asked is None or subject.queue in present)

    def _stop(self, running: dict[Subject, StreamingQuery]) -> None:
        for query in running.values():
            query.stop()


def _has_begun(query: StreamingQuery) -> bool:
    """True also for a query that has ended already."""
    return not query.isActive or not str(query.status["message"]).startswith(("Initializing", "Getting offsets"))


def _path(queue: str) -> str:
    try:
        return parse_queue(queue)
    except PenstockError as error:
        raise PipelineError(error.message) from None


def is_copied_unnamed(path: str, config: dict[str, Any]) -> bool:
    """True if a queue is copied although it was not named. The lake is plaintext, so encrypted queues have to be."""
    if config.get("encryption", False):
        return False
    return bool(config["retention"]["mode"] == "keep") and not path.startswith(f"{NAMESPACE}/")


def _present(broker: BrokerCalls) -> dict[str, tuple[str, Any]]:
    """Path -> (uuid, config) of all queues of the broker."""
    return {entry["queue"]: (entry.get("uuid", ""), entry["config"]) for entry in listed_queues(broker)}


def _is_present(subject: Subject, present: dict[str, tuple[str, Any]]) -> bool:
    return subject.queue in present and present[subject.queue][0] == subject.uuid


def _pipeline_sentence(text: str) -> str:
    """The message of a PipelineError, out of the text that Spark puts around it."""
    ours = [line.partition(_OURS)[2] for line in text.splitlines() if _OURS in line]
    return ours[-1] if ours else text
