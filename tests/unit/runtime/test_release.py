"""A released message is ready at once, first in order, and does not count as an attempt; unreceived leases are
released."""

from __future__ import annotations

import asyncio
import random

from penstock.batch import Batch, build
from penstock.broker.service import Broker
from penstock.broker.types import PublishPart
from penstock.clock import SystemClock
from penstock.engines.memory import MemoryEngine
from penstock.ids import parse_queue
from penstock.runtime.host import open_shard

QUEUE = parse_queue("orders")


def with_broker(story):
    async def run():
        engine = MemoryEngine()
        broker = Broker(await open_shard(engine, 0, SystemClock(), bytes(16)), random.Random(1).getrandbits)
        await broker.queues.put(QUEUE, {"max_retries": 0})
        await broker.messages.publish([PublishPart(QUEUE, Batch.open(build([b"1", b"2", b"3"])))])
        await story(broker)
        await broker.close()

    asyncio.run(run())


def receipts(reply):
    return [f"{run.receipt}{offset}" for run in reply.runs for offset in range(run.offset, run.offset + run.count)]


def delivered(reply):
    return [(run.offset + row, run.attempt) for run in reply.runs for row in range(run.count)]


def test_given_back_is_ready_at_once_in_its_old_place_and_not_an_attempt():
    async def story(broker):
        first = await broker.messages.lease(QUEUE, max=2)
        results = await broker.messages.release(receipts(first))
        assert [result.status for result in results] == ["released", "released"]
        assert delivered(await broker.messages.lease(QUEUE, max=3)) == [(0, 1), (1, 1), (2, 1)]
        assert [result.status for result in await broker.messages.ack(receipts(first))] == ["stale", "stale"]

    with_broker(story)


def test_released_message_wakes_a_waiting_lease():
    async def story(broker):
        first = await broker.messages.lease(QUEUE, max=3)
        waiting = asyncio.ensure_future(broker.messages.lease(QUEUE, max=3, wait_ms=60_000))
        await asyncio.sleep(0)
        await broker.messages.release(receipts(first)[1:])
        assert delivered(await waiting) == [(1, 1), (2, 1)]

    with_broker(story)


def test_disconnect_during_the_commit_of_a_lease_releases_it():
    async def story(broker):
        asking = asyncio.ensure_future(broker.messages.lease(QUEUE, max=3))
        await asyncio.sleep(0)  # decided, and waiting for the journal
        asking.cancel()
        assert delivered(await broker.messages.lease(QUEUE, max=3, wait_ms=5_000)) == [(0, 1), (1, 1), (2, 1)]

    with_broker(story)
