"""Reads of the state as it grows: how long one call stops the event loop, and how much CPU it takes.

Each row is a function of one size. It makes a broker in memory with a state of that size and returns the figures of its
calls in milliseconds. CPU time of the thread is counted, so that other processes of the machine do not show.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from benchmarks.growth import Bound, GrowthRow
from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.broker.types import PublishPart
from penstock.errors import Conflict
from penstock.ids import QueuePath, parse_queue
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.metrics import Metrics

ORDERS = parse_queue("orders")
STOP_MS_MAX = 10.0
"""The longest stop of the event loop by one call."""
STEP = 10_000
"""Messages of one command while a state is made."""


async def cost(name: str, call: Callable[[], Any]) -> dict[str, float]:
    """The longest turn of the event loop while the call runs, and the CPU time of the whole call, in milliseconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*limits.GC_THRESHOLDS)  # as the server does
    longest, began = 0.0, time.thread_time()
    before = began

    async def watch() -> None:
        nonlocal longest, before
        while True:
            now = time.thread_time()
            longest, before = max(longest, now - before), now
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    with suppress(Conflict):  # the first of two calls that delete something
        result = call()
        if inspect.isawaitable(result):
            await result
    ended = time.thread_time()
    watching.cancel()
    return {
        f"{name}_stop_ms": round(max(longest, ended - before) * 1000, 2),
        f"{name}_cpu_ms": round((ended - began) * 1000, 2),
    }


async def fill(box: InProcess, count: int, queue: QueuePath = ORDERS, **columns: Any) -> None:
    """Publish `count` small messages."""
    for first in range(0, count, STEP):
        rows = min(STEP, count - first)
        named: Any = {column: values[:rows] for column, values in columns.items()}
        batch = Batch.open(build([b'{"n":1}'] * rows, kind=layout.KIND_JSON, columns=named))
        await box.broker.messages.publish([PublishPart(queue, batch)])


async def give_up(box: InProcess, count: int) -> None:
    """Publish `count` messages and make all of them dead letters, at different times."""
    await box.broker.queues.put(ORDERS, {"dead_letter_max": None})
    for _ in range(0, count, STEP):
        await fill(box, min(STEP, count))
        runs = (await box.broker.messages.lease(ORDERS, max=STEP)).runs
        for run in runs:
            await box.broker.messages.reject([f"{run.receipt}{run.offset}-{run.offset + run.count - 1}"])
        await box.advance(1)


async def acked_ranges(size: int) -> dict[str, float]:
    """`GET /v1/stats` of a queue of which every second message is acked."""
    async with in_process() as box:
        await fill(box, 2 * size)
        for _ in range(0, 2 * size, STEP):
            for run in (await box.broker.messages.lease(ORDERS, max=STEP, lease_ms=3_600_000)).runs:
                offsets = range(run.offset + 1, run.offset + run.count, 2)
                await box.broker.messages.ack([f"{run.receipt}{offset}" for offset in offsets])
        return {**await cost("stats", lambda: box.broker.stats.queue(ORDERS))}


async def retries(size: int) -> dict[str, float]:
    """`GET /v1/stats` of a queue with so many messages that wait for their next attempt."""
    async with in_process() as box:
        await fill(box, size)
        for _ in range(0, size, STEP):
            for run in (await box.broker.messages.lease(ORDERS, max=STEP)).runs:
                receipt = f"{run.receipt}{run.offset}-{run.offset + run.count - 1}"
                await box.broker.messages.nack([receipt], delay_ms=3_600_000)
        return {**await cost("stats", lambda: box.broker.stats.queue(ORDERS))}


async def groups(size: int) -> dict[str, float]:
    """`GET /v1/groups` and `GET /v1/stats` of a queue with so many groups."""
    async with in_process() as box:
        await fill(box, 10)
        for number in range(size):
            await box.broker.groups.create(ORDERS, f"group-{number}")
        return {
            **await cost("groups", lambda: box.broker.groups.list(ORDERS)),
            **await cost("stats", lambda: box.broker.stats.queue(ORDERS)),
        }


async def queues(size: int) -> dict[str, float]:
    """`GET /v1/stats/summary`, `/metrics`, `/v1/queues` and the overview of dialects with so many queues."""
    async with in_process() as box:
        await fill(box, 10)
        for number in range(1, size):
            await box.broker.queues.put(parse_queue(f"shop/task/q{number:06}"), {})
        broker, metrics = box.broker, Metrics()
        return {
            **await cost("summary", broker.stats.summary),
            **await cost("metrics", lambda: metrics.exposition(broker)),
            **await cost("list", lambda: broker.queues.list(prefix="shop/", page=3)),
            **await cost("rows", broker.stats.rows),
        }


async def dead_letters(size: int) -> dict[str, float]:
    """The last page, a dry run, the first call of a delete, and a scan by payload, of so many dead letters."""
    async with in_process() as box:
        await give_up(box, size)
        letters, redrives = box.broker.dead_letters, box.broker.redrives
        return {
            **await cost("last_page", lambda: letters.page(ORDERS, page=size // 50)),
            **await cost("group_page", lambda: letters.page(ORDERS, page=size // 50, group="default")),
            **await cost("dry_run", lambda: redrives.start(ORDERS, filter="")),
            **await cost("delete", lambda: letters.delete(ORDERS, filter="")),
            **await cost("scan", lambda: letters.page(ORDERS, filter="payload.n = 2")),
        }


def row(
    name: str, sizes: tuple[int, ...], measure: Callable[[int], Awaitable[dict[str, float]]], *calls: str
) -> GrowthRow:
    bounds = {f"{call}_stop_ms": Bound("ms", STOP_MS_MAX, "largest") for call in calls}
    return GrowthRow(f"reads, {name}", sizes, measure, bounds, rounds=1)


GROWTH = (
    row("acked ranges", (2_000, 20_000, 200_000), acked_ranges, "stats"),
    row("retries", (2_000, 20_000, 200_000), retries, "stats"),
    row("groups", (10, 100, 1_000), groups, "groups", "stats"),
    row("queues", (100, 1_000, 10_000), queues, "summary", "metrics", "list", "rows"),
    row(
        "dead letters", (10_000, 100_000, 1_000_000), dead_letters,
        "last_page", "group_page", "dry_run", "delete", "scan",
    ),
)  # fmt: skip
