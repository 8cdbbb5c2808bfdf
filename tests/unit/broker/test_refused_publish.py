"""A refused publish stores nothing, and creates no queues."""

from __future__ import annotations

import asyncio

import pytest

from penstock.batch import Batch, build
from penstock.broker.types import ProducerSeq, PublishPart
from penstock.engines.memory import MemoryEngine
from penstock.errors import FencedProducer, PenstockError, QueueFull
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process

NEW, FULL, OTHER = parse_queue("new"), parse_queue("full"), parse_queue("other")


def part(queue, count=1) -> PublishPart:
    return PublishPart(queue, Batch.open(build([b"1"] * count)))


def story(test) -> None:
    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory) as box:
            await box.broker.queues.put(FULL, {"max_messages": 2})
            await box.lease("full")
            await box.publish("full", b"1")
            await test(box.broker)
            assert set(box.host.loop.shard.paths) <= {FULL, OTHER}

    asyncio.run(run())


@pytest.mark.parametrize(
    "parts", [[part(NEW), part(FULL, 2)], [part(FULL, 2), part(NEW)], [part(FULL), part(NEW), part(FULL)]]
)
def test_by_a_queue_that_is_full(parts):
    async def test(broker):
        with pytest.raises(QueueFull):
            await broker.messages.publish(parts)
        with pytest.raises(QueueFull):
            await broker.messages.transact([], parts)

    story(test)


def test_by_a_later_epoch():
    async def test(broker):
        await broker.messages.publish([part(OTHER)], ProducerSeq("p", 5, 1))
        with pytest.raises(FencedProducer):
            await broker.messages.publish([part(NEW), part(OTHER)], ProducerSeq("p", 3, 1))

    story(test)


def test_by_its_own_limit():
    async def test(broker):
        with pytest.raises(QueueFull):
            await broker.messages.publish([part(NEW, 3)], create_as={"max_messages": 2})

    story(test)


def test_what_is_repeated_is_not_refused():
    """The numbers of a producer go on over the parts, whichever of them are new."""

    async def test(broker):
        parts = [part(OTHER), part(FULL)]
        first = await broker.messages.publish(parts, ProducerSeq("p", 1, 10))
        again = await broker.messages.publish(parts, ProducerSeq("p", 1, 10))
        assert [run.id for run in again.runs] == [run.id for run in first.runs]

    story(test)


def test_what_is_not_refused_makes_its_queue():
    async def test(broker):
        await broker.messages.publish([part(OTHER), part(FULL)])
        with pytest.raises(PenstockError):
            await broker.messages.publish([part(NEW), part(FULL)])

    story(test)
