"""`penstock pipeline analyze`: the history of all messages as numbers per minute, kept up to date batch by batch.

A batch is a range of frames of the journal. Its plan is committed first: the frames, and the versions of the tables
that it reads. Then the batch is computed from its events and the stored events of open messages, and committed to each
table under its number. An interrupted batch is repeated from the same plan; tables that have it are not changed. The
cost of a batch depends on its events: only the slots of messages with new events are read and written.
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
import pyarrow.parquet as pq

from penstock.analytics import tables
from penstock.analytics.tables import AnalyticsTable
from penstock.errors import Conflict
from penstock.pipeline import analytics_rows, bulk
from penstock.pipeline.archived_events import ArchivedEvents, LiveEvents
from penstock.pipeline.connect import BrokerCalls, broker_id
from penstock.pipeline.history import DDL, History
from penstock.pipeline.lake.spans import place_of
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.options import PipelineError
from penstock.pipeline.queue_catalog import QueueCatalog, QueueFacts, RangeEnd
from penstock.pipeline.ranges import gone_frames
from penstock.pipeline.slots import map_slots, message_rows, slot_of, update_catalog
from penstock.pipeline.tallies import Tallies, decode, encode, tally
from penstock.pipeline.timelines import build_timelines, open_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_PER_BATCH = 1_000_000
HOLD = "analytics-"
"""The name of the hold begins with it; the id of the lake follows."""


class Plan(NamedTuple):
    batch: int
    after_frame: int
    until_frame: int
    is_whole: bool
    """True if no frame before this batch is missing."""
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
        lake: str | Path,
        url: str,
        token: str | None = None,
        *,
        events_per_batch: int = EVENTS_PER_BATCH,
        skip_missing: bool = False,
    ):
        self._spark = spark
        self._url, self._token = url, token
        self._broker = BrokerCalls(url, token, 60.0)
        self._lake = Lake.open_or_create(lake)
        self._archived = ArchivedEvents(self._lake)
        self._most = events_per_batch
        self._skip_missing = skip_missing
        self._tables = {name: AnalyticsTable(self._lake.directory, name) for name in tables.TABLES}

    def run(self, *, until_caught_up: bool = True, pause_s: float = 10.0) -> Iterator[Step]:
        """Batch after batch: to the end of the journal, or for ever."""
        with self._lake.locked("analyze"):
            yield from self._run(until_caught_up=until_caught_up, pause_s=pause_s)

    def _run(self, *, until_caught_up: bool, pause_s: float) -> Iterator[Step]:
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
        self._bind()
        for table in self._tables.values():
            table.create()
        plan, end = self._plan()
        if plan is None:
            return None
        reader = LiveEvents(self._spark, self._url, self._token, fail_on_data_loss=not self._skip_missing)
        events = self._archived.events(reader, plan.after_frame, plan.until_frame).persist()
        try:
            count = self._work(plan, events)
        finally:
            events.unpersist()
        self._hold(plan.until_frame)
        for table in self._tables.values():
            table.tidy(plan.batch)
        return Step(plan.batch, plan.until_frame, max(end, plan.until_frame), count, time.monotonic() - began)

    def _bind(self) -> None:
        """Raises PipelineError if the lake is filled from another broker: frames of two journals cannot be told apart.

        A lake of format 1 that has messages is bound by the archive, which also asks for the uuids of its queues.
        """
        if self._lake.format == 1 and self._lake.table("messages").subjects():
            self._lake.check_broker(broker_id(self._broker))
        else:
            self._lake.bind(broker_id(self._broker), {})

    # -- planning -----------------------------------------------------------------------------------------------------

    def _plan(self) -> tuple[Plan | None, int]:
        """The plan of the next batch, None if there are no new events; and the last frame of the journal."""
        last = self._last_plan()
        if last is not None and any(table.committed() < last.batch for table in self._results()):
            return last, self._broker.ask(bulk.event_ranges("latest", until=0, each=1)).end
        after = last.until_frame if last is not None else 0
        reply = self._broker.ask(bulk.event_ranges(after, each=self._most, max=self._most))
        until, missing = reply.next, reply.missing
        if missing is not None and self._archived.reaches(missing.last):
            # The archive has the frames that the journal has removed.
            until, missing = self._archived.next_frame(after, self._most), None
        elif not any(each.rows for each in reply.ranges):
            return None, reply.end  # frames without rows, such as those that move this analysis's own hold
        lost = gone_frames(missing)
        if lost is not None and not self._skip_missing:
            raise PipelineError(
                lost.partition(". ")[0] + ". To count what is left, --skip-missing; messages that were published "
                "before are then counted without the times that are not known"
            )
        lost_frames = missing.frames if missing is not None else 0
        plan = Plan(
            1 if last is None else last.batch + 1,
            after,
            until,
            (last is None or last.is_whole) and not lost_frames,
            self._tables["ground"].open().version(),
            self._tables["open"].open().version(),
            lost_frames,
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

    def _results(self) -> list[AnalyticsTable]:
        return [table for name, table in self._tables.items() if name != "batches"]

    def _hold(self, done: int) -> None:
        """The broker keeps the journal behind frame `done`, so that no frame is missed between two runs."""
        name = HOLD + self._lake.id[:16]
        held = bulk.set_hold(name, events=done, queues={})
        try:
            self._broker.ask_raw(held)
        except Conflict:
            # The broker dropped the hold because it spanned too much. The next read finds out if frames are missing.
            self._broker.ask(bulk.remove_hold(name))
            self._broker.ask(held)

    # -- one batch ----------------------------------------------------------------------------------------------------

    def _work(self, plan: Plan, events: DataFrame) -> int:
        catalog, standing = self._catalog(plan.ground_version)
        groups_before = {number: len(queue.groups) for number, queue in catalog.queues.items()}
        seen, ends = update_catalog(events, catalog)
        grown = {number for number, count in groups_before.items() if len(catalog.queues[number].groups) > count}
        whole = grown | {end.queue_id for end in ends}
        stored, slots = self._stored_events(plan.open_version, seen.slots, whole)
        rows = message_rows(events)
        folder = self._tables["open"].path / "files" / f"{plan.batch}-{uuid.uuid4().hex[:8]}"
        work = _Work(catalog, ends, place_of(plan.after_frame + 1, 0) - 1, folder)
        tallies, files = Tallies(), {}
        for made in map_slots(rows if stored is None else rows.unionByName(stored), work):
            counted, slot, size, count = msgspec.msgpack.decode(made)
            tallies.add(decode(counted))
            if count:
                path = (folder / f"{slot}.parquet").relative_to(self._tables["open"].path)
                files[slot] = [(str(path), size, count)]
        self._tables["minutes"].append(analytics_rows.minutes(tallies, catalog, standing, plan.batch), plan.batch)
        self._tables["consumers"].append(analytics_rows.consumers(tallies, catalog, plan.batch), plan.batch)
        self._tables["failures"].append(analytics_rows.failures(tallies, catalog, plan.batch), plan.batch)
        self._tables["open"].replace(slots, files, plan.batch)
        self._tables["ground"].overwrite(_catalog_rows(catalog, standing), plan.batch)
        return seen.events

    def _catalog(self, version: int) -> tuple[QueueCatalog, analytics_rows.Standing]:
        catalog, standing = QueueCatalog(), {}
        for row in tables.records_of(self._tables["ground"].open(version)):
            number = row["queue_id"]
            catalog.queues[number] = msgspec.json.decode(row["facts"], type=QueueFacts)
            for group, live, dead in json.loads(row["standing"]):
                standing[number, group] = (live, dead)
        return catalog, standing

    def _stored_events(self, version: int, touched: set[str], whole: set[int]) -> tuple[DataFrame | None, set[str]]:
        """The stored events of open messages in these slots and in all slots of these queues; and these slots."""
        table = self._tables["open"].open(version)
        files: list[str] = []
        slots = set(touched)
        for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            slot = file["partition.slot"]
            if slot in touched or int(slot.partition(".")[0]) in whole:
                slots.add(slot)
                files.append(str(self._tables["open"].path / file["path"]))
        if not files:
            return None, slots
        return self._spark.read.schema(DDL).parquet(*files).withColumn("slot", slot_of()), slots


class _Work:
    """The task of a slot: counts the fresh events, and writes the events of open messages to a file."""

    def __init__(self, catalog: QueueCatalog, ends: list[RangeEnd], after: int, folder: Path):
        self._catalog, self._ends, self._after, self._folder = catalog, ends, after, folder

    def __call__(self, slot: str, history: History) -> bytes:
        timelines = build_timelines(history, self._catalog, self._ends, after=self._after)
        left = open_events(timelines, self._catalog)
        size = 0
        if len(left):
            self._folder.mkdir(parents=True, exist_ok=True)
            # A temporary name until the file is complete: Spark may run the task twice at the same time.
            path, hidden = self._folder / f"{slot}.parquet", self._folder / f".{slot}-{uuid.uuid4().hex}"
            pq.write_table(timelines.history.to_table(left), hidden, compression="zstd")
            hidden.replace(path)
            size = path.stat().st_size
        return msgspec.msgpack.encode([encode(tally(timelines, self._catalog)), slot, size, len(left)])


def _catalog_rows(catalog: QueueCatalog, standing: analytics_rows.Standing) -> pa.Table:
    """The queues that exist; a deleted queue has no more events."""
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
        for number, queue in sorted(catalog.queues.items())
        if not queue.deleted
    ]
    return pa.Table.from_pylist(rows, schema=tables.CATALOG)
