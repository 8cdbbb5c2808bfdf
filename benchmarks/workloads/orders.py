"""Delivery orders: whether lanes, heaps, ordered keys and fair shares are exact at size, and their cost."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

import penstock
from benchmarks.payload import payloads
from benchmarks.peers.http_client import HttpConnection
from benchmarks.peers.penstock_sdk import PenstockSdk
from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import Spread, percentile, percentile_by_parts, ratio
from benchmarks.workloads.run import Run, data_directory, failures, new_queue
from benchmarks.workloads.turns import Cycle, measured
from penstock.limits import HOT_BYTES_MAX, LAST_READ_BYTES_MAX

SYSTEM = "penstock-http"
FILL_BATCH = 1_000
BATCH = 100


class Consumer:
    """Plain JSON calls on one connection: messages of a lease are acked with the next lease."""

    def __init__(self, url: str, queue: str):
        self._connection = HttpConnection(url)
        self._queue = queue

    def lease(self, max: int, ack: list[str], wait_ms: int = 0) -> list[dict[str, Any]]:
        body = {"queue": self._queue, "max": max, "ack": ack, "wait_ms": wait_ms, "lease_ms": 600_000}
        messages: list[dict[str, Any]] = msgspec.json.decode(
            self._connection.post(b"/v1/lease", msgspec.json.encode(body))
        )["messages"]
        return messages

    def settle(self, how: str, receipts: list[str], **options: int) -> None:
        if receipts:
            body = {"receipts": receipts, **options}
            self._connection.post(b"/v1/" + how.encode(), msgspec.json.encode(body))


def receipts_of(messages: list[dict[str, Any]]) -> list[str]:
    return [message["receipt"] for message in messages]


# -- lanes ----------------------------------------------------------------------------------------------------------

LANES = {0: 50, 1: 25, 2: 15, 3: 7, 4: 3}


async def lanes_shares(run: Run) -> list[Row]:
    """100,000 messages leased while all five lanes are full: how far their shares are from 50/25/15/7/3."""
    name = "lanes_shares"
    if not run.wants(SYSTEM):
        return []
    count = 10_000 if run.quick else 100_000
    async with AsyncExitStack() as stack:
        peer = await _started(stack, run)
        queue = await peer.client.create_queue(new_queue(), order="lanes")
        contents = payloads(FILL_BATCH)
        for lane, percent in LANES.items():
            for _ in range(count * percent // 100 // FILL_BATCH + 1):
                await queue.publish_many(contents, priorities=[lane] * FILL_BATCH)
        seen = dict.fromkeys(LANES, 0)
        consumer = Consumer(peer.server.url, queue.path)
        acks: list[str] = []
        began = time.perf_counter()
        # Not a divisor of the round: the shares must not depend on the size of batches.
        for _ in range(count // 64):
            messages = consumer.lease(64, acks)
            for message in messages:
                seen[message["priority"]] += 1
            acks = receipts_of(messages)
        seconds = time.perf_counter() - began
    given = sum(seen.values())
    apart = max(abs(100 * seen[lane] / given - percent) for lane, percent in LANES.items())
    shares = " / ".join(f"{100 * seen[lane] / given:.2f}" for lane in LANES)
    return [
        figure(name, "largest deviation", SYSTEM, "points", apart, f"{shares} % of {given:,}"),
        figure(name, "lease+ack", SYSTEM, "msg/s", given / seconds, "plain JSON, batch 64, acks in the next lease"),
    ]


# -- heap -----------------------------------------------------------------------------------------------------------


async def heap_2m(run: Run) -> list[Row]:
    """A heap of 2,000,000: memory, lease latency at batch 1, speed against one of 2,000, in turns; restart times."""
    name = "heap_2m"
    if not run.wants(SYSTEM):
        return []
    sizes = {"large": 50_000 if run.quick else 2_000_000, "small": 2_000}
    dice = Random(1)
    async with AsyncExitStack() as stack:
        peers = {which: await _started(stack, run) for which in sizes}
        for peer in peers.values():
            await peer.client.create_queue("heap", order="heap")
            await _heap_turn(peer, dice)
        large = peers["large"]
        rss = large.server.rss_bytes()
        for which, peer in peers.items():
            await _fill_heap(peer, sizes[which], dice)
        growth = large.server.rss_bytes() - rss
        consumer, leases = Consumer(large.server.url, "heap"), 500 if run.quick else 5_000
        sealing = _lease_one_by_one(consumer, leases)
        large.server.wait_until_idle()
        waits = _lease_one_by_one(consumer, leases)
        cycles, errors = await take_turns(
            {which: partial(_heap_turn, peer, dice) for which, peer in peers.items()},
            5 * run.pace.rounds,  # short turns, so that the two sides of a quotient are close in time
        )
        stopping, starting = await large.restart(kill=False)
        _, after_kill = await large.restart(kill=True)
        await _heap_turn(large, dice)
    count = sizes["large"]
    note = f"{count:,} in the heap"
    # The server's cache of payloads is bounded and does not depend on their number.
    index_bytes = max(0, growth - HOT_BYTES_MAX - LAST_READ_BYTES_MAX)
    rows = [
        figure(name, "memory", SYSTEM, "B/msg", index_bytes / count, f"{note}; rss grew by {growth / 2**20:.0f} MiB"),
        *(
            figure(name, f"lease {which}", SYSTEM, "ms", value, f"batch 1, {note}")
            for which, value in {
                "p50": percentile(waits, 50),
                "p99": percentile(waits, 99),
                "p99 by parts": percentile_by_parts(waits, 99),
                "max": max(waits),
            }.items()
        ),
        figure(
            name, "lease p99, sealing", SYSTEM, "ms", percentile(sealing, 99), "right after filling it, at full upkeep"
        ),
        figure(name, "restart after SIGTERM", SYSTEM, "s", stopping + starting, f"{stopping:.2f} s of it to stop"),
        figure(name, "restart after kill -9", SYSTEM, "s", after_kill, note),
    ]
    if not errors:
        for what, rates in {
            "publish": {which: [cycle.publish.rate for cycle in each] for which, each in cycles.items()},
            "lease+ack": {which: [cycle.drain.rate for cycle in each] for which, each in cycles.items()},
        }.items():
            rows.append(
                figure(name, f"{what} vs 2,000", SYSTEM, "x", ratio(rates["large"], rates["small"]), f"batch {BATCH}")
            )
    return [*rows, *failures(name, errors)]


async def _fill_heap(peer: _Penstock, count: int, dice: Random) -> None:
    queue, contents = peer.client.queue("heap"), payloads(FILL_BATCH)
    for _ in range(count // FILL_BATCH):
        await queue.publish_many(contents, priorities=[dice.getrandbits(62) for _ in contents])


async def _heap_turn(peer: _Penstock, dice: Random) -> Cycle:
    """Publish as many as are leased, so that the heap keeps its size."""
    queue, contents, count = peer.client.queue("heap"), payloads(BATCH), 4_000

    async def publish() -> int:
        for _ in range(count // BATCH):
            await queue.publish_many(contents, priorities=[dice.getrandbits(62) for _ in contents])
        return count

    async def drain() -> int:
        await peer.drain("heap", BATCH, count)
        return count

    return Cycle(await measured(peer, publish), await measured(peer, drain))


def _lease_one_by_one(consumer: Consumer, count: int) -> list[float]:
    """Milliseconds of each lease of one message; acks go separately and are not counted."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        messages = consumer.lease(1, [])
        took.append((time.perf_counter() - began) * 1000)
        consumer.settle("ack", receipts_of(messages))
    return took


# -- ordered keys ---------------------------------------------------------------------------------------------------

KEYS = 10_000
PER_KEY = 5
FAILS_EVERY = 20
LEASES_IN_TURN = 10


async def ordered_keys(run: Run) -> list[Row]:
    """10,000 keys, the first message of 5 % of them failing: throughput of the other keys against no failures.

    Two servers take turns of a few leases: the ratio is near one, and noise of the machine must affect both.
    """
    name = "ordered_keys"
    if not run.wants(SYSTEM):
        return []
    keys = 1_000 if run.quick else KEYS
    fails_every = {"no failures": 0, "5 % failing": FAILS_EVERY}
    rates: dict[str, list[float]] = {which: [] for which in fails_every}
    async with AsyncExitStack() as stack:
        peers = {which: await _started(stack, run) for which in fails_every}
        for number in range(run.pace.rounds + 1):
            drains = {which: await _filled_with_keys(peers[which], keys, fails_every[which]) for which in peers}
            os.sync()
            for peer in peers.values():
                peer.server.wait_until_idle()
            # The order alternates from round to round.
            in_turn = list(drains.values())[:: 1 if number % 2 else -1]
            while any(not drain.is_over for drain in in_turn):
                for drain in in_turn:
                    drain.go_on(LEASES_IN_TURN)
            for which, drain in drains.items():
                await peers[which].drop(drain.queue)
                if number:  # after one round of warm-up
                    rates[which].append(drain.handled / drain.seconds)
    note = f"{keys:,} keys of {PER_KEY} messages, leases of {BATCH}"
    return [
        *(figure(name, f"lease+ack, {which}", SYSTEM, "msg/s", Spread.of(each), note) for which, each in rates.items()),
        figure(name, "other keys vs no failures", SYSTEM, "x", ratio(rates["5 % failing"], rates["no failures"]), note),
    ]


async def _filled_with_keys(peer: _Penstock, keys: int, fails_every: int) -> _KeysDrain:
    queue = await peer.client.create_queue(new_queue(), ordered_keys=True, max_retries=100)
    for _ in range(PER_KEY):
        for first in range(0, keys, FILL_BATCH):
            names = [f"key-{number}" for number in range(first, first + FILL_BATCH)]
            await queue.publish_many(payloads(FILL_BATCH), keys=names)
    failing = {f"key-{number}" for number in range(0, keys, fails_every)} if fails_every else set[str]()
    return _KeysDrain(peer.server.url, queue.path, failing, (keys - len(failing)) * PER_KEY)


class _KeysDrain:
    """Takes all keys that do not fail out of a queue; the others stay blocked behind their first message."""

    def __init__(self, url: str, queue: str, failing: set[str], wanted: int):
        self.queue = queue
        self.handled = 0
        self.seconds = 0.0
        self.is_over = False
        self._consumer = Consumer(url, queue)
        self._failing = failing
        self._wanted = wanted
        self._acks: list[str] = []
        self._nacks: list[str] = []

    def go_on(self, leases: int) -> None:
        """Up to this many more leases, while there are messages."""
        began = time.perf_counter()
        for _ in range(leases):
            if not self.is_over:
                self._lease()
        self.seconds += time.perf_counter() - began

    def _lease(self) -> None:
        messages = self._consumer.lease(BATCH, self._acks)
        assert messages or self._acks, "keys that do not fail are stuck"
        failed = [message for message in messages if message["key"] in self._failing]
        fine = [message for message in messages if message["key"] not in self._failing] if failed else messages
        self._nacks += receipts_of(failed)
        if len(self._nacks) >= BATCH:
            # Failures are reported a batch at a time, as clients do.
            self._consumer.settle("nack", self._nacks, delay_ms=3_600_000)
            self._nacks = []
        self._acks = receipts_of(fine)
        self.handled += len(fine)
        if self.handled >= self._wanted:
            self._consumer.settle("ack", self._acks)
            self.is_over = True


# -- fair share -----------------------------------------------------------------------------------------------------

TENANTS = 9
EVERY_S = 0.025
"""Between two messages of a normal tenant."""
HANDLING_S = 0.001
"""The time that a consumer takes for a message; messages are handled one after the other."""
CONSUMER_BATCH = 10
FLOOD = 20_000
CAP = 2
"""The limit of messages in flight of a tenant."""


async def fair_share(run: Run) -> list[Row]:
    """9 tenants with a steady trickle, and one that floods: the waits of the others, with the flood and without.

    With turns alone, a message that arrives during the flood's batch waits until the consumer has handled the batch;
    with a limit of messages in flight per tenant the batch is short.
    """
    name = "fair_share"
    if not run.wants(SYSTEM):
        return []
    turns: dict[str, _Sharing] = {
        "alone": _Sharing(0, None),
        "flooded": _Sharing(FLOOD, None),
        "flooded, capped": _Sharing(FLOOD, CAP),
    }
    p99: dict[str, list[float]] = {which: [] for which in turns}
    async with AsyncExitStack() as stack:
        peer = await _started(stack, run)
        for _ in range(run.pace.rounds):
            for which, sharing in turns.items():
                p99[which].append(percentile(await _fair_turn(peer, sharing, quick=run.quick), 99))
    note = f"{TENANTS} tenants, {1 / EVERY_S:.0f} msg/s each; flood of {FLOOD:,}; handling {1000 * HANDLING_S:g} ms"
    batches = f"batches of {CONSUMER_BATCH}"
    return [
        *(
            figure(name, f"p99 wait, {which}", SYSTEM, "ms", sorted(each)[len(each) // 2], note)
            for which, each in p99.items()
        ),
        figure(name, "p99 wait vs alone", SYSTEM, "x", ratio(p99["flooded"], p99["alone"]), batches),
        figure(
            name, "p99 wait vs alone, capped", SYSTEM, "x", ratio(p99["flooded, capped"], p99["alone"]),
            f"{batches}, max_in_flight {CAP}",
        ),
    ]  # fmt: skip


class _Sharing(NamedTuple):
    flood: int
    cap: int | None


async def _fair_turn(peer: _Penstock, sharing: _Sharing, *, quick: bool) -> list[float]:
    """Milliseconds from the start of a publish until a consumer has the message, for the normal tenants."""
    shares = {"enabled": True} | ({"max_in_flight": sharing.cap} if sharing.cap is not None else {})
    queue = await peer.client.create_queue(new_queue(), fair_share=shares)
    # The group exists before the flood, as in practice.
    Consumer(peer.server.url, queue.path).lease(1, [])
    flood = sharing.flood
    for first in range(0, flood, FILL_BATCH):
        await queue.publish_many([0] * min(FILL_BATCH, flood - first), tenant="flood")
    until = time.perf_counter() + (2.0 if quick else 6.0)
    waits: list[float] = []

    async def trickle(number: int) -> None:
        due = time.perf_counter() + EVERY_S * number / TENANTS
        while due < until:
            await asyncio.sleep(due - time.perf_counter())
            await queue.publish(time.perf_counter(), tenant=f"tenant-{number}")
            due += EVERY_S

    async def consume() -> None:
        async with queue.consume_batches(max=CONSUMER_BATCH, wait=0.5) as batches:
            async for batch in batches:
                now = time.perf_counter()
                sent = [value for value in batch.values() if value]
                waits.extend((now - value) * 1000 for value in sent)
                await asyncio.sleep(HANDLING_S * len(batch))
                await batch.ack()
                if now > until + 1:
                    return

    await asyncio.gather(consume(), *(trickle(number) for number in range(TENANTS)))
    await peer.drop(queue.path)
    return waits


# -- the server -----------------------------------------------------------------------------------------------------


class _Penstock(PenstockSdk):
    """The SDK's client: these workloads have no other peers."""

    @property
    def client(self) -> penstock.Client:
        return self._client


async def _started(stack: AsyncExitStack, run: Run) -> _Penstock:
    peer = _Penstock(batches=True)
    stack.push_async_callback(peer.stop)
    await peer.start(stack.enter_context(data_directory()))
    run.versions |= peer.versions()
    return peer
