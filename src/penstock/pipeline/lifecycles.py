"""From events to the lives of messages: one row for everything that happened to a message in a group, told in full.

The input is a set of events: a whole history, or new events together with those that are left of messages whose life
is not over (`keep`). Either way the same is done, so an account that grows batch by batch is the same as one in a
single go. Only rows that are `fresh` are told of; the others are there to be remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.pipeline import fates
from penstock.pipeline.ground import RECORD_BITS, End, Ground, Group, Queue

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MESSAGE = ["queue_id", "partition", "offset"]
CELL = [*MESSAGE, "group"]
SLOT_OFFSETS = 1 << 16
"""Messages of a partition are kept together in slots of so many offsets."""
ROWS = (
    "queue_id bigint, partition int, offset bigint, place bigint, kind string, at_ms bigint, id string, "
    "`group` string, consumer string, lease bigint, attempt int, reason string, error string, due_ms bigint, "
    "kept boolean"
)
"""An event of a message, as it is worked with and as it is remembered."""
OF_GROUPS = ("leased", "extended", "acked", "retried", "released", "dead_lettered", "redriven", "dead_letters_removed")
"""Events that are of one group."""


def small_table(spark: SparkSession, schema: str, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """A few rows, told to Spark as they are: from plain Python rows it would make a job with workers."""
    kinds = to_arrow_schema(_struct(schema))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=kinds))


def _struct(schema: str) -> StructType:
    kind = StructType.fromDDL(schema)
    assert isinstance(kind, StructType)
    return kind


def message_rows(events: DataFrame) -> DataFrame:
    """The events of messages, from the table `events`."""
    return events.where("offset is not null and queue_id is not null").selectExpr(
        "queue_id", "partition", "offset", f"shiftleft(frame, {RECORD_BITS}) + record as place", "kind",
        "unix_millis(at) as at_ms", "id", "`group`", "consumer", "lease", "attempt", "reason", "error",
        "unix_millis(due_at) as due_ms", "kept",
    )  # fmt: skip


def queue_rows(events: DataFrame) -> DataFrame:
    """The events that are about queues, in order, for `Ground.learn`."""
    return (
        events.where("offset is null and queue_id is not null")
        .selectExpr("frame", "record", "kind", "unix_millis(at) as at_ms", "queue_id", "queue", "partition", "`group`",
                    "until_offset", "config")
        .orderBy("frame", "record", "partition")
    )  # fmt: skip


def unfold(rows: DataFrame, ground: Ground, ends: Sequence[End], *, after: int = -1) -> DataFrame:
    """A row for everything that happened to a message in a group, and with `group` null, to it as such.

    `rows` has the columns of `ROWS`; those behind the place `after` are fresh. `ends` are the fresh ones of `ground`.
    Besides its own columns, a row says: `phase` (before it), `ended` (by what, before it), `counts` (this ends it),
    `leased_at_ms` and `held_by` (the delivery it is about), `is_first` (no delivery since it was published or
    redriven), `begun_ms` (when it could first be delivered), `published_ms`, `last_error`, `is_late` (it was
    there for others before the group began), `moment_ms` (when it counts: at the earliest when the group began), `fresh`.
    """
    spark = rows.sparkSession
    rows = rows.withColumn("fresh", F.col("place") > after)
    rows = rows.unionByName(_ended(spark, rows, ends)) if ends else rows
    told = _per_group(spark, rows, ground, after)
    return _remembered(_delayed(spark, told, ground))


def _ended(spark: SparkSession, rows: DataFrame, ends: Sequence[End]) -> DataFrame:
    """What a purge, a trim or a deletion did, message by message."""
    schema = "queue_id bigint, e_partition int, first bigint, until bigint, e_place bigint, e_at bigint, e_kind string"
    cuts = [end for end in ends if end.partition is not None]
    slots = F.explode(F.sequence(F.expr(f"first div {SLOT_OFFSETS}"), F.expr(f"(until - 1) div {SLOT_OFFSETS}")))
    cut = small_table(spark, schema, cuts).withColumn("slot", slots)
    published = rows.where("kind = 'published'").withColumn("slot", F.expr(f"offset div {SLOT_OFFSETS}"))
    hit = published.join(F.broadcast(cut), ["queue_id", "slot"]).where(
        "partition = e_partition and offset >= first and offset < until and place < e_place"
    )
    whole = small_table(spark, schema, [end for end in ends if end.partition is None])
    gone = published.join(F.broadcast(whole), ["queue_id"]).where("place < e_place")
    return hit.unionByName(gone).selectExpr(
        "queue_id", "partition", "offset", "e_place as place", "e_kind as kind", "e_at as at_ms", "id",
        "cast(null as string) as `group`", "cast(null as string) as consumer", "cast(null as bigint) as lease",
        "cast(null as int) as attempt", "cast(null as string) as reason", "cast(null as string) as error",
        "cast(null as bigint) as due_ms", "cast(null as boolean) as kept", "true as fresh",
    )  # fmt: skip


def _per_group(spark: SparkSession, rows: DataFrame, ground: Ground, after: int) -> DataFrame:
    """What happened to a message for everybody, once for each group that reads it."""
    of_group = rows.where("`group` is not null").selectExpr(
        "*", "place as told_at", "at_ms as moment_ms", "false as is_late"
    )
    of_all = rows.where("`group` is null")
    itself = of_all.selectExpr("*", "place as told_at", "at_ms as moment_ms", "false as is_late")
    groups = [
        (number, name, group.since, group.since_ms, list(group.starts.items()), group.left_out, _is_first(queue, group))
        for number, queue in ground.queues.items()
        for name, group in queue.groups.items()
    ]
    if not groups:
        return itself.unionByName(of_group)
    known = small_table(
        spark,
        "queue_id bigint, g string, since bigint, since_ms bigint, starts map<int,bigint>, left_out bigint, "
        "first boolean",
        groups,
    )
    over = [*fates.ENDS]
    gone = F.min(F.when(F.col("kind").isin(over), F.col("place"))).over(Window.partitionBy(MESSAGE))
    born = F.min(F.when(F.col("kind") == "published", F.col("place"))).over(Window.partitionBy(MESSAGE))
    each = (
        of_all.select("*", gone.alias("gone"), born.alias("born"))
        .join(F.broadcast(known), "queue_id")
        .where("offset >= coalesce(starts[partition], 0) and (gone is null or gone > since)")
        .withColumn("is_early", F.expr("place < since and kind = 'published'"))
        .withColumn("is_late", F.expr("is_early and not first"))
    )
    each = _not_left_out(each, of_group, ground)
    told = each.selectExpr(
        "queue_id", "partition", "offset", "greatest(place, since) as place", "kind", "at_ms", "id", "g as `group`",
        "consumer", "lease", "attempt", "reason", "error",
        "case when is_late then greatest(since_ms, coalesce(due_ms, 0)) else due_ms end as due_ms", "kept",
        f"fresh or (since > {after} and place < since) as fresh", "place as told_at",
        "case when is_early then since_ms else at_ms end as moment_ms", "is_late",
    )  # fmt: skip
    return itself.unionByName(of_group).unionByName(told)


def _is_first(queue: Queue, group: Group) -> bool:
    """What was published before the first group of a queue began has waited for it; later ones come to what was there."""
    return group.since == min(each.since for each in queue.groups.values())


def _not_left_out(each: DataFrame, of_group: DataFrame, ground: Ground) -> DataFrame:
    """Without the messages that all earlier groups had finished when a group began: it never sees them."""
    earlier = [
        (number, name, other, group.left_out, list(before.starts.items()))
        for number, queue in ground.queues.items()
        for name, group in queue.groups.items()
        if group.left_out is not None
        for other, before in queue.groups.items()
        if before.since < group.left_out
    ]
    if not earlier:
        return each
    spark = each.sparkSession
    pairs = small_table(
        spark, "queue_id bigint, g string, `group` string, left_out bigint, starts map<int,bigint>", earlier
    )
    last = F.max_by(F.expr(fates.phase_sql()), F.when(F.expr(f"({fates.phase_sql()}) is not null"), F.col("place")))
    done = (
        of_group.join(F.broadcast(pairs.drop("starts")), ["queue_id", "group"]).where("place < left_out")
        .groupBy(*MESSAGE, "g", "group").agg(last.alias("phase"))
        .where(F.col("phase").isin(fates.ACKED, fates.DEAD, fates.REMOVED))
        .groupBy(*MESSAGE, "g").agg(F.count("*").alias("finished"))
    )  # fmt: skip
    readers = pairs.groupBy("queue_id", "g").agg(F.collect_list("starts").alias("of_readers"))
    needed = "size(filter(of_readers, x -> offset >= coalesce(x[partition], 0)))"
    return (
        each.join(F.broadcast(readers), ["queue_id", "g"], "left").join(done, [*MESSAGE, "g"], "left")
        .where(f"of_readers is null or born is null or born > left_out or coalesce(finished, 0) < {needed}")
        .drop("of_readers", "finished")
    )  # fmt: skip


def _delayed(spark: SparkSession, told: DataFrame, ground: Ground) -> DataFrame:
    """With the delay that a queue gives to all its messages."""
    delays = [
        (number, [{"since": p, "delay_ms": d} for p, d in queue.delays])
        for number, queue in ground.queues.items()
        if queue.delays
    ]
    if not delays:
        return told
    known = small_table(spark, "queue_id bigint, delays array<struct<since:bigint,delay_ms:bigint>>", delays)
    delay = "coalesce(element_at(filter(delays, x -> x.since < told_at), -1).delay_ms, 0)"
    return (
        told.join(F.broadcast(known), "queue_id", "left")
        .withColumn("due_ms", F.expr(
            f"case when kind = 'published' and delays is not null and size(filter(delays, x -> x.since < told_at)) > 0 "
            f"then greatest(coalesce(due_ms, 0), at_ms + {delay}) else due_ms end"
        ))
        .drop("delays")
    )  # fmt: skip


def _remembered(told: DataFrame) -> DataFrame:
    """What a row has to know of the rows before it in its cell."""
    cell = Window.partitionBy(CELL).orderBy("place", "told_at")
    before = cell.rowsBetween(Window.unboundedPreceding, -1)
    until_now = cell.rowsBetween(Window.unboundedPreceding, 0)

    def last(value: str, where: str, over: object = before) -> Column:
        return F.last(F.expr(f"case when {where} then {value} end"), ignorenulls=True).over(over)  # type: ignore[arg-type]

    known = told.withColumn("becomes", F.expr(fates.phase_sql())).select(
        "*",
        F.last("becomes", ignorenulls=True).over(before).alias("phase"),
        last("lease", "kind = 'leased'").alias("leased_as"),
        last("at_ms", "kind = 'leased'").alias("leased_at_ms"),
        last("consumer", "kind = 'leased'").alias("held_by"),
        last("kind", "kind in ('published', 'leased', 'redriven')").alias("since_what"),
        last("at_ms", "kind = 'published'", until_now).alias("published_ms"),
        last("is_late", "kind = 'published'", until_now).alias("late"),
        last("error", "kind = 'retried'").alias("last_error"),
        last("coalesce(due_ms, at_ms)", "kind in ('published', 'rescheduled', 'redriven')").alias("begun_ms"),
        (F.coalesce(F.max(F.expr("kind = 'redriven'")).over(before), F.lit(False))).alias("redriven"),
    )
    hit = known.withColumn("hits", F.expr(fates.counts_sql("phase")))
    ended = F.first(F.expr("case when hits then kind end"), ignorenulls=True).over(before)
    return (
        hit.withColumn("ended", ended)
        .withColumn("counts", F.expr("hits and ended is null"))
        .withColumn("is_first", F.expr("kind = 'leased' and since_what != 'leased'"))
        .withColumn("is_late", F.expr("coalesce(late, false)"))
        .drop("hits", "since_what", "late")
    )


def fates_of(unfolded: DataFrame) -> DataFrame:
    """What has become of every message in every group by now: a row per cell."""
    return (
        unfolded.groupBy(CELL)
        .agg(
            F.max(F.expr("case when counts then kind else ended end")).alias("ended"),
            F.max_by("becomes", F.when(F.col("becomes").isNotNull(), F.struct("place", "told_at"))).alias("phase"),
            F.max(F.expr("kind = 'published'")).alias("is_known"),
            F.max("id").alias("id"),
        )
        .withColumn("fate", F.expr("coalesce(ended, phase)"))
        .drop("ended", "phase")
    )


def left_open(unfolded: DataFrame, ground: Ground) -> DataFrame:
    """Of messages whose life is not over, the events that have to be remembered: rows like those of the input.

    A message is done with when every group is; where the queue keeps its log, or has no group yet, when it is gone.
    """
    spark = unfolded.sparkSession
    stays = [(number, queue.keeps or not queue.groups) for number, queue in ground.queues.items()]
    cells = fates_of(unfolded).join(
        F.broadcast(small_table(spark, "queue_id bigint, stays boolean", stays)), "queue_id", "left"
    )
    in_use = (*fates.LIVE, fates.DEAD)
    wanted = F.when(F.col("group").isNull(), F.col("stays") & (F.col("fate") == fates.PENDING)).otherwise(
        F.col("fate").isin(*in_use)
    )
    cells = cells.select(
        *CELL,
        F.col("fate").isin(*in_use).alias("in_use"),
        F.max(wanted).over(Window.partitionBy(MESSAGE)).alias("is_open"),
    ).where("is_open")
    newest = Window.partitionBy(CELL).orderBy(F.desc("place"))
    raw = unfolded.where(F.col("group").isNull() | F.col("kind").isin(*OF_GROUPS)).select(
        "*",
        (F.row_number().over(newest) == 1).alias("is_newest"),
        (F.row_number().over(Window.partitionBy([*CELL, "kind"]).orderBy(F.desc("place"))) == 1).alias(
            "newest_of_kind"
        ),
    )
    kept = (
        raw.alias("r")
        .join(
            cells.alias("c"),
            [F.col(f"r.{name}").eqNullSafe(F.col(f"c.{name}")) for name in CELL],
        )
        .where(
            "case when r.`group` is null then r.kind != 'rescheduled' or newest_of_kind "
            "else is_newest or (in_use and newest_of_kind and r.kind in ('leased', 'redriven')) end"
        )
    )
    return kept.select(*(F.col(f"r.{field.name}") for field in _struct(ROWS)), slot_name("r.").alias("slot"))


def slot_name(prefix: str = "") -> Column:
    """Which messages are remembered together."""
    number = F.expr(f"{prefix}offset div {SLOT_OFFSETS}")
    return F.concat_ws(".", F.col(f"{prefix}queue_id"), F.col(f"{prefix}partition"), number)
