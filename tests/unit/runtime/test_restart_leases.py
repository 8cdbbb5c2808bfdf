"""Leases survive a restart: a consumer that holds a message gets its full time again."""

from __future__ import annotations

import asyncio
import random

from penstock.batch import Batch, build
from penstock.broker.service import Broker
from penstock.broker.types import PublishPart
from penstock.engines.local.engine import LocalEngine
from penstock.ids import parse_queue
from penstock.runtime.host import open_shard
from penstock.testing.clock import ManualClock

QUEUE = parse_queue("orders")


def in_two_lives(path, before, after) -> None:
    """`before(broker)` in the first life, `after(broker, clock, what before returned)` in the second."""

    async def run():
        clock = ManualClock()
        engine = LocalEngine(str(path), fsync="never")
        host = await open_shard(engine, 0, clock, bytes(16))
        broker = Broker(host, random.Random(1).getrandbits)
        await broker.queues.put(QUEUE, {"lease_ms": 10_000, "backoff": {"kind": "none"}})
        await broker.messages.publish([PublishPart(QUEUE, Batch.open(build([b"1", b"2"])))])
        (leased,) = (await broker.messages.lease(QUEUE, max=2)).runs
        receipts = [f"{leased.receipt}0", f"{leased.receipt}1"]
        await before(broker, clock, receipts)
        await host.close(final_snapshot=False)
        await engine.close()
        engine = LocalEngine(str(path), fsync="never")
        broker = Broker(await open_shard(engine, 0, clock, bytes(16)), random.Random(2).getrandbits)
        await after(broker, clock, receipts)
        await broker.close()
        await engine.close()

    asyncio.run(run())


def statuses(results) -> list[str]:
    return [result.status for result in results]


def test_a_lease_starts_over_however_long_the_broker_was_away(tmp_path):
    async def before(broker, clock, receipts):
        clock.advance(3_600_000)

    async def after(broker, clock, receipts):
        clock.advance(9_999)
        assert (await broker.messages.lease(QUEUE, max=2)).runs == []
        assert statuses(await broker.messages.ack(receipts)) == ["acked", "acked"]

    in_two_lives(tmp_path, before, after)


def test_starting_over_never_takes_time_away(tmp_path):
    async def before(broker, clock, receipts):
        assert statuses(await broker.messages.extend(receipts[:1], lease_ms=200)) == ["extended"]

    async def after(broker, clock, receipts):
        clock.advance(9_000)  # the other one was promised 10 s
        assert statuses(await broker.messages.ack(receipts)) == ["stale", "acked"]

    in_two_lives(tmp_path, before, after)
