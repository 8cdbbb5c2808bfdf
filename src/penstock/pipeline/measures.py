"""What was counted, as rows of the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.analytics import tables
from penstock.pipeline.fingerprints import fingerprint
from penstock.pipeline.ground import Ground
from penstock.pipeline.tallies import MINUTE_MS, WORKED, Minute, Tallies, named, standing_changes

Standing = dict[tuple[int, str | None], tuple[int, int]]
"""(queue, group) -> messages that are live, and dead, by now."""


def minutes(tallies: Tallies, ground: Ground, standing: Standing, batch: int) -> pa.Table:
    """Counts, depths and times; `standing` is brought up to date."""
    rows = []
    for key in sorted(tallies.counts, key=lambda minute: minute.minute_ms):
        numbers = tallies.counts[key]
        change, died = standing_changes(numbers)
        before = standing.get((key.queue_id, key.group), (0, 0))
        standing[key.queue_id, key.group] = now = (before[0] + change, before[1] + died)
        groups = ground.queues[key.queue_id].groups.values()
        told: dict[str, Any] = named(numbers) | {"change": change, "live": now[0], "dead": now[1]}
        if key.group is None and any(group.since_ms < key.minute_ms + MINUTE_MS for group in groups):
            told |= {"live": None, "dead": None}  # that is for its groups to say
        for name, counted in zip(tables.MEASURES, tallies.sketches.get(key, ({}, {}, {})), strict=True):
            told[name] = [{"bucket": bucket, "count": count} for bucket, count in sorted(counted.items())]
        rows.append(_who(key, ground, batch) | told)
    return pa.Table.from_pylist(rows, schema=tables.MINUTES)


def consumers(tallies: Tallies, ground: Ground, batch: int) -> pa.Table:
    """Who did what; a consumer that gave no name is the empty one."""
    rows = [
        _who(worker.minute, ground, batch) | {"consumer": worker.consumer} | dict(zip(WORKED, numbers, strict=True))
        for worker, numbers in tallies.workers.items()
    ]
    return pa.Table.from_pylist(rows, schema=tables.CONSUMERS)


def failures(tallies: Tallies, ground: Ground, batch: int) -> pa.Table:
    """What messages were given up for, told apart by what their errors have in common; with one of them as example."""
    rows = []
    for failure, count in tallies.failures.items():
        example = tallies.examples[failure]
        rows.append(
            _who(failure.minute, ground, batch)
            | {"pattern": failure.pattern, "fingerprint": fingerprint(failure.pattern), "reason": failure.reason}
            | {"messages": count, "error": example.error}
            | {"partition": example.partition, "offset": example.offset}
        )
    return pa.Table.from_pylist(rows, schema=tables.FAILURES)


def _who(key: Minute, ground: Ground, batch: int) -> dict[str, Any]:
    day = datetime.fromtimestamp(key.minute_ms / 1000, UTC).strftime("%Y-%m-%d")
    return {
        "day": day, "minute_ms": key.minute_ms, "queue": ground.queues[key.queue_id].path, "group": key.group,
        "queue_id": key.queue_id, "batch": batch,
    }  # fmt: skip
