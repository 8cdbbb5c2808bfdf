"""Whether the cost of analytics depends on new events only, or on the whole history.

A broker with an analysed history of finished messages; then a hundred thousand new events, and the time of the step
over them. The same again with ten and fifty times the history.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.report import Row, figure
from benchmarks.stats import Spread
from benchmarks.workloads.run import Run, data_directory
from benchmarks.workloads.spark import SYSTEM, started
from penstock.pipeline.analytics import Analysis
from penstock.sync import Client

BATCH = 10_000
EVENTS_EACH = 3
"""Published, leased, acked."""


async def analytics_growth(run: Run) -> list[Row]:
    """The analytics step over 100,000 new events, at 0.1, 1 and 5 million events of history."""
    name = "analytics_growth"
    if not run.wants(SYSTEM):
        return []
    new, sizes = (12_000, (12_000, 60_000)) if run.quick else (100_000, (100_000, 1_000_000, 5_000_000))
    async with AsyncExitStack() as stack:
        root = stack.enter_context(data_directory())
        peer, spark = await started(stack, run, root)
        steps = await asyncio.to_thread(_measure, spark, peer.server.url, root, new, sizes, run.pace.rounds)
    rows = [figure(name, f"step at {size:,} events", SYSTEM, "s", Spread.of(steps[size])) for size in sizes]
    least = Spread.of(steps[sizes[0]]).median
    for size in sizes[1:]:
        grown = [seconds / least for seconds in steps[size]]
        rows.append(figure(name, f"{size:,} against {sizes[0]:,}", SYSTEM, "x", Spread.of(grown)))
    return rows


def _measure(spark: Any, url: str, root: Path, new: int, sizes: tuple[int, ...], rounds: int) -> dict[int, list[float]]:
    analysis = Analysis(spark, root / "lake", url)
    steps: dict[int, list[float]] = {}
    history = 0
    with Client(url) as client:
        queue = client.create_queue("work")
        for _ in range(2):
            # Spark gets faster while it warms up, which is not measured here.
            history += _traffic(queue, new)
            _catch_up(analysis)
        for size in sizes:
            history += _traffic(queue, max(0, size - history))
            _catch_up(analysis)
            steps[size] = []
            for _ in range(rounds):
                history += _traffic(queue, new)
                began = time.perf_counter()
                _catch_up(analysis)
                steps[size].append(time.perf_counter() - began)
    return steps


def _catch_up(analysis: Analysis) -> None:
    for _ in analysis.run():
        pass


def _traffic(queue: Any, events: int) -> int:
    """Publish and finish messages for this many events."""
    left = events // EVENTS_EACH
    done = 0
    while left > 0:
        count = min(BATCH, left)
        queue.publish_many([b"x" * 20] * count)
        taken = 0
        for batch in queue.consume_batches(max=count, wait=0.05, consumer="worker"):
            batch.ack()
            taken += len(batch)
            if taken >= count:
                break
        left -= count
        done += count * EVENTS_EACH
    return done
