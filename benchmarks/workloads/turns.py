"""The turns of most workloads. Each starts with an empty queue and deletes it at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from benchmarks.payload import payload, payloads
from benchmarks.peers import Peer
from benchmarks.stats import Sample
from benchmarks.workloads.run import new_queue

MESSAGES_MAX = 400_000
"""Bounds the data that a very fast peer writes in one turn: 80 MB of payload."""


class Cycle(NamedTuple):
    """The same messages, in and out."""

    publish: Sample
    drain: Sample

    @property
    def cpu_us(self) -> float:
        """Microseconds of server CPU per message for publish, lease and ack together."""
        return self.publish.cpu_us + self.drain.cpu_us


async def publish_for(peer: Peer, batch: int, seconds: float) -> Sample:
    """One caller, one batch after the other, for `seconds`."""
    queue = new_queue()
    await peer.create(queue)
    contents = payloads(batch)

    async def work() -> int:
        sent = 0
        until = time.perf_counter() + seconds
        while time.perf_counter() < until and sent < MESSAGES_MAX:
            await peer.publish(queue, contents)
            sent += batch
        return sent

    sample = await measured(peer, work)
    await peer.drop(queue)
    return sample


async def publish_by_callers(peer: Peer, callers: int, seconds: float) -> Sample:
    """Many callers, each with one message at a time, each waiting for its own confirmation."""
    queue = new_queue()
    await peer.create(queue)
    content = payload(0)

    async def work() -> int:
        until = time.perf_counter() + seconds

        async def caller() -> int:
            sent = 0
            while time.perf_counter() < until:
                await peer.publish_one(queue, content)
                sent += 1
            return sent

        return sum(await asyncio.gather(*(caller() for _ in range(callers))))

    sample = await measured(peer, work)
    await peer.drop(queue)
    return sample


class CycleTurn:
    """Publish a number of messages, then drain exactly those.

    The number follows the peer's speed in the turn before, so that turns of slow and fast peers take about as long; the
    first turn is short and is the warm-up of all peers.
    """

    def __init__(self, peer: Peer, batch: int, seconds: float, *, fill_batch: int | None = None):
        self._peer = peer
        self._batch = batch
        self._fill = payloads(fill_batch or batch)
        self._seconds = seconds
        self._count = 10 * len(self._fill)

    async def __call__(self) -> Cycle:
        peer, queue, count = self._peer, new_queue(), self._count
        await peer.create(queue)

        async def publish() -> int:
            for _ in range(count // len(self._fill)):
                await peer.publish(queue, self._fill)
            return count

        async def drain() -> int:
            await peer.drain(queue, self._batch, count)
            return count

        cycle = Cycle(await measured(peer, publish), await measured(peer, drain))
        await peer.drop(queue)
        wanted = min(MESSAGES_MAX, int(cycle.drain.rate * self._seconds))
        self._count = max(10, wanted // len(self._fill)) * len(self._fill)
        return cycle


async def measured(peer: Peer, work: Callable[[], Awaitable[int]]) -> Sample:
    """`work` returns the number of messages that it handled."""
    cpu = peer.server.cpu_seconds()
    began = time.perf_counter()
    messages = await work()
    seconds = time.perf_counter() - began
    return Sample(messages, seconds, peer.server.cpu_seconds() - cpu)
