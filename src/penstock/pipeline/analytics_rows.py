"""Tallies as rows of the analytics tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.analytics import tables
from penstock.fingerprints import fingerprint
from penstock.pipeline.queue_catalog import QueueCatalog
from penstock.pipeline.tallies import MINUTE_MS, WORKED, Minute, Tallies, named, standing_changes

Standing = dict[tuple[int, str | None], tuple[int, int]]
"""(queue, group) -> the numbers of live and of dead messages."""


def minutes(tallies: Tallies, catalog: QueueCatalog, standing: Standing, batch: int) -> pa.Table:
    """Counts, depths and times per minute. Updates `standing`."""
    rows = []
    for key in sorted(tallies.counts, key=lambda minute: minute.minute_ms):
        numbers = tallies.counts[key]
        change, died = standing_changes(numbers)
        before = standing.get((key.queue_id, key.group), (0, 0))
        standing[key.queue_id, key.group] = now = (before[0] + change, before[1] + died)
        groups = catalog.queues[key.queue_id].groups.values()
        columns: dict[str, Any] = named(numbers) | {"change": change, "live": now[0], "dead": now[1]}
        if key.group is None and any(group.since_ms < key.minute_ms + MINUTE_MS for group in groups):
            columns |= {"live": None, "dead": None}  # the rows of the groups have them
        for name, counted in zip(tables.MEASURES, tallies.sketches.get(key, ({}, {}, {})), strict=True):
            columns[name] = [{"bucket": bucket, "count": count} for bucket, count in sorted(counted.items())]
        rows.append(_keys(key, catalog, batch) | columns)
    return pa.Table.from_pylist(rows, schema=tables.MINUTES)


def consumers(tallies: Tallies, catalog: QueueCatalog, batch: int) -> pa.Table:
    """Deliveries, outcomes and processing time per consumer; a consumer without a name is the empty text."""
    rows = [
        _keys(worker.minute, catalog, batch) | {"consumer": worker.consumer} | dict(zip(WORKED, numbers, strict=True))
        for worker, numbers in tallies.workers.items()
    ]
    return pa.Table.from_pylist(rows, schema=tables.CONSUMERS)


def failures(tallies: Tallies, catalog: QueueCatalog, batch: int) -> pa.Table:
    """Dead-lettered messages by the pattern of their errors, with one example each."""
    rows = []
    for failure, count in tallies.failures.items():
        example = tallies.examples[failure]
        rows.append(
            _keys(failure.minute, catalog, batch)
            | {"pattern": failure.pattern, "fingerprint": fingerprint(failure.pattern), "reason": failure.reason}
            | {"messages": count, "error": example.error}
            | {"partition": example.partition, "offset": example.offset}
        )
    return pa.Table.from_pylist(rows, schema=tables.FAILURES)


def _keys(key: Minute, catalog: QueueCatalog, batch: int) -> dict[str, Any]:
    day = datetime.fromtimestamp(key.minute_ms / 1000, UTC).strftime("%Y-%m-%d")
    return {
        "day": day, "minute_ms": key.minute_ms, "queue": catalog.queues[key.queue_id].path, "group": key.group,
        "queue_id": key.queue_id, "batch": batch,
    }  # fmt: skip
