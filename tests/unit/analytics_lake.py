"""A lake with analytics tables of invented counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.analytics import sketch, tables

MINUTE_MS = 60_000
DAY = "2026-11-16"
NOON_MS = 1_794_830_400_000
"""2026-11-16T12:00:00Z"""


def times(*ms: int) -> list[dict[str, int]]:
    counted: dict[int, int] = {}
    for each in ms:
        counted[sketch.bucket_of(each)] = counted.get(sketch.bucket_of(each), 0) + 1
    return [{"bucket": bucket, "count": count} for bucket, count in sorted(counted.items())]


def minute(number: int, queue: str, group: str | None, batch: int = 1, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(tables.COUNTS, 0)
    row |= {name: [] for name in tables.MEASURES}
    row |= {"day": DAY, "minute_ms": NOON_MS + number * MINUTE_MS, "queue": queue, "group": group, "queue_id": 1}
    return row | {"batch": batch, "change": 0, "live": None, "dead": None} | values


def make_lake(path: Path) -> str:
    """Two queues over ten minutes; one minute was seen by two batches."""
    for name in tables.TABLES:
        tables.AnalyticsTable(path, name).create()
    orders, mail = "shop/orders/new", "shop/mail/out"
    first = [
        minute(0, orders, None, published=100),
        minute(0, orders, "default", published=100, delivered=60, acked=50, retried=5, dead_lettered=5, change=45,
               live=45, dead=5, wait=times(*range(1, 61)), processing=times(*[20] * 60), end_to_end=times(*[80] * 50)),
        minute(3, orders, "default", delivered=10, acked=10, change=-10, live=35, dead=5, wait=times(1_000)),
        minute(3, mail, None, published=7),
        minute(3, mail, "default", published=7, change=7, live=7, dead=0),
    ]  # fmt: skip
    second = [
        minute(3, orders, "default", batch=2, delivered=5, acked=5, change=-5, live=30, dead=5, wait=times(3_000)),
        minute(9, orders, None, batch=2, expired=4),
        minute(9, orders, "default", batch=2, expired=4, change=-4, live=26, dead=5),
    ]
    for batch, rows in ((1, first), (2, second)):
        tables.AnalyticsTable(path, "minutes").append(pa.Table.from_pylist(rows, schema=tables.MINUTES), batch)
    shared = {"day": DAY, "minute_ms": NOON_MS, "queue": orders, "group": "default", "queue_id": 1, "batch": 1}
    consumers = [
        {**shared, "consumer": "ada", "delivered": 60, "acked": 50, "failed": 8, "lost": 2, "processing_ms": 1_160},
        {**shared, "consumer": "bob", "delivered": 1, "acked": 0, "failed": 0, "lost": 0, "processing_ms": 0},
    ]
    tables.AnalyticsTable(path, "consumers").append(pa.Table.from_pylist(consumers, schema=tables.CONSUMERS), 1)
    failures = [
        {**shared, "minute_ms": NOON_MS + n * MINUTE_MS, "fingerprint": "abc", "pattern": "order <number> is broken",
         "reason": "rejected", "messages": 2 + n, "error": f"order {n} is broken", "partition": 0, "offset": n}
        for n in range(2)
    ]  # fmt: skip
    tables.AnalyticsTable(path, "failures").append(pa.Table.from_pylist(failures, schema=tables.FAILURES), 1)
    return str(path)
