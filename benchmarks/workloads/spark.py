"""Spark beside the broker: reading a log as a table, writing one, and the effect on publishers meanwhile.

The peer of a read is Spark itself, on the same rows as Parquet files. Everything runs on `local[2]`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from deltalake import convert_to_deltalake

from benchmarks.payload import orders, payloads
from benchmarks.peers.penstock_sdk import PenstockSdk
from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import Spread, ratio
from benchmarks.workloads.run import Run, data_directory, failures
from penstock.pipeline.background import run_in_background
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive, BatchProgress
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.session import spark_session

SYSTEM = "penstock-spark"
PEER = "parquet-spark"
BATCH = 1_000
PUBLISH_BATCH = 100
WHOLE = (
    "sum(length(payload))", "max(id)", "max(offset)", "max(queue)", "count(key)", "sum(priority)", "max(size(headers))",
    "max(published_at)",
)  # fmt: skip
"""Reads every column, so that Spark skips none."""
PAYLOAD = ("sum(length(payload))",)


async def spark_read_1m(run: Run) -> list[Row]:
    """Batch read of 1,000,000 messages of 200 B, against Spark reading the same rows as Parquet."""
    name, count = "spark_read_1m", 100_000 if run.quick else 1_000_000
    if not run.wants(SYSTEM):
        return []
    async with AsyncExitStack() as stack:
        root = stack.enter_context(data_directory())
        peer, spark = await started(stack, run, root)
        await _fill(peer, "log", count)
        parquet = str(root / "parquet")
        await asyncio.to_thread(lambda: _log(spark, peer).write.parquet(parquet))
        rows: list[Row] = []
        for what, columns in (("read", WHOLE), ("payload read", PAYLOAD)):
            # Both are planned before the first turn that counts: only reading is measured.
            log = await asyncio.to_thread(_log, spark, peer, "payload binary" if columns is PAYLOAD else None)
            tables = {SYSTEM: log, PEER: await asyncio.to_thread(spark.read.parquet, parquet)}
            turns = {
                system: _timed(table.selectExpr("count(*)", *columns).first, count) for system, table in tables.items()
            }
            rates, errors = await take_turns(turns, run.pace.rounds)
            rows += failures(name, errors)
            rows += [figure(name, what, system, "rows/s", Spread.of(each)) for system, each in rates.items()]
            if not errors:
                rows.append(figure(name, f"{what} ratio", f"{SYSTEM} / {PEER}", "x", ratio(rates[SYSTEM], rates[PEER])))
    return rows


async def spark_archive_1m(run: Run) -> list[Row]:
    """A stream of 1,000,000 messages of 200 B to committed Delta tables, against Spark doing it from Parquet."""
    name, count = "spark_archive_1m", 100_000 if run.quick else 1_000_000
    if not run.wants(SYSTEM):
        return []
    async with AsyncExitStack() as stack:
        root = stack.enter_context(data_directory())
        peer, spark = await started(stack, run, root)
        await _fill(peer, "log", count)
        parquet = str(root / "parquet")
        await asyncio.to_thread(lambda: _log(spark, peer).repartition(10).write.parquet(parquet))
        lakes = iter(range(1_000_000))
        turns = {
            SYSTEM: partial(asyncio.to_thread, lambda: _archive(spark, peer, root / f"lake-{next(lakes)}")),
            PEER: partial(asyncio.to_thread, lambda: _copy(spark, parquet, root / f"lake-{next(lakes)}")),
        }
        rates, errors = await take_turns(turns, run.pace.rounds)
    rows = [figure(name, "to the lake", system, "rows/s", Spread.of(each)) for system, each in rates.items()]
    if not errors:
        rows.append(figure(name, "to the lake ratio", f"{SYSTEM} / {PEER}", "x", ratio(rates[SYSTEM], rates[PEER])))
    return [*rows, *failures(name, errors)]


def _archive(spark: Any, peer: PenstockSdk, lake: Path) -> float:
    """Rows a second of `penstock pipeline archive --no-events`, from the begin of its batches to their commit."""
    told: list[BatchProgress] = []
    Archive(
        spark,
        Lake.open_or_create(lake),
        BrokerCalls(peer.server.url, None, 60.0),
        queues=["log"],
        events=False,
        report=told.append,
    ).once()
    return sum(each.rows for each in told) / sum(each.rows / each.rows_per_second for each in told)


def _copy(spark: Any, parquet: str, lake: Path) -> float:
    """The same rows from files: a stream that writes Parquet, and its files committed to a Delta table."""
    stream = spark.readStream.schema(spark.read.parquet(parquet).schema).parquet(parquet)
    query = (
        stream.writeStream.format("parquet").option("checkpointLocation", str(lake / "checkpoint"))
        .trigger(availableNow=True).start(str(lake / "rows"))
    )  # fmt: skip
    query.awaitTermination()
    began = time.perf_counter()
    convert_to_deltalake(lake / "rows")
    committed_s = time.perf_counter() - began
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    took_s = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000
    return float(sum(each["numInputRows"] for each in batches) / (took_s + committed_s))


async def spark_sink_500k(run: Run) -> list[Row]:
    """500,000 rows of 200 B written to a queue by a batch job; durable, staged and committed."""
    name, count = "spark_sink_500k", 50_000 if run.quick else 500_000
    if not run.wants(SYSTEM):
        return []
    async with AsyncExitStack() as stack:
        root = stack.enter_context(data_directory())
        peer, spark = await started(stack, run, root)
        numbers = iter(range(1_000_000))

        def write() -> None:
            rows = spark.range(0, count, numPartitions=2).selectExpr("cast(rpad(id, 200, 'x') as binary) as payload")
            target = rows.write.format("penstock").options(url=peer.server.url, queue=f"sink-{next(numbers)}")
            target.mode("append").save()

        rates, errors = await take_turns({SYSTEM: _timed(write, count)}, run.pace.rounds)
    rows = [figure(name, "write", system, "rows/s", Spread.of(each)) for system, each in rates.items()]
    return [*rows, *failures(name, errors)]


async def spark_disturbance(run: Run) -> list[Row]:
    """Publishing in batches of 100 while Spark reads a log at full speed, against publishing alone, in turns."""
    name, count = "spark_disturbance", 100_000 if run.quick else 1_000_000
    if not run.wants(SYSTEM):
        return []
    async with AsyncExitStack() as stack:
        root = stack.enter_context(data_directory())
        peer, spark = await started(stack, run, root)
        await _fill(peer, "log", count)
        await peer.create("live")

        async def alone() -> float:
            return await _publish_for(peer, run.pace.seconds * 3)

        read: list[float] = []

        async def beside() -> float:
            stop = asyncio.Event()
            reading = asyncio.create_task(_read_until(spark, peer, stop))
            try:
                await asyncio.sleep(0.5)
                return await _publish_for(peer, run.pace.seconds * 3)
            finally:
                stop.set()
                read.append(count * await reading)

        rates, errors = await take_turns({"alone": alone, "beside": beside}, run.pace.rounds)
        rows = _disturbed(name, "publish beside a Spark that does not stand back", rates, read, errors)
        read.clear()
        # The default of `spark_session` for a session on this machine.
        await asyncio.to_thread(run_in_background, spark)
        rates, errors = await take_turns({"alone": alone, "beside": beside}, run.pace.rounds)
    return [*rows, *_disturbed(name, "publish during a read", rates, read, errors)]


def _disturbed(
    name: str, what: str, rates: dict[str, list[float]], read: list[float], errors: dict[str, str]
) -> list[Row]:
    rows = failures(name, errors)
    if not errors:
        rows.append(figure(name, f"{what}: alone", SYSTEM, "msg/s", Spread.of(rates["alone"])))
        rows.append(figure(name, what, SYSTEM, "msg/s", Spread.of(rates["beside"])))
        rows.append(figure(name, f"{what}: rows that Spark read meanwhile", SYSTEM, "rows/s", Spread.of(read[1:])))
        rows.append(figure(name, f"{what} ratio", SYSTEM, "x", ratio(rates["beside"], rates["alone"])))
    return rows


async def started(stack: AsyncExitStack, run: Run, root: Path) -> tuple[PenstockSdk, Any]:
    peer = PenstockSdk(batches=True)
    (root / "broker").mkdir()
    stack.push_async_callback(peer.stop)
    await peer.start(root / "broker")
    run.versions |= peer.versions()
    spark = await asyncio.to_thread(
        partial(spark_session, "benchmarks", master="local[2]", background=False, spark_sql_shuffle_partitions="2")
    )
    spark.sparkContext.setLogLevel("OFF")
    run.versions["pyspark"] = spark.version
    stack.push_async_callback(asyncio.to_thread, spark.stop)
    return peer, spark


async def _fill(peer: PenstockSdk, queue: str, count: int) -> None:
    await peer.create(queue)
    dice = Random(1)
    for _ in range(count // BATCH):
        await peer.publish(queue, orders(BATCH, dice))


def _log(spark: Any, peer: PenstockSdk, schema: str | None = None) -> Any:
    reader = spark.read.format("penstock").options(url=peer.server.url, queue="log")
    return (reader.schema(schema) if schema else reader).load()


def _timed(work: Callable[[], Any], count: int) -> Callable[[], Any]:
    async def turn() -> float:
        began = time.perf_counter()
        await asyncio.to_thread(work)
        return count / (time.perf_counter() - began)

    return turn


async def _publish_for(peer: PenstockSdk, seconds: float) -> float:
    contents = payloads(PUBLISH_BATCH)
    began, sent = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        await peer.publish("live", contents)
        sent += PUBLISH_BATCH
    return sent / (time.perf_counter() - began)


async def _read_until(spark: Any, peer: PenstockSdk, stop: asyncio.Event) -> float:
    """Logs read per second."""
    began, read = time.perf_counter(), 0
    while not stop.is_set():
        await asyncio.to_thread(lambda: _log(spark, peer).selectExpr(*WHOLE).first())
        read += 1
    return read / (time.perf_counter() - began)
