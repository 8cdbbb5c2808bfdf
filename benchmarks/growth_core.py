"""Rows of `growth`: publish, lease, ack and cancel against what a shard holds already, and memory for each of it.

The broker runs in the process that measures, on local files without syncs: CPU time is that of the server without its
transport, and of no client.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec

from benchmarks.growth import Bound, GrowthRow, resident_bytes
from penstock.batch import Batch, build, layout
from penstock.broker.service import Broker
from penstock.broker.types import PublishPart
from penstock.clock import SystemClock
from penstock.core.commands import Tick
from penstock.engines.local.engine import LocalEngine
from penstock.ids import QueuePath, parse_queue
from penstock.runtime.host import ShardHost, open_shard
from penstock.runtime.node_memory import NodeMemory
from penstock.testing.inprocess import in_process
from penstock.transports.publishing import publish_all
from penstock.wire.messages import PublishMessage
from penstock.wire.publishing import ParsedPublish
from penstock.wire.schedules import ScheduleMessage, ScheduleRequest

WORK = parse_queue("work")
STEP = 10_000
"""Messages of one command while a state is made."""
HOT_BYTES = 1 << 20
"""Payloads kept in memory: few, so that memory is that of the state."""
NEVER_BYTES = 1 << 50
"""A size that no journal reaches."""
HOUR_MS = 3_600_000
PAYLOAD = b"x" * 200

Figures = Mapping[str, float]


@asynccontextmanager
async def broker(hot_bytes: int = HOT_BYTES) -> AsyncIterator[tuple[Broker, ShardHost]]:
    with tempfile.TemporaryDirectory(prefix="penstock-growth-") as root:
        engine = LocalEngine(root, fsync="never")
        # No round of upkeep starts by itself: its CPU is not that of the calls.
        host = await open_shard(
            engine, 0, SystemClock(), bytes(15) + b"\1", memory=NodeMemory(hot_bytes), segment_bytes=NEVER_BYTES
        )
        try:
            yield Broker(host, Random(1).getrandbits), host
        finally:
            await host.close(final_snapshot=False)
            await engine.close()


def batch(count: int, payload: bytes = PAYLOAD, **columns: Sequence[Any]) -> Batch:
    named: Any = {getattr(layout, name.upper()): values for name, values in columns.items()}
    return Batch.open(build([payload] * count, kind=layout.KIND_BYTES, columns=named))


async def fill(broker: Broker, count: int, step: int = STEP, **columns: Callable[[int], Any]) -> None:
    """Publish `count` small messages; each of `columns` maps the number of a message to its value."""
    for first in range(0, count, step):
        numbers = range(first, min(count, first + step))
        values = {name: [make(number) for number in numbers] for name, make in columns.items()}
        await broker.messages.publish([PublishPart(WORK, batch(len(numbers), b"x", **values))])


async def give_up(broker: Broker, count: int) -> None:
    """Publish messages and make all of them dead letters."""
    for first in range(0, count, STEP):
        await fill(broker, min(STEP, count - first))
        for run in (await broker.messages.lease(WORK, max=STEP)).runs:
            claim = f"{run.receipt}{run.offset}-{run.offset + run.count - 1}"
            await broker.messages.reject([claim], error="no")


async def cpu_us(turn: Callable[[], Awaitable[int]], rounds: int = 5) -> float:
    """CPU of the process for each message of a turn, in microseconds: the best of some turns."""
    gc.collect()
    gc.freeze()
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        messages = await turn()
        best = min(best, (time.process_time() - begun) / messages)
    return best * 1e6


async def publish_us(broker: Broker, queue: QueuePath = WORK) -> float:
    """Batches of 100."""
    frames = [batch(100) for _ in range(20)]

    async def turn() -> int:
        for frame in frames:
            await broker.messages.publish([PublishPart(queue, frame)])
        return 2_000

    return await cpu_us(turn)


async def lease_ack_us(broker: Broker, most: int, turns: int = 20) -> float:
    async def turn() -> int:
        taken = 0
        for _ in range(turns):
            for run in (await broker.messages.lease(WORK, max=most)).runs:
                await broker.messages.ack([f"{run.receipt}{run.offset}-{run.offset + run.count - 1}"])
                taken += run.count
        return taken

    return await cpu_us(turn)


# -- costs that grew ----------------------------------------------------------------------------------------------


async def dead_letters(size: int) -> Figures:
    found = {}
    for name, config in (("fifo", {}), ("lanes", {"order": "lanes"})):
        async with broker() as (at, host):
            await at.queues.put(WORK, config)
            await give_up(at, size)
            await host.upkeep.round()
            await fill(at, 1_000)
            found[f"lease+ack of one, {name}"] = await lease_ack_us(at, 1, turns=50)
            if name == "fifo":
                found["publish b100"] = await publish_us(at)
    return found


async def partitions(size: int) -> Figures:
    async with broker() as (at, _):
        await at.queues.put(WORK, {"partitions": size})
        return {f"keyed publish b{count}": await _keyed_us(at, count) for count in (10_000, 100)}


async def _keyed_us(at: Broker, count: int) -> float:
    numbers = range(max(1, 2_000 // count))
    frames = [batch(count, key=[b"user-%d-%d" % (number, row) for row in range(count)]) for number in numbers]

    async def turn() -> int:
        for frame in frames:
            await at.messages.publish([PublishPart(WORK, frame)])
        return count * len(frames)

    return await cpu_us(turn)


async def groups_delayed(size: int) -> Figures:
    async with broker() as (at, _):
        await fill(at, 1)
        for number in range(size):
            await at.groups.create(WORK, f"group-{number}", start="earliest")
        frames = [batch(100, delay_ms=[HOUR_MS + number] * 100) for number in range(20)]

        async def turn() -> int:
            for frame in frames:
                await at.messages.publish([PublishPart(WORK, frame)])
            return 2_000

        return {"delayed publish b100": await cpu_us(turn), "publish b100": await publish_us(at)}


async def groups_sealing(size: int) -> Figures:
    """Upkeep of 10,000 messages that no group has read."""
    with tempfile.TemporaryDirectory(prefix="penstock-growth-") as root:
        engine = LocalEngine(root, fsync="never", segment_bytes=1 << 20)
        host = await open_shard(
            engine,
            0,
            SystemClock(),
            bytes(15) + b"\1",
            segment_bytes=1 << 20,
            segments_kept=1,
            memory=NodeMemory(HOT_BYTES),
        )
        at = Broker(host, Random(1).getrandbits)
        await fill(at, 1)
        for number in range(size):
            await at.groups.create(WORK, f"group-{number}", start="earliest")
        await host.upkeep.round()
        for _ in range(1_000):
            await at.messages.publish([PublishPart(WORK, batch(10))])
        begun = time.process_time()
        await host.upkeep.round()
        await host.upkeep.round()
        spent = time.process_time() - begun
        await host.close(final_snapshot=False)
        await engine.close()
        return {"upkeep": spent / 10_000 * 1e6}


async def queues_at_once(size: int) -> Figures:
    """One message for each queue, in one publish of JSON."""
    async with broker() as (at, _):
        payload = msgspec.Raw(b'"' + PAYLOAD + b'"')
        messages = [PublishMessage(payload=payload, queue=f"shop/a/q{number}") for number in range(size)]

        async def turn() -> int:
            pending, _ = publish_all(at, ParsedPublish(queue=None, atomic=True, producer=None, messages=messages))
            await pending
            return size

        return {"publish of one to each": await cpu_us(turn)}


async def tenants(size: int) -> Figures:
    async with broker() as (at, _):
        await at.queues.put(WORK, {"fair_share": {"enabled": True}})
        await fill(at, max(size, 20_000) + 20_000, tenant=lambda number: b"tenant-%d" % (number % size))
        return {"lease+ack b100": await lease_ack_us(at, 100)}


async def delays(size: int) -> Figures:
    # At every size a message that is cancelled has to be read.
    async with broker(hot_bytes=HOT_BYTES // 16) as (at, host):
        chance = Random(2)
        await fill(
            at, size, 100,
            delay_ms=lambda _: chance.randrange(HOUR_MS, 24 * HOUR_MS),
            key=lambda number: b"order-%d" % number,
        )  # fmt: skip
        await host.upkeep.round()
        wanted = iter(chance.sample(range(size), 1_000))

        async def turn() -> int:
            for _ in range(50):
                cancelled, _ = await at.scheduled.cancel(WORK, key=f"order-{next(wanted)}")
                assert cancelled == 1
            return 50

        return {"cancel by key": await cpu_us(turn), "publish b100": await publish_us(at)}


async def schedules(size: int) -> Figures:
    """Schedules that fire at the same second."""
    async with in_process() as box:
        message = ScheduleMessage(payload=msgspec.Raw(b'{"report":1}'))
        asked = ScheduleRequest(queue="work", cron="*/10 * * * * *", message=message)
        for number in range(size):
            await box.broker.schedules.put(f"schedule-{number}", asked)

        async def turn() -> int:
            box.clock.advance(10_000)
            await box.host.loop.submit(Tick())
            return size

        return {"fire": await cpu_us(turn)}


# -- costs that are flat ------------------------------------------------------------------------------------------


async def backlog(size: int) -> Figures:
    async with broker() as (at, _):
        await fill(at, size)
        return {"publish b100": await publish_us(at), "lease+ack b100": await lease_ack_us(at, 100)}


async def client_ids(size: int) -> Figures:
    async with broker() as (at, host):
        await fill(at, size, id=lambda number: b"id-%d" % number)
        await host.upkeep.round()
        return {"publish b100": await publish_us(at)}


async def queues(size: int) -> Figures:
    async with broker() as (at, host):
        for number in range(size):
            await at.messages.publish([PublishPart(parse_queue(f"shop/a/q{number}"), batch(1))])
        await host.upkeep.round()
        return {"publish b100": await publish_us(at)}


# -- memory -------------------------------------------------------------------------------------------------------


async def _bytes_each(size: int, make: Callable[[Broker, int], Awaitable[None]], **config: Any) -> Figures:
    async with broker() as (at, host):
        await at.queues.put(WORK, config)
        await make(at, 500)
        before = resident_bytes()
        await make(at, size)
        await host.upkeep.round()
        return {"memory": (resident_bytes() - before) / size}


async def queue_memory(size: int) -> Figures:
    async def make(at: Broker, count: int) -> None:
        for number in range(count):
            await at.messages.publish([PublishPart(parse_queue(f"shop/n{count}/q{number}"), batch(1))])

    return await _bytes_each(size, make)


async def dead_letter_memory(size: int) -> Figures:
    return await _bytes_each(size, give_up)


async def delay_memory(size: int) -> Figures:
    chance = Random(3)

    async def make(at: Broker, count: int) -> None:
        await fill(at, count, delay_ms=lambda _: chance.randrange(60_000, 24 * HOUR_MS), key=lambda n: b"order-%d" % n)

    return await _bytes_each(size, make)


async def heap_memory(size: int) -> Figures:
    chance = Random(4)

    async def make(at: Broker, count: int) -> None:
        await at.groups.create(WORK, "default", start="earliest")
        await fill(at, count, priority=lambda _: chance.randrange(1 << 40))

    return await _bytes_each(size, make, order="heap")


_US = Bound("us/msg")

GROWTH: tuple[GrowthRow, ...] = (
    GrowthRow(
        "dead letters", (1_000, 30_000, 1_000_000), dead_letters,
        {"lease+ack of one, fifo": _US, "lease+ack of one, lanes": _US, "publish b100": _US},
    ),
    GrowthRow("partitions", (2, 16, 256), partitions, {"keyed publish b10000": _US, "keyed publish b100": _US}),
    GrowthRow("groups", (1, 30, 1_000), groups_delayed, {"delayed publish b100": _US, "publish b100": _US}),
    GrowthRow("groups, sealing", (1, 30, 1_000), groups_sealing, {"upkeep": _US}, rounds=1),
    GrowthRow("queues in one call", (20, 200, 2_000), queues_at_once, {"publish of one to each": _US}),
    GrowthRow("tenants", (10, 1_000, 100_000), tenants, {"lease+ack b100": _US}, rounds=2),
    GrowthRow(
        "delays", (50_000, 200_000, 1_000_000), delays, {"cancel by key": _US, "publish b100": _US}, rounds=2,
    ),
    GrowthRow("schedules of one second", (30, 200, 1_000), schedules, {"fire": _US}),
    GrowthRow(
        "backlog", (10_000, 200_000, 5_000_000), backlog, {"publish b100": _US, "lease+ack b100": _US}, rounds=2,
    ),
    GrowthRow("client ids", (10_000, 100_000, 1_000_000), client_ids, {"publish b100": _US}, rounds=1),
    GrowthRow("queues", (10, 1_000, 9_900), queues, {"publish b100": _US}, rounds=2),
    GrowthRow("memory of a queue", (1_000, 9_000), queue_memory, {"memory": Bound("B", 8_192, "largest")}, rounds=1),
    GrowthRow(
        "memory of a dead letter", (30_000, 300_000), dead_letter_memory, {"memory": Bound("B", 200, "largest")},
        rounds=1,
    ),
    GrowthRow(
        "memory of a delay", (100_000, 1_000_000), delay_memory, {"memory": Bound("B", 32, "largest")}, rounds=1,
    ),
    GrowthRow(
        "memory of a heap message", (100_000, 1_000_000), heap_memory, {"memory": Bound("B", 48, "largest")}, rounds=1,
    ),
)  # fmt: skip
