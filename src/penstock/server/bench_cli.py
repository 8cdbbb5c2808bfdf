"""`penstock bench`: throughput and latency of a running server, measured through the SDK in a few seconds.

The figures are a smoke test, not a comparison: the client shares the machine with the server and other processes.
`make bench` in the sources measures ratios to other brokers.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock import limits
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import URL_DEFAULT, Output, OutputOption, Url, show, spinner
from penstock.server.times import duration_option

if TYPE_CHECKING:
    from penstock.client import Queue

FIGURES = Listing(
    "figures", ("figure", "messages", "per_s", "mib_s", "p50_ms", "p99_ms", "max_ms"),
)  # fmt: skip
LATENCY_PAUSE_S = 0.005


class Load(NamedTuple):
    seconds: float
    size: int
    batch: int
    callers: int


def bench(
    seconds: Annotated[float, duration_option("Time of each part.", least_s=0.1, most_s=600, default="3s")] = 3.0,
    size: Annotated[int, typer.Option(min=1, max=limits.PAYLOAD_BYTES_MAX, help="Bytes of a message.")] = 200,
    batch: Annotated[int, typer.Option(min=1, max=limits.BATCH_MESSAGES_MAX, help="Messages of a batch.")] = 100,
    callers: Annotated[int, typer.Option(min=1, max=10_000, help="Concurrent callers of single publishes.")] = 64,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Measure a running server: publish, consume and end-to-end latency. Uses queues of its own, and deletes them.

    Example: penstock bench --seconds 10 --size 1000
    """
    Remote(url).ask("health")
    figures = asyncio.run(_measure(url, Load(seconds, size, batch, callers)))
    answer = {"url": url, "size": size, "figures": figures}
    show(answer, output, FIGURES)


async def _measure(url: str, load: Load) -> list[dict[str, Any]]:
    from penstock.client import Client
    from penstock.errors import Conflict

    name = f"penstock/bench/{secrets.token_hex(4)}"
    async with Client(url) as client:
        bulk, latency = [await client.create_queue(f"{name}-{part}") for part in ("bulk", "latency")]
        parts: list[tuple[str, Queue, Callable[[Queue, Load], Awaitable[Samples]]]] = [
            (f"publish, batches of {load.batch}", bulk, _publish_batches),
            (f"publish, {load.callers} callers", bulk, _publish_singly),
            (f"consume, batches of {load.batch}", bulk, _consume),
            ("publish to delivery", latency, _deliver),
        ]
        figures = []
        try:
            for title, queue, run in parts:
                with spinner(title):
                    figures.append((await run(queue, load)).figure(title, load.size))
        finally:
            for queue in (bulk, latency):
                try:
                    await queue.delete()
                except Conflict as question:
                    await queue.delete(confirm=question.details["confirm"])
    return figures


class Samples:
    """The number of messages moved, and the duration of each call that moved them."""

    def __init__(self) -> None:
        self.messages = 0
        self._took_s: list[float] = []
        self._began = time.perf_counter()
        self._ended = self._began

    def add(self, messages: int, took_s: float) -> None:
        self.messages += messages
        self._took_s.append(took_s)
        self._ended = time.perf_counter()

    def figure(self, name: str, size: int) -> dict[str, Any]:
        rate = self.messages / max(self._ended - self._began, 1e-9)
        took = sorted(self._took_s) or [0.0]
        return {
            "figure": name,
            "messages": self.messages,
            "per_s": round(rate),
            "mib_s": round(rate * size / limits.MIB, 2),
            "p50_ms": _ms(took[len(took) // 2]),
            "p99_ms": _ms(took[len(took) * 99 // 100]),
            "max_ms": _ms(took[-1]),
        }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


async def _publish_batches(queue: Queue, load: Load) -> Samples:
    payloads = [secrets.token_bytes(load.size)] * load.batch
    samples, until = Samples(), time.perf_counter() + load.seconds
    while (began := time.perf_counter()) < until:
        await queue.publish_many(payloads)
        samples.add(load.batch, time.perf_counter() - began)
    return samples


async def _publish_singly(queue: Queue, load: Load) -> Samples:
    payload = secrets.token_bytes(load.size)
    samples, until = Samples(), time.perf_counter() + load.seconds

    async def caller() -> None:
        while (began := time.perf_counter()) < until:
            await queue.publish(payload)
            samples.add(1, time.perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(load.callers)))
    return samples


async def _consume(queue: Queue, load: Load) -> Samples:
    """Drain the queue filled before. Each sample is one round trip: ack a batch and receive the next one."""
    samples, until = Samples(), time.perf_counter() + load.seconds
    began = time.perf_counter()
    async with queue.consume_batches(max=load.batch, wait=0.0) as batches:
        async for batch in batches:
            await batch.ack()
            samples.add(len(batch), time.perf_counter() - began)
            began = time.perf_counter()
            if began > until:
                break
    return samples


async def _deliver(queue: Queue, load: Load) -> Samples:
    """Publish one message at a time to a waiting consumer. Each sample runs from the publish call to the delivery."""
    samples, until = Samples(), time.perf_counter() + load.seconds
    padding = "x" * load.size
    async with queue.consume(prefetch=1) as messages:
        while time.perf_counter() < until:
            waiting = asyncio.create_task(anext(messages))
            await asyncio.sleep(LATENCY_PAUSE_S)  # the lease request reaches the server meanwhile
            began = time.perf_counter()
            publishing = asyncio.create_task(queue.publish(padding))
            async with await waiting:
                samples.add(1, time.perf_counter() - began)
            await publishing
    return samples
