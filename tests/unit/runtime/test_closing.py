"""A broker that closes answers all requests."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.batch import Batch, build
from penstock.broker.service import Broker
from penstock.broker.types import PublishPart
from penstock.clock import SystemClock
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Unavailable
from penstock.ids import parse_queue
from penstock.runtime.host import open_shard

QUEUE = parse_queue("orders")


@pytest.mark.parametrize("busy", range(8))
def test_commands_during_close_are_answered(tmp_path, busy):
    async def run():
        engine = LocalEngine(str(tmp_path), fsync="never")
        broker = Broker(await open_shard(engine, 0, SystemClock(), bytes(16)), random.Random(1).getrandbits)
        for _ in range(100):
            await broker.messages.publish([PublishPart(QUEUE, Batch.open(build([b"1"])))])

        async def consume() -> int:
            leased = 0
            while True:
                try:
                    runs = (await broker.messages.lease(QUEUE)).runs
                    await broker.messages.release([f"{run.receipt}{run.offset}" for run in runs])
                except Unavailable:
                    return leased
                leased += len(runs)

        consumers = [asyncio.ensure_future(consume()) for _ in range(busy)]
        await broker.messages.lease(QUEUE)
        closing = asyncio.ensure_future(broker.close())
        async with asyncio.timeout(10):
            await asyncio.gather(closing, *consumers)
        await engine.close()

    asyncio.run(run())


def test_close_completes_waiting_leases(tmp_path):
    async def run():
        engine = LocalEngine(str(tmp_path), fsync="never")
        broker = Broker(await open_shard(engine, 0, SystemClock(), bytes(16)), random.Random(1).getrandbits)
        await broker.queues.put(QUEUE, {})
        leasing = asyncio.ensure_future(broker.messages.lease(QUEUE, wait_ms=60_000))
        reading = asyncio.ensure_future(broker.log.read(QUEUE, wait_ms=60_000))
        await asyncio.sleep(0)
        broker.stop_waiting()
        async with asyncio.timeout(10):
            assert (await leasing).runs == (await reading).runs == []
            assert (await broker.messages.lease(QUEUE, wait_ms=60_000)).runs == []
            with pytest.raises(Unavailable):
                await broker.messages.publish([PublishPart(QUEUE, Batch.open(build([b"1"])))])
            assert (await broker.messages.ack([]), broker.ready) == ([], False), "what is under way can be finished"
        await broker.close()
        await engine.close()

    asyncio.run(run())
