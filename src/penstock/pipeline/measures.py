"""From the lives of messages to numbers per queue, group and minute. Those of two batches add up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.analytics import sketch, tables
from penstock.pipeline import fates
from penstock.pipeline.fingerprints import fingerprint_sql, pattern_sql
from penstock.pipeline.ground import Ground
from penstock.pipeline.lifecycles import small_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MINUTE_MS = 60_000
_BY = ["queue_id", "group", "minute_ms"]
_IS_LIVE = f"phase in ('{fates.PENDING}', '{fates.LEASED}')"
_COUNTED = {
    "published": "kind = 'published'",
    "delivered": "kind = 'leased'",
    "redelivered": "kind = 'leased' and not is_first",
    "acked": "becomes = 'acked'",
    "retried": "kind = 'retried'",
    "lease_expired": "kind = 'retried' and reason in ('lease_expired', 'session_expired')",
    "released": "kind = 'released'",
    "dead_lettered": "kind = 'dead_lettered'",
    "redriven": "kind = 'redriven'",
    "removed": "kind = 'dead_letters_removed'",
    **{kind: f"counts and kind = '{kind}'" for kind in fates.ENDS},
    "came": "kind in ('published', 'redriven')",
    "went": f"becomes = 'acked' or kind = 'dead_lettered' or (counts and {_IS_LIVE})",
    "died": "becomes = 'dead'",
    "undead": "kind in ('redriven', 'dead_letters_removed') or (counts and phase = 'dead')",
}
_TOOK = {
    "wait": "case when is_first and begun_ms is not null then greatest(at_ms - begun_ms, 0) end",
    # A lease that ran out says nothing about how long the work takes.
    "processing": (
        "case when kind in ('acked', 'dead_lettered') or (kind = 'retried' and reason = 'nack') "
        "then at_ms - leased_at_ms end"
    ),
    "end_to_end": "case when becomes = 'acked' and not is_late then at_ms - published_ms end",
}

Standing = dict[tuple[int, str | None], tuple[int, int]]
"""(queue, group) -> messages that are live, and dead, by now."""


def fresh_rows(unfolded: DataFrame, ground: Ground) -> DataFrame:
    """What happened in this batch, by minute.

    Of a queue that has groups, it is they who lose what is purged, trimmed or deleted; in the line of the queue itself
    such ends would count what everybody had finished long ago, or not, depending on what is still remembered.
    """
    begins = [(number, min(group.since for group in queue.groups.values()))
              for number, queue in ground.queues.items() if queue.groups]  # fmt: skip
    begun = small_table(unfolded.sparkSession, "queue_id bigint, begins bigint", begins)
    whole = "`group` is null and kind in ('trimmed', 'purged', 'deleted') and place > begins"
    return (
        unfolded.where("fresh").join(F.broadcast(begun), "queue_id", "left")
        .withColumn("counts", F.expr(f"counts and not coalesce({whole}, false)")).drop("begins")
        .withColumn("minute_ms", F.expr(f"moment_ms div {MINUTE_MS} * {MINUTE_MS}"))
    )  # fmt: skip


def minutes(fresh: DataFrame, ground: Ground, standing: Standing, batch: int) -> pa.Table:
    """Counts, depths and times; `standing` is brought up to date."""
    counted = [F.count_if(F.expr(condition)).alias(name) for name, condition in _COUNTED.items()]
    counts = fresh.groupBy(_BY).agg(*counted).collect()
    times = [F.struct(F.lit(name).alias("what"), F.expr(how).alias("ms")) for name, how in _TOOK.items()]
    took = fresh.where("`group` is not null").select(*_BY, F.explode(F.array(*times)).alias("t"))
    took = took.where("t.ms is not null")
    buckets = took.groupBy(*_BY, "t.what", F.expr(sketch.bucket_sql("t.ms")).alias("bucket")).count().collect()
    sketches: dict[tuple[Any, ...], list[dict[str, int]]] = {}
    for row in sorted(buckets, key=lambda row: row.bucket):
        key = (row.queue_id, row.group, row.minute_ms, row.what)
        sketches.setdefault(key, []).append({"bucket": row.bucket, "count": row["count"]})
    rows = []
    for row in sorted(counts, key=lambda row: row.minute_ms):
        before = standing.get((row.queue_id, row.group), (0, 0))
        live: int | None = before[0] + row.came - row.went
        dead: int | None = before[1] + row.died - row.undead
        standing[row.queue_id, row.group] = (live or 0, dead or 0)
        told = {name: row[name] for name in tables.COUNTS}
        for name in tables.MEASURES:
            told[name] = sketches.get((row.queue_id, row.group, row.minute_ms, name), [])
        groups = ground.queues[row.queue_id].groups.values()
        if row.group is None and any(group.since_ms < row.minute_ms + MINUTE_MS for group in groups):
            live = dead = None  # that is for its groups to say
        rows.append({**_who(row, ground, batch), **told, "change": row.came - row.went, "live": live, "dead": dead})
    return pa.Table.from_pylist(rows, schema=tables.MINUTES)


def consumers(fresh: DataFrame, ground: Ground, batch: int) -> pa.Table:
    """Who did what; a consumer that gave no name is the empty one."""
    failed = "kind = 'dead_lettered' or (kind = 'retried' and reason = 'nack')"
    lost = "kind = 'retried' and reason in ('lease_expired', 'session_expired')"
    rows = (
        fresh.where("kind in ('leased', 'acked', 'retried', 'dead_lettered')")
        .withColumn("consumer", F.expr("coalesce(case when kind = 'leased' then consumer else held_by end, '')"))
        .groupBy(*_BY, "consumer")
        .agg(
            F.count_if(F.expr("kind = 'leased'")).alias("delivered"),
            F.count_if(F.expr("becomes = 'acked'")).alias("acked"),
            F.count_if(F.expr(failed)).alias("failed"),
            F.count_if(F.expr(lost)).alias("lost"),
            F.coalesce(F.sum(F.expr(_TOOK["processing"])), F.lit(0)).alias("processing_ms"),
        )
        .collect()
    )
    names = ("consumer", "delivered", "acked", "failed", "lost", "processing_ms")
    told = [{**_who(row, ground, batch), **{name: row[name] for name in names}} for row in rows]
    return pa.Table.from_pylist(told, schema=tables.CONSUMERS)


def failures(fresh: DataFrame, ground: Ground, batch: int) -> pa.Table:
    """What messages were given up for, told apart by what their errors have in common; with one of them as example."""
    error = F.expr("coalesce(error, last_error, '')")
    rows = (
        fresh.where("kind = 'dead_lettered'")
        .withColumn("error", error)
        .withColumn("pattern", F.expr(pattern_sql("error")))
        .withColumn("fingerprint", F.expr(fingerprint_sql("pattern")))
        .groupBy(*_BY, "fingerprint", "pattern", "reason")
        .agg(F.count("*").alias("messages"), F.min_by(F.struct("error", "partition", "offset"), "place").alias("one"))
        .collect()
    )
    told = [
        {
            **_who(row, ground, batch), "fingerprint": row.fingerprint, "pattern": row.pattern, "reason": row.reason,
            "messages": row.messages, **row.one.asDict(),
        }
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(told, schema=tables.FAILURES)


def _who(row: Any, ground: Ground, batch: int) -> dict[str, Any]:
    day = datetime.fromtimestamp(row.minute_ms / 1000, UTC).strftime("%Y-%m-%d")
    return {
        "day": day, "minute_ms": row.minute_ms, "queue": ground.queues[row.queue_id].path, "group": row.group,
        "queue_id": row.queue_id, "batch": batch,
    }  # fmt: skip
