"""What stored state costs as it grows: memory, the longest stop of the event loop by a snapshot, stop and restart.

A shard on local files is filled, two rounds of upkeep run beside a probe of the event loop, the shard is closed and
opened again. The longest stop is CPU time between two turns of the event loop, so that other programs on the machine
do not count.

    python -m benchmarks.growth "stored, client_ids"
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.growth import Bound, GrowthRow, resident_bytes
from penstock.batch import Batch, build, layout
from penstock.broker.service import Broker
from penstock.broker.types import DeliveredRun, PublishPart
from penstock.clock import SystemClock
from penstock.core.state.client_ids import Place
from penstock.engines.local.engine import LocalEngine
from penstock.ids import parse_queue
from penstock.runtime.host import ShardHost, open_shard
from penstock.runtime.node_memory import NodeMemory

NODE = bytes(15) + b"\1"
BATCH = 1_000
HOT_BYTES = 1 << 20
"""Recent messages kept in memory: few, so that memory is that of the state. A server keeps up to 16 MiB of them."""
BYTES, STOP, CLOSE, OPEN = "memory of each", "longest stop by upkeep", "close", "open"
WRONG = "wrong after a restart"
Fill = Callable[[Broker, int], Awaitable[None]]
Check = Callable[[Broker, int], Awaitable[float]]


async def publish(broker: Broker, queue: str, payloads: list[bytes], **columns: Any) -> None:
    named = {getattr(layout, name.upper()): values for name, values in columns.items()}
    batch = Batch.open(build(payloads, kind=layout.KIND_BYTES, columns=named))
    await broker.messages.publish([PublishPart(parse_queue(queue), batch)])


async def client_ids(broker: Broker, count: int) -> None:
    """Acked messages with client ids."""
    await broker.queues.put(parse_queue("ids"), {})
    for first in range(0, count, BATCH):
        numbers = range(first, min(count, first + BATCH))
        await publish(broker, "ids", [b""] * len(numbers), id=[b"order-%09d" % number for number in numbers])
        await ack_all(broker, "ids")


async def single_client_ids(broker: Broker, count: int) -> None:
    """The same, published one by one: each id has a row of its own. Told to the state itself: millions of publishes
    take an hour."""
    await broker.queues.put(parse_queue("ids"), {})
    dedup, at_ms = broker._view.queue(parse_queue("ids")).dedup, broker._view.now_ms()
    for number in range(count):
        dedup.remember_ids([b"order-%09d" % number], at_ms, Place(0, number, (at_ms << 80) + number))
        if not number % BATCH:
            await asyncio.sleep(0)


async def wrong_ids(broker: Broker, count: int) -> float:
    """Of 100,000 ids that were published and as many others, those that are taken for something else."""
    dedup, now_ms = broker._view.queue(parse_queue("ids")).dedup, broker._view.now_ms()
    wrong = 0
    for number in range(0, count, max(1, count // 100_000)):
        place = dedup.first_with(b"order-%09d" % number, now_ms)
        wrong += place is None or place.offset != number
        wrong += dedup.first_with(b"other-%09d" % number, now_ms) is not None
    return wrong


def receipts(runs: Sequence[DeliveredRun]) -> list[str]:
    return [f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in runs]


async def ack_all(broker: Broker, queue: str) -> None:
    while runs := (await broker.messages.lease(parse_queue(queue), max=BATCH)).runs:
        await broker.messages.ack(receipts(runs))


async def queues(broker: Broker, count: int) -> None:
    for number in range(count):
        await broker.queues.put(parse_queue(f"queue-{number}"), {})
        await publish(broker, f"queue-{number}", [b"x" * 100])


async def unused_partitions(broker: Broker, count: int) -> None:
    for number in range(count // 256):
        await broker.queues.put(parse_queue(f"queue-{number}"), {"partitions": 256})


async def dead_letters(broker: Broker, count: int) -> None:
    await broker.queues.put(parse_queue("dead"), {"max_retries": 0})
    for first in range(0, count, BATCH):
        await publish(broker, "dead", [b"x" * 100] * min(BATCH, count - first))
        runs = (await broker.messages.lease(parse_queue("dead"), max=BATCH)).runs
        await broker.messages.nack(receipts(runs))


async def heap(broker: Broker, count: int) -> None:
    await broker.queues.put(parse_queue("heap"), {"order": "heap"})
    for first in range(0, count, BATCH):
        numbers = range(first, min(count, first + BATCH))
        await publish(broker, "heap", [b"x"] * len(numbers), priority=[number * 7919 % 1000 for number in numbers])
    await broker.messages.lease(parse_queue("heap"), max=1)


async def longest_stop_ms(work: Awaitable[Any]) -> float:
    """The most CPU time between two turns of the event loop while this work runs."""
    task = asyncio.ensure_future(work)
    longest = 0.0
    while not task.done():
        begun = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - begun)
    await task
    return longest * 1e3


async def measure(fill: Fill, check: Check | None, size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="growth-") as root:
        engine, host, broker = await opened(root)
        before = resident_bytes()
        await fill(broker, size)
        longest = await longest_stop_ms(host.upkeep.round())
        longest = max(longest, await longest_stop_ms(host.upkeep.round()))
        bytes_each = (resident_bytes() - before) / size
        await broker.queues.put(parse_queue("another"), {})
        begun = time.perf_counter()
        await broker.close()
        await engine.close()
        close_s = time.perf_counter() - begun
        del host, broker
        gc.collect()
        begun = time.process_time()
        engine, _, broker = await opened(root)
        open_s = time.process_time() - begun
        wrong = {} if check is None else {WRONG: await check(broker, size)}
        await broker.close(final_snapshot=False)
        await engine.close()
        return {BYTES: bytes_each, STOP: longest, CLOSE: close_s, OPEN: open_s, **wrong}


async def opened(root: str) -> tuple[LocalEngine, ShardHost, Broker]:
    engine = LocalEngine(root, fsync="never")
    host = await open_shard(engine, 0, SystemClock(), NODE, memory=NodeMemory(HOT_BYTES))
    return engine, host, Broker(host, lambda bits: time.perf_counter_ns() % (1 << bits))


async def sealing(size: int) -> dict[str, float]:
    """Upkeep that moves one message of each queue out of the journal."""
    with tempfile.TemporaryDirectory(prefix="growth-") as root:
        engine = LocalEngine(root, fsync="never", segment_bytes=1 << 20)
        host = await open_shard(engine, 0, SystemClock(), NODE, segment_bytes=1 << 40, segments_kept=1)
        broker = Broker(host, lambda bits: time.perf_counter_ns() % (1 << bits))
        await queues(broker, size)
        await host.upkeep.round()
        longest = await longest_stop_ms(host.upkeep.round())
        files = len(await host.journal.list_blobs("segment-"))
        await broker.close(final_snapshot=False)
        await engine.close()
        return {"segments": files, STOP: longest}


def row(
    name: str, sizes: tuple[int, ...], fill: Fill, bytes_max: float, open_s: float = 3, check: Check | None = None
) -> GrowthRow:
    bounds = {
        BYTES: Bound("bytes", bytes_max, "largest"),
        STOP: Bound("ms", 10, "largest"),
        CLOSE: Bound("s", 2, "largest"),
        OPEN: Bound("s of CPU", open_s, "largest"),
    }
    if check is not None:
        bounds[WRONG] = Bound("ids", 0, "largest")
    return GrowthRow(f"stored, {name}", sizes, partial(measure, fill, check), bounds, rounds=1)


GROWTH = (
    row("client_ids", (100_000, 1_000_000, 5_000_000), client_ids, 64, open_s=5, check=wrong_ids),
    row("single_client_ids", (100_000, 1_000_000, 5_000_000), single_client_ids, 64, open_s=5, check=wrong_ids),
    row("queues", (1_000, 3_000, 9_900), queues, 8_192),
    row("unused_partitions", (25_600, 102_400, 256_000), unused_partitions, 16),
    row("dead_letters", (10_000, 100_000, 500_000), dead_letters, 200),
    row("heap", (100_000, 500_000, 2_000_000), heap, 48),
    GrowthRow(
        "stored, sealing of queues", (1_000, 3_000, 9_000), sealing,
        {"segments": Bound("files", 64, "largest"), STOP: Bound("ms", 10, "largest")},
        rounds=1,
    ),
)  # fmt: skip
