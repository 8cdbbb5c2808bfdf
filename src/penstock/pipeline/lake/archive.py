"""Copy queues and events into a lake: one Spark query for each of them, and a hold that follows what is committed.

What was copied is known by the lake itself (`tables.py`), so every query begins where its table ends, with a checkpoint
of its own. One of an earlier run could ask for a batch that is in the lake, and that the broker has let go of since.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client import lowlevel as calls
from penstock.client.lowlevel import bulk
from penstock.errors import PenstockError
from penstock.ids import parse_queue
from penstock.pipeline.connect import Broker
from penstock.pipeline.lake.hold import LakeHold, NoSuchQueue
from penstock.pipeline.lake.spans import frame_of
from penstock.pipeline.lake.tables import EVENTS, OVERTAKEN, Lake
from penstock.pipeline.options import PipelineError
from penstock.pipeline.staging import ROOM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AT_ONCE_MAX = 4
"""Queries that run side by side when each of them will end: they share the same cores."""
ROWS_PER_TASK = 100_000
LOOK_EVERY_S = 0.2
NEW_QUEUES_EVERY_S = 1.0
"""At most so often; as often as there are batches, if these are rarer."""
FAILURES_MAX = 5
"""Of one query, one after the other."""
_PAGE = 500
_OURS = "PipelineError: "


class Progress(NamedTuple):
    """A batch that is in the lake."""

    source: str
    batch: int
    rows: int
    rows_per_second: float


class Archive:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        broker: Broker,
        *,
        queues: list[str] | None = None,
        events: bool = True,
        rows_per_batch: int = 1_000_000,
        hold_bytes: int | None = None,
        adopt: bool = False,
        report: Callable[[Progress], None] = lambda _: None,
    ):
        """`queues` None: those that keep their log; some may come, and some be deleted, while it runs.

        Without `events` nothing else.
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
        self._held: list[str] = []
        self._seen: dict[str, int] = {}
        """Source -> the last batch that was told of."""
        self._failures: dict[str, int] = {}
        """Source -> how often its query has failed since it last had a batch."""
        self._looked: dict[str, str] = {}
        """Source -> which progress of its query was the last to be looked at."""
        self._overtaken = 0
        """How often somebody else had committed what a query was about to."""
        self._rows = 0

    def once(self) -> int:
        """Copy what is there now. Returns the number of rows. Raises PipelineError."""
        waiting = self._prepare()
        running: dict[str, StreamingQuery] = {}
        try:
            while waiting or running:
                if len(running) < AT_ONCE_MAX:
                    self._start_next(waiting, running, {"availableNow": True})
                time.sleep(LOOK_EVERY_S)
                ended = [source for source, query in running.items() if not query.isActive]
                waiting += self._look(running)
                for source in ended:
                    running.pop(source, None)
        finally:
            self._stop(running)
        self._move()
        return self._rows

    def follow(self, every_s: float, stopping: threading.Event) -> None:
        """Copy what is there and what comes, until somebody sets `stopping`. Raises PipelineError."""
        trigger = {"processingTime": f"{round(every_s * 1000)} milliseconds"}
        waiting = self._prepare()
        running: dict[str, StreamingQuery] = {}
        looked = time.monotonic()
        try:
            while not stopping.wait(LOOK_EVERY_S):
                self._start_next(waiting, running, trigger)
                waiting += self._look(running)
                if self._asked is None and time.monotonic() - looked > max(every_s, NEW_QUEUES_EVERY_S):
                    looked = time.monotonic()
                    new = [queue for queue in self._queues() if queue not in running and queue not in waiting]
                    for queue in new:
                        self._check(queue)
                    self._hold_too(new)
                    waiting += new
        finally:
            self._stop(running)
        self._move()

    def _start_next(self, waiting: list[str], running: dict[str, StreamingQuery], trigger: dict[str, Any]) -> None:
        """One after the other: each begins with a Python process of its own, to which Spark gives ten seconds."""
        if waiting and all(_has_begun(query) for query in running.values()):
            source = waiting.pop(0)
            running[source] = self._start(source, trigger)

    def _prepare(self) -> list[str]:
        """Everything that can be wrong is found, and retention waits, before the first row is read."""
        queues = self._queues()
        self._hold.check(adopt=self._adopt)
        for queue in queues:
            self._check(queue)
        table = self._lake.table("messages")
        self._hold_too([*_still_there(self._broker, table.sources()), *queues])
        return [EVENTS, *queues] if self._events else queues

    def _check(self, queue: str) -> None:
        """That what the lake has of this queue can have come from it."""
        extent = self._broker.ask(bulk.extent(parse_queue(queue)))
        ends = {each.partition: each.end_offset for each in extent.partitions}
        done = self._lake.table("messages").positions(queue)
        beyond = {lane: at for lane, at in done.items() if at > ends.get(lane, 0)}
        if beyond:
            raise PipelineError(
                f"the lake has more of queue {queue} than the broker at {self._broker.url} ever "
                f"had (partition, offset: {beyond}): it is another broker, or the queue was deleted and made "
                "again. Use another lake"
            )

    def _hold_too(self, queues: list[str]) -> None:
        self._held = sorted({*self._held, *queues})
        self._move()

    def _move(self) -> None:
        try:
            self._hold.move(self._held)
        except NoSuchQueue:
            if self._asked is not None:
                raise
            self._held = _still_there(self._broker, self._held)
            self._hold.move(self._held)

    def _queues(self) -> list[str]:
        if self._asked is not None:
            return self._asked
        return [
            queue
            for queue, config in _listed(self._broker)
            if config["retention"]["mode"] == "keep" and not queue.startswith(f"{ROOM}/")
        ]

    def _start(self, source: str, trigger: dict[str, Any]) -> StreamingQuery:
        table = self._lake.table("events" if source == EVENTS else "messages")
        done = table.positions(source)
        if source == EVENTS:
            done = {lane: frame_of(place - 1) for lane, place in done.items()}
        begin = json.dumps({str(lane): at for lane, at in done.items()}) if done else "earliest"
        options = {
            "url": self._broker.url, "table": table.layout.table, "startingOffset": begin,
            "maxRecordsPerTrigger": str(self._rows_per_batch), "maxRecordsPerPartition": str(ROWS_PER_TASK),
            "retryFor": str(round(self._broker.retry_for_s)),
        }  # fmt: skip
        sink = {"lakeDirectory": str(table.directory), "table": table.layout.table}
        if source != EVENTS:
            options["queue"] = sink["queue"] = source
            options["holes"] = "true"
        if self._broker.token is not None:
            options["token"] = self._broker.token
        checkpoint = self._lake.checkpoints / table.layout.table / source
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._seen.pop(source, None)
        rows = self._spark.readStream.format("penstock").options(**options).load()
        return (
            rows.writeStream.format("penstock").options(**sink).queryName(f"archive {source}")
            .option("checkpointLocation", str(checkpoint))
            .trigger(**trigger).start()
        )  # fmt: skip

    def _look(self, running: dict[str, StreamingQuery]) -> list[str]:
        """Tell of batches that have come since, and let the broker go of what is in the lake now.

        Returns what has to be started again. A query that Spark has failed, and not the broker or the lake, goes on
        from where it was: a worker has died, or was not there in time. So does one that was overtaken: of an archive
        that was killed just now, a worker may live for long enough to commit its batch.
        """
        moved = False
        again: list[str] = []
        for source, query in list(running.items()):
            for batch, rows, speed in self._batches(source, query):
                moved = True
                self._failures.pop(source, None)
                self._rows += rows
                self._report(Progress(source, batch, rows, speed))
            failure = query.exception()
            if failure is None:
                continue
            del running[source]
            if self._was_deleted(source):
                self._seen.pop(source, None)
                self._held = [queue for queue in self._held if queue != source]
                moved = True
                continue
            self._failures[source] = self._failures.get(source, 0) + 1
            self._overtaken += (was_overtaken := OVERTAKEN in str(failure))
            is_ours = _OURS in str(failure) and not was_overtaken
            if is_ours or self._failures[source] > FAILURES_MAX or self._overtaken > FAILURES_MAX:
                raise PipelineError(_said(str(failure))) from None
            again.append(source)
        if moved:
            self._move()
        return again

    def _batches(self, source: str, query: StreamingQuery) -> Iterator[tuple[int, int, float]]:
        """(batch, rows, rows per second) of those that are not known yet and have rows."""
        last = query.lastProgress
        if last is None or last["timestamp"] == self._looked.get(source):
            return
        self._looked[source] = last["timestamp"]
        for each in query.recentProgress:
            batch, rows = int(each["batchId"]), int(each["numInputRows"])
            # While there is nothing to do, Spark tells again and again of the batch that would be next.
            if rows and batch > self._seen.get(source, -1):
                self._seen[source] = batch
                yield batch, rows, float(each.get("processedRowsPerSecond") or 0)

    def _was_deleted(self, source: str) -> bool:
        """Nobody has asked for this queue by name, and it is not there any more."""
        return self._asked is None and source != EVENTS and not _still_there(self._broker, [source])

    def _stop(self, running: dict[str, StreamingQuery]) -> None:
        for query in running.values():
            query.stop()


def _has_begun(query: StreamingQuery) -> bool:
    """True also for one that has ended already."""
    return not query.isActive or not str(query.status["message"]).startswith(("Initializing", "Getting offsets"))


def _path(queue: str) -> str:
    try:
        return parse_queue(queue)
    except PenstockError as error:
        raise PipelineError(error.message) from None


def _listed(broker: Broker) -> Iterator[tuple[str, Any]]:
    page = 1
    while True:
        listed = broker.ask(calls.list_queues(prefix="", page=page, limit=_PAGE))
        yield from ((entry["queue"], entry["config"]) for entry in listed["queues"])
        if page * _PAGE >= listed["total"]:
            return
        page += 1


def _still_there(broker: Broker, queues: list[str]) -> list[str]:
    """Without those that were deleted since."""
    there = {queue for queue, _ in _listed(broker)} if queues else set()
    return [queue for queue in queues if queue in there]


def _said(text: str) -> str:
    """The sentence that is ours, out of all that Spark says around it."""
    ours = [line.partition(_OURS)[2] for line in text.splitlines() if _OURS in line]
    return ours[-1] if ours else text
