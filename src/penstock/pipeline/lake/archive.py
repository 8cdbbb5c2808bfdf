"""Copy queues and events into a lake: one Spark query for each of them, and a hold that follows what is committed.

What was copied is known by the lake itself (`tables.py`). Spark's checkpoints only number batches; one that is lost is
made again and begins where the table ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client import _bulk as bulk
from penstock.client import _calls as calls
from penstock.errors import PenstockError
from penstock.ids import parse_queue
from penstock.pipeline.connect import Broker
from penstock.pipeline.lake.hold import LakeHold
from penstock.pipeline.lake.spans import frame_of
from penstock.pipeline.lake.tables import EVENTS, Lake
from penstock.pipeline.options import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AT_ONCE_MAX = 4
"""Queries that run side by side when each of them will end: they share the same cores."""
ROWS_PER_TASK = 100_000
LOOK_EVERY_S = 0.2
NEW_QUEUES_EVERY_S = 10.0
_PAGE = 500


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
        """`queues` None: those that keep their log, whichever they are. Without `events` nothing else."""
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
        self._rows = 0

    def once(self) -> int:
        """Copy what is there now. Returns the number of rows. Raises PipelineError."""
        waiting = self._prepare()
        running: dict[str, StreamingQuery] = {}
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE_MAX:
                    source = waiting.pop(0)
                    running[source] = self._start(source, {"availableNow": True})
                time.sleep(LOOK_EVERY_S)
                ended = [source for source, query in running.items() if not query.isActive]
                self._look(running)
                for source in ended:
                    del running[source]
        finally:
            self._stop(running)
        self._hold.move(self._held)
        return self._rows

    def follow(self, every_s: float) -> None:
        """Copy what is there and what comes, until somebody interrupts. Raises PipelineError."""
        trigger = {"processingTime": f"{round(every_s * 1000)} milliseconds"}
        running = {source: self._start(source, trigger) for source in self._prepare()}
        looked = time.monotonic()
        try:
            while True:
                time.sleep(LOOK_EVERY_S)
                self._look(running)
                if self._asked is None and time.monotonic() - looked > NEW_QUEUES_EVERY_S:
                    looked = time.monotonic()
                    for queue in self._queues():
                        if queue not in running:
                            self._hold_too([queue])
                            running[queue] = self._start(queue, trigger)
        finally:
            self._stop(running)
            self._hold.move(self._held)

    def _prepare(self) -> list[str]:
        """Everything that can be wrong is found, and retention waits, before the first row is read."""
        queues = self._queues()
        self._hold.check(adopt=self._adopt)
        table = self._lake.table("messages")
        for queue in queues:
            ends = {
                each.partition: each.end_offset for each in self._broker.ask(bulk.extent(parse_queue(queue))).partitions
            }
            beyond = {lane: at for lane, at in table.positions(queue).items() if at > ends.get(lane, 0)}
            if beyond:
                raise PipelineError(
                    f"the lake has more of queue {queue} than the broker at {self._broker.url} ever "
                    f"had (partition, offset: {beyond}): it is another broker, or the queue was deleted and made "
                    "again. Use another lake"
                )
        self._hold_too([*_still_there(self._broker, table.sources()), *queues])
        return [EVENTS, *queues] if self._events else queues

    def _hold_too(self, queues: list[str]) -> None:
        self._held = sorted({*self._held, *queues})
        self._hold.move(self._held)

    def _queues(self) -> list[str]:
        if self._asked is not None:
            return self._asked
        return [queue for queue, config in _listed(self._broker) if config["retention"]["mode"] == "keep"]

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
        if self._broker.token is not None:
            options["token"] = self._broker.token
        rows = self._spark.readStream.format("penstock").options(**options).load()
        return (
            rows.writeStream.format("penstock").options(**sink).queryName(f"archive {source}")
            .option("checkpointLocation", str(self._lake.checkpoints / table.layout.table / source))
            .trigger(**trigger).start()
        )  # fmt: skip

    def _look(self, running: dict[str, StreamingQuery]) -> None:
        """Tell of batches that have come since, and let the broker go of what is in the lake now."""
        moved = False
        for source, query in running.items():
            for each in query.recentProgress:
                batch, rows = int(each["batchId"]), int(each["numInputRows"])
                if batch <= self._seen.get(source, -1):
                    continue
                self._seen[source] = batch
                if rows:
                    moved = True
                    self._rows += rows
                    self._report(Progress(source, batch, rows, float(each.get("processedRowsPerSecond") or 0)))
            failure = query.exception()
            if failure is not None:
                raise PipelineError(_said(str(failure))) from None
        if moved:
            self._hold.move(self._held)

    def _stop(self, running: dict[str, StreamingQuery]) -> None:
        for query in running.values():
            query.stop()


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
    ours = [line.partition("PipelineError: ")[2] for line in text.splitlines() if "PipelineError: " in line]
    return ours[-1] if ours else text
