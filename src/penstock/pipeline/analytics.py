"""`penstock pipeline analyze`: the history of all messages as numbers per minute, kept up to date batch by batch.

A batch is a stretch of the journal. It is planned first, durably: which frames, and on which versions of the tables it
stands. Then it is worked out, together with what is remembered of the messages it tells of, and committed to each table
under its number. Whatever is interrupted is done again from the same plan, and what was committed before is left alone.
What a batch costs follows from its events: only slots of the messages that it touches are read and written again.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from penstock.analytics import tables
from penstock.analytics.tables import Table
from penstock.client import _bulk as bulk
from penstock.errors import Conflict
from penstock.pipeline import measures
from penstock.pipeline.connect import Broker
from penstock.pipeline.ground import Ground, Queue, place_of
from penstock.pipeline.lifecycles import ROWS, left_open, message_rows, queue_rows, slot_name, unfold
from penstock.pipeline.options import PipelineError
from penstock.pipeline.ranges import gone_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_PER_BATCH = 1_000_000
HOLD = "analytics-"
"""Beginning of the name under which the journal is held; the rest is of the lake."""


class Plan(NamedTuple):
    batch: int
    after_frame: int
    until_frame: int
    is_whole: bool
    """Nothing is missing before it."""
    ground_version: int
    open_version: int
    missing_frames: int
    planned_ms: int


class Step(NamedTuple):
    """A batch that was done."""

    batch: int
    until_frame: int
    end_frame: int
    events: int
    seconds: float

    @property
    def is_caught_up(self) -> bool:
        return self.until_frame >= self.end_frame


class Analysis:
    """The analytics of one broker in one lake."""

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        url: str,
        token: str | None = None,
        *,
        events_per_batch: int = EVENTS_PER_BATCH,
        skip_missing: bool = False,
    ):
        self._spark = spark
        self._url, self._token = url, token
        self._broker = Broker(url, token, 60.0)
        self._lake = Path(lake)
        self._most = events_per_batch
        self._skip_missing = skip_missing
        self._tables = {name: Table(self._lake, name) for name in tables.TABLES}

    def run(self, *, until_caught_up: bool = True, pause_s: float = 10.0) -> Iterator[Step]:
        """Batch after batch: to the end of the journal, or for ever."""
        while True:
            step = self.step()
            if step is not None:
                yield step
            if step is None or step.is_caught_up:
                if until_caught_up:
                    return
                time.sleep(pause_s)

    def step(self) -> Step | None:
        """One batch; None if there is nothing new."""
        began = time.monotonic()
        for table in self._tables.values():
            table.create()
        plan, end = self._plan()
        if plan is None:
            return None
        events = self._events(plan).persist()
        try:
            count = self._work(plan, events)
        finally:
            events.unpersist()
        self._hold(plan.until_frame)
        for table in self._tables.values():
            table.tidy(plan.batch)
        return Step(plan.batch, plan.until_frame, max(end, plan.until_frame), count, time.monotonic() - began)

    # -- planning -----------------------------------------------------------------------------------------------------

    def _plan(self) -> tuple[Plan | None, int]:
        """What is to be done next, and where the journal ends."""
        last = self._last_plan()
        if last is not None and any(table.committed() < last.batch for table in self._results()):
            return last, self._broker.ask(bulk.event_ranges("latest", until=0, each=1)).end
        after = last.until_frame if last is not None else 0
        reply = self._broker.ask(bulk.event_ranges(after, each=self._most, max=self._most))
        lost = gone_frames(reply.missing)
        if lost is not None and not self._skip_missing:
            raise PipelineError(
                lost.partition(". ")[0] + ". To count what is left, --skip-missing; messages that were published "
                "before are then counted without the times that are not known"
            )
        if reply.next <= after:
            return None, reply.end
        missing = reply.missing.frames if reply.missing is not None else 0
        whole = (last is None or last.is_whole) and not missing
        plan = Plan(
            1 if last is None else last.batch + 1,
            after,
            reply.next,
            whole,
            self._tables["ground"].open().version(),
            self._tables["open"].open().version(),
            missing,
            int(time.time() * 1000),
        )
        if last is None:
            self._hold(after)
        self._tables["batches"].append(pa.Table.from_pylist([plan._asdict()], schema=tables.BATCHES), plan.batch)
        return plan, reply.end

    def _last_plan(self) -> Plan | None:
        batches = self._tables["batches"]
        number = batches.committed()
        if not number:
            return None
        found = batches.open().to_pyarrow_table(filters=[("batch", "=", number)]).to_pylist()
        return Plan(**found[0])

    def _results(self) -> list[Table]:
        return [table for name, table in self._tables.items() if name != "batches"]

    def _hold(self, done: int) -> None:
        """The journal is kept from here on, so that nothing is missed between two runs."""
        name = HOLD + str(self._tables["batches"].open().metadata().id)[:8]
        held = bulk.set_hold(name, events=done, queues={})
        try:
            self._broker.ask_raw(held)
        except Conflict:
            # It was let go because it spanned too much. Whether something is missing is seen when it is read.
            self._broker.ask(bulk.remove_hold(name))
            self._broker.ask(held)

    # -- one batch ----------------------------------------------------------------------------------------------------

    def _events(self, plan: Plan) -> DataFrame:
        reader = self._spark.read.format("penstock").options(
            url=self._url,
            table="events",
            startingOffset=str(plan.after_frame),
            endingOffset=str(plan.until_frame),
            failOnDataLoss=str(not self._skip_missing).lower(),
        )
        return (reader if self._token is None else reader.option("token", self._token)).load()

    def _work(self, plan: Plan, events: DataFrame) -> int:
        ground, standing = self._ground(plan.ground_version)
        groups_before = {number: len(queue.groups) for number, queue in ground.queues.items()}
        about_queues = queue_rows(events).collect()
        ends = ground.learn(row.asDict() for row in about_queues)
        new = message_rows(events)
        touched = set()
        count = len(about_queues)
        for row in new.groupBy(slot_name().alias("slot"), "queue_id", "group").count().collect():
            touched.add(row.slot)
            count += row["count"]
            ground.meet(row.queue_id, None, row.group)
        for row in about_queues:
            ground.meet(row.queue_id, row.queue)
        grown = {
            number
            for number, queue in ground.queues.items()
            if number in groups_before and len(queue.groups) > groups_before[number]
        }
        whole = grown | {end.queue_id for end in ends}
        remembered, slots = self._remembered(plan.open_version, touched, whole)
        after = place_of(plan.after_frame + 1, 0) - 1
        unfolded = unfold(new.unionByName(remembered), ground, ends, after=after).persist()
        try:
            fresh = measures.fresh_rows(unfolded, ground)
            for name, rows in (
                ("minutes", measures.minutes(fresh, ground, standing, plan.batch)),
                ("consumers", measures.consumers(fresh, ground, plan.batch)),
                ("failures", measures.failures(fresh, ground, plan.batch)),
            ):
                self._tables[name].append(rows, plan.batch)
            self._remember(left_open(unfolded, ground), slots, plan.batch)
        finally:
            unfolded.unpersist()
        self._tables["ground"].overwrite(_ground_rows(ground, standing), plan.batch)
        return count

    def _ground(self, version: int) -> tuple[Ground, measures.Standing]:
        ground, standing = Ground(), {}
        for row in tables.records_of(self._tables["ground"].open(version)):
            number = row["queue_id"]
            ground.queues[number] = msgspec.json.decode(row["facts"], type=Queue)
            for group, live, dead in json.loads(row["standing"]):
                standing[number, group] = (live, dead)
        return ground, standing

    def _remembered(self, version: int, touched: set[str], whole: set[int]) -> tuple[DataFrame, set[str]]:
        """What is left of messages in these slots, and in all slots of these queues; and which slots these are."""
        table = self._tables["open"].open(version)
        files: list[str] = []
        slots = set(touched)
        added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        for path, slot in ((file["path"], file["partition.slot"]) for file in added):
            if slot in touched or int(slot.partition(".")[0]) in whole:
                slots.add(slot)
                files.append(str(self._tables["open"].path / path))
        if not files:
            return self._spark.createDataFrame([], ROWS), slots
        return self._spark.read.schema(ROWS).parquet(*files), slots

    def _remember(self, rows: DataFrame, slots: set[str], batch: int) -> None:
        """Written by the executors, into a folder of this attempt; what is not committed is nobody's."""
        table = self._tables["open"]
        if table.committed() >= batch:
            return
        folder = table.path / "files" / f"{batch}-{uuid.uuid4().hex[:8]}"
        ordered = rows.repartition("slot").sortWithinPartitions("slot", "offset", "place")
        ordered.write.partitionBy("slot").parquet(str(folder))
        written = tables.sizes(folder)
        below = {
            slot: [(str(Path(path).relative_to(table.path)), size, count) for path, size, count in files]
            for slot, files in written.items()
        }
        table.replace(slots, below, batch)


def _ground_rows(ground: Ground, standing: measures.Standing) -> pa.Table:
    """Of queues that are still there; what was deleted has no more events."""
    held: dict[int, list[tuple[str | None, int, int]]] = {}
    for (number, group), (live, dead) in standing.items():
        held.setdefault(number, []).append((group, live, dead))
    rows = [
        {
            "queue_id": number,
            "queue": queue.path,
            "facts": msgspec.json.encode(queue).decode(),
            "standing": json.dumps(held.get(number, [])),
        }
        for number, queue in sorted(ground.queues.items())
        if not queue.deleted
    ]
    return pa.Table.from_pylist(rows, schema=tables.GROUND)
