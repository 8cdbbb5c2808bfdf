"""Members that join and leave: the delays of partitions that stay, and of messages of partitions that move."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from benchmarks.payload import number_of, payload
from benchmarks.peers.penstock_sdk import PenstockSdk
from benchmarks.report import Row, figure
from benchmarks.stats import percentile
from benchmarks.workloads.run import Run, new_queue
from penstock import Assigned, Client, Message

PEER = "penstock-sdk"
PARTITIONS = 12
RESIDENTS = 4
GROUP = "storm"
BATCH_EVERY_S = 0.01
LEASE_S = 4.0
PAUSE_MS = 500.0
"""A partition that did not move has paused if one of its messages waited for longer than this."""


async def rebalance_storm(run: Run) -> list[Row]:
    """50 joins and leaves in a group of four on twelve partitions, with a steady flow of messages through all."""
    name = "rebalance_storm"
    changes = 10 if run.quick else 50
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockSdk)
        async with Client(peer.server.url) as client:
            storm = Storm(client, new_queue())
            await storm.blow(changes)
    note = f"{changes} joins and leaves, {len(storm.finished):,} messages in {PARTITIONS} partitions"
    figures: dict[str, tuple[float, str]] = {
        "partitions owned twice": (storm.overlaps, ""),
        "pauses of unmoved partitions": (sum(wait > PAUSE_MS for wait in storm.unmoved_ms), ""),
        "messages lost": (storm.published - len(storm.finished), ""),
        "messages handled twice": (storm.finished_twice, ""),
        "wait p50, unmoved": (percentile(storm.unmoved_ms, 50), "ms"),
        "wait p99, unmoved": (percentile(storm.unmoved_ms, 99), "ms"),
        "wait max, unmoved": (max(storm.unmoved_ms), "ms"),
        "wait max, moved": (max(storm.moved_ms, default=0.0), "ms"),
    }
    return [*(figure(name, what, PEER, unit, value, note) for what, (value, unit) in figures.items()), *rows]


class Storm:
    """Members that stay, members that come and go, a producer, and a record of deliveries."""

    def __init__(self, client: Client, queue: str):
        self._client = client
        self._queue = queue
        self.published = 0
        self.finished: set[int] = set()
        self.finished_twice = 0
        self.overlaps = 0
        self.unmoved_ms: list[float] = []
        """From publish to handler, of messages whose predecessor in the partition was handled by the same member."""
        self.moved_ms: list[float] = []
        self._published_at: list[float] = []
        self._last_handler = [""] * PARTITIONS
        self._in_hand: list[set[str]] = [set() for _ in range(PARTITIONS)]

    async def blow(self, changes: int) -> None:
        await self._client.create_queue(self._queue, partitions=PARTITIONS)
        producing = asyncio.create_task(self._produce())
        async with contextlib.AsyncExitStack() as residents:
            for number in range(RESIDENTS):
                await residents.enter_async_context(self._member(f"resident-{number}"))
            await self._until_finished(100)
            for number in range(changes // 2):
                async with self._member(f"guest-{number}"):
                    await self._until_finished(len(self.finished) + 50)
                await self._until_finished(len(self.finished) + 50)
        producing.cancel()
        await asyncio.wait({producing})
        await self._take_the_rest()

    @contextlib.asynccontextmanager
    async def _member(self, system: str) -> AsyncIterator[None]:
        """A consumer that joins the group, and leaves after its current message."""
        joined, ended = asyncio.Event(), asyncio.Event()
        working = asyncio.create_task(self._work(system, joined, ended))
        await asyncio.wait({working, asyncio.ensure_future(joined.wait())}, return_when=asyncio.FIRST_COMPLETED)
        yield
        ended.set()
        await working

    async def _work(self, system: str, joined: asyncio.Event, ended: asyncio.Event) -> None:
        options = Assigned(session=10.0, drain=5.0, on_assigned=lambda _: joined.set())
        queue = self._client.queue(self._queue)
        async with queue.consume(group=GROUP, assigned=options, prefetch=20, lease=LEASE_S) as messages:
            async for message in messages:
                async with message:
                    self._begin(system, message)
                    await asyncio.sleep(0.001)
                    self._finish(system, message)
                if ended.is_set():
                    return

    def _begin(self, system: str, message: Message) -> None:
        partition = message.partition
        holders = self._in_hand[partition]
        holders.add(system)
        self.overlaps += len(holders) > 1
        waits = self.unmoved_ms if self._last_handler[partition] == system else self.moved_ms
        waits.append((time.perf_counter() - self._published_at[number_of(message.payload)]) * 1000)
        self._last_handler[partition] = system

    def _finish(self, system: str, message: Message) -> None:
        self._in_hand[message.partition].discard(system)
        number = number_of(message.payload)
        self.finished_twice += number in self.finished
        self.finished.add(number)

    async def _produce(self) -> None:
        while True:
            numbers = range(self.published, self.published + PARTITIONS)
            self.published += PARTITIONS
            self._published_at += [time.perf_counter()] * PARTITIONS
            contents, keys = [payload(number) for number in numbers], [f"key-{number % 97}" for number in numbers]
            # Started messages are finished, also at the end.
            await asyncio.shield(self._client.queue(self._queue).publish_many(contents, keys=keys))
            await asyncio.sleep(BATCH_EVERY_S)

    async def _take_the_rest(self) -> None:
        """When all members have left, the group has no members again."""
        # A reply that was sent while the connection closed leaves a lease that has to expire.
        async for message in self._client.queue(self._queue).consume(group=GROUP, wait=LEASE_S + 2):
            async with message:
                self._finish("", message)

    async def _until_finished(self, count: int) -> None:
        while len(self.finished) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
