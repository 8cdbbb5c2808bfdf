"""Queries on the tables of the analytics. The calls block, so they belong in a thread; Arrow does the work per row.

A query selects rows by day (whole files) and minute, groups them into steps, and adds them up. Depths carry over from
step to step: a queue without events is as deep as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.analytics import sketch
from penstock.analytics.tables import COUNTS, MEASURES, AnalyticsTable, has_analytics
from penstock.analytics.time_span import MINUTE_MS, QueueFilter, TimeSpan
from penstock.errors import Conflict
from penstock.wire.analytics import (
    AnalyticsConsumer,
    AnalyticsFailure,
    AnalyticsGroup,
    AnalyticsPoint,
    AnalyticsQueue,
    Counts,
    Timing,
)

FAILURES_MAX = 100
CONSUMERS_MAX = 500
"""Rows in one reply; the largest come first."""


class Timings(NamedTuple):
    wait: Timing
    processing: Timing
    end_to_end: Timing


class PeriodSummary(NamedTuple):
    counts: Counts
    timings: Timings
    depth: int | None
    dead: int | None
    points: list[AnalyticsPoint]
    groups: list[AnalyticsGroup]


_NO_TIMES = Timings(Timing(0), Timing(0), Timing(0))


class AnalyticsReader:
    """The tables of one lake. For one thread at a time."""

    def __init__(self, lake: str):
        self._lake = Path(lake)
        self._tables: dict[str, DeltaTable] = {}

    def analysed_until_ms(self) -> int:
        """The end of the newest minute that was counted. Raises Conflict if none was."""
        added = pa.table(self._table("minutes").get_add_actions(flatten=True))
        known = len(added) and "max.minute_ms" in added.column_names
        newest = pc.max(added["max.minute_ms"]).as_py() if known else None
        if newest is None:
            raise Conflict(f"nothing was analysed yet: penstock pipeline analyze --lake {self._lake}")
        return int(newest) + MINUTE_MS

    def queues(self, chosen: QueueFilter, span: TimeSpan) -> list[AnalyticsQueue]:
        """Every queue with its sums, in the order of paths."""
        rows = self._minutes(chosen, span)
        paths = sorted(set(rows["queue"].to_pylist()))
        found = []
        for path in paths:
            one = _summary(rows.filter(pc.equal(rows["queue"], path)), span, with_points=False)
            found.append(AnalyticsQueue(path, one.counts, *one.timings, depth=one.depth, dead=one.dead))
        return found

    def summary(self, chosen: QueueFilter, span: TimeSpan) -> PeriodSummary:
        return _summary(self._minutes(chosen, span), span)

    def consumers(self, chosen: QueueFilter, span: TimeSpan) -> list[AnalyticsConsumer]:
        rows = self._read("consumers", chosen, span)
        busy = rows.filter(pc.greater(rows["acked"], 0)).group_by(["queue", "group", "consumer"])
        minutes = {
            (row["queue"], row["group"], row["consumer"]): row["minute_ms_count_distinct"]
            for row in busy.aggregate([("minute_ms", "count_distinct")]).to_pylist()
        }
        sums = [(name, "sum") for name in ("delivered", "acked", "failed", "lost", "processing_ms")]
        found = []
        for row in rows.group_by(["queue", "group", "consumer"]).aggregate(sums).to_pylist():
            acked, failed, lost = row["acked_sum"], row["failed_sum"], row["lost_sum"]
            active_s = 60 * minutes.get((row["queue"], row["group"], row["consumer"]), 0)
            found.append(
                AnalyticsConsumer(
                    row["queue"], row["group"] or "", row["consumer"], row["delivered_sum"], acked, failed, lost,
                    acked / active_s if active_s else 0.0,
                    (failed + lost) / (acked + failed + lost) if acked + failed + lost else 0.0,
                    row["processing_ms_sum"] / (acked + failed) if acked + failed else None,
                )
            )  # fmt: skip
        return sorted(found, key=lambda each: (-each.delivered, each.queue, each.consumer))[:CONSUMERS_MAX]

    def failures(self, chosen: QueueFilter, span: TimeSpan) -> list[AnalyticsFailure]:
        rows = self._read("failures", chosen, span).sort_by([("minute_ms", "ascending"), ("batch", "ascending")])
        grouped = rows.group_by(["queue", "group", "fingerprint", "pattern", "reason"], use_threads=False)
        firsts = [(name, "first") for name in ("error", "partition", "offset")]
        found = [
            AnalyticsFailure(
                row["queue"], row["group"] or "", row["fingerprint"], row["pattern"], row["reason"] or "",
                row["messages_sum"], row["error_first"], row["partition_first"], row["offset_first"],
            )
            for row in grouped.aggregate([("messages", "sum"), *firsts]).to_pylist()
        ]  # fmt: skip
        return sorted(found, key=lambda each: (-each.messages, each.queue, each.fingerprint))[:FAILURES_MAX]

    def _minutes(self, chosen: QueueFilter, span: TimeSpan) -> pa.Table:
        return self._read("minutes", chosen, span).sort_by([("minute_ms", "ascending"), ("batch", "ascending")])

    def _read(self, name: str, chosen: QueueFilter, span: TimeSpan) -> pa.Table:
        days = (ds.field("day") >= _day(span.from_ms)) & (ds.field("day") <= _day(span.to_ms))
        minutes = (ds.field("minute_ms") >= span.from_ms) & (ds.field("minute_ms") < span.to_ms)
        data = self._table(name).to_pyarrow_dataset()
        return data.to_table(filter=days & minutes & _matches(chosen))

    def _table(self, name: str) -> DeltaTable:
        try:
            table = self._tables.get(name)
            if table is None:
                if not has_analytics(self._lake):
                    raise Conflict(f"nothing was analysed yet: penstock pipeline analyze --lake {self._lake}")
                table = self._tables[name] = AnalyticsTable(self._lake, name).open()
            else:
                table.update_incremental()
        except DeltaError as error:
            self._tables.pop(name, None)
            raise Conflict(f"the lake {self._lake} cannot be read: {error}") from error
        return table


def _matches(chosen: QueueFilter) -> Any:
    if chosen.queue is not None:
        return ds.field("queue") == chosen.queue
    return pc.starts_with(ds.field("queue"), chosen.prefix) if chosen.prefix else pc.is_valid(ds.field("queue"))


def _day(ms: int) -> str:
    return datetime.fromtimestamp(min(ms, 253_402_300_799_000) / 1000, UTC).strftime("%Y-%m-%d")


def _summary(rows: pa.Table, span: TimeSpan, *, with_points: bool = True) -> PeriodSummary:
    step = pc.multiply(pc.divide(pc.subtract(rows["minute_ms"], span.from_ms), span.step_ms), span.step_ms)
    rows = rows.append_column("step", pc.add(step, span.from_ms))
    counts = _counts(rows, ["step"])
    depths, deads = _depths(rows, span) if with_points else ({}, {})
    groups = _groups(rows)
    points = []
    if with_points:
        timings = _timings(rows, ["step"])
        for at_ms in range(span.from_ms, span.to_ms, span.step_ms):
            took = timings.get((at_ms,), _NO_TIMES)
            point = AnalyticsPoint(at_ms, counts.get((at_ms,), Counts()), *took)
            point.depth, point.dead = depths.get(at_ms), deads.get(at_ms)
            points.append(point)
    depth, dead = _deepest((group.queue, group.depth, group.dead) for group in groups)
    if not groups and len(rows):
        depth, dead = _depth_of_queues(rows)
    return PeriodSummary(
        _counts(rows, []).get((), Counts()),
        _timings(rows, []).get((), _NO_TIMES),
        depth,
        dead,
        points,
        [group for group in groups if group.group],
    )


def _counts(rows: pa.Table, by: list[str]) -> dict[tuple[Any, ...], Counts]:
    """Sums by these columns. Publishes and ends of messages are on the row of the queue, the rest on its groups."""
    own = ("published", "expired", "cancelled", "trimmed", "purged", "deleted")
    of_groups = tuple(name for name in COUNTS if name not in ("published", "expired", "cancelled"))
    alone = pc.is_null(rows["group"])
    found: dict[tuple[Any, ...], Counts] = {}
    for part, names in ((rows.filter(alone), own), (rows.filter(pc.invert(alone)), of_groups)):
        if len(part):
            for row in part.group_by(by).aggregate([(name, "sum") for name in names]).to_pylist():
                counts = found.setdefault(tuple(row[name] for name in by), Counts())
                for name in names:
                    setattr(counts, name, getattr(counts, name) + row[f"{name}_sum"])
    return found


def _timings(rows: pa.Table, by: list[str]) -> dict[tuple[Any, ...], Timings]:
    """Percentiles of the three times, by these columns."""
    found: dict[tuple[Any, ...], Timings] = {}
    for name in MEASURES:
        column = rows[name].combine_chunks()
        parents, inside = pc.list_parent_indices(column), pc.list_flatten(column)
        if not len(inside):
            continue
        flat = pa.table({each: rows[each].take(parents) for each in by} | {
            "bucket": pc.struct_field(inside, "bucket"), "count": pc.struct_field(inside, "count"),
        })  # fmt: skip
        sketches: dict[tuple[Any, ...], dict[int, int]] = {}
        for row in flat.group_by([*by, "bucket"]).aggregate([("count", "sum")]).to_pylist():
            sketches.setdefault(tuple(row[each] for each in by), {})[row["bucket"]] = row["count_sum"]
        for key, counted in sketches.items():
            timing = Timing(**sketch.summary(counted))  # type: ignore[arg-type]
            found[key] = found.get(key, _NO_TIMES)._replace(**{name: timing})
    return found


def _groups(rows: pa.Table) -> list[AnalyticsGroup]:
    of_groups = rows.filter(pc.is_valid(rows["group"]))
    by = ["queue", "group"]
    timings = _timings(of_groups, by)
    found = []
    sums = [(name, "sum") for name in COUNTS]
    lasts = [("live", "last"), ("dead", "last")]
    for row in of_groups.group_by(by, use_threads=False).aggregate([*sums, *lasts]).to_pylist():
        key = (row["queue"], row["group"])
        counts = Counts(**{name: row[f"{name}_sum"] for name in COUNTS})
        measured = timings.get(key, _NO_TIMES)
        found.append(AnalyticsGroup(*key, counts, *measured, depth=row["live_last"], dead=row["dead_last"]))
    return sorted(found, key=lambda group: (group.queue, group.group))


def _depths(rows: pa.Table, span: TimeSpan) -> tuple[dict[int, int], dict[int, int]]:
    """(step -> depth, step -> dead letters) at the end of each step, summed over all queues."""
    lasts = [("live", "last"), ("dead", "last"), ("live", "first"), ("dead", "first"), ("change", "first")]
    by = ["queue", "queue_id", "group", "step"]
    known: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows.group_by(by, use_threads=False).aggregate(lasts).to_pylist():
        known.setdefault((row["queue"], row["queue_id"], row["group"]), {})[row["step"]] = row
    depths: dict[int, int] = {}
    deads: dict[int, int] = {}
    lines: dict[tuple[Any, ...], tuple[int | None, int | None]] = {}
    for key, steps in known.items():
        first = steps[min(steps)]
        if first["live_first"] is not None:
            # Before the first row of a group, the depth is the one that its first change found.
            lines[key] = (first["live_first"] - first["change_first"], first["dead_first"])
    for at_ms in range(span.from_ms, span.to_ms, span.step_ms):
        for key, steps in known.items():
            row = steps.get(at_ms)
            if row is not None:
                lines[key] = (row["live_last"], row["dead_last"])
        depth, dead = _deepest((key[0], live, dead) for key, (live, dead) in lines.items())
        if depth is not None:
            depths[at_ms], deads[at_ms] = depth, dead or 0
    return depths, deads


def _deepest(lines: Iterable[tuple[str, int | None, int | None]]) -> tuple[int | None, int | None]:
    """(depth, dead letters) of some queues. The depth of a queue is that of its deepest group."""
    deepest: dict[str, int] = {}
    dead = None
    for queue, live, letters in lines:
        if live is not None:
            deepest[queue] = max(deepest.get(queue, 0), live)
        if letters is not None:
            dead = (dead or 0) + letters
    return (sum(deepest.values()) if deepest else None), dead


def _depth_of_queues(rows: pa.Table) -> tuple[int | None, int | None]:
    last = rows.group_by(["queue", "queue_id"], use_threads=False).aggregate([("live", "last"), ("dead", "last")])
    return _deepest((row["queue"], row["live_last"], row["dead_last"]) for row in last.to_pylist())
