"""Callbacks of a queue run after the commit, once, and not after their removal."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from penstock.errors import Conflict, QueueNotFound
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process

QUEUE = parse_queue("q")


def run(story):
    async def whole():
        async with asyncio.timeout(30), in_process() as box:
            await box.broker.queues.put(QUEUE, {"partitions": 2})
            await story(box)

    asyncio.run(whole())


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def test_callback_gets_the_partition_that_has_grown():
    async def story(box):
        told = []
        end = box.broker.log.watch(QUEUE, told.append)
        await box.publish("q", *[b"x"] * 50, key=[b"%d" % number for number in range(50)])
        await turns()
        assert sorted(told) == [0, 1]
        await box.publish("other", b"x")
        await turns()
        assert len(told) == 2
        end()
        await box.publish("q", b"x")
        await turns()
        assert len(told) == 2

    run(story)


def test_deletion_callback_ignores_other_events():
    async def story(box):
        told, too_late = [], []
        end = box.broker.log.watch_end(QUEUE, told.append)
        ends = box.broker.log.watch_end(QUEUE, too_late.append)
        ends()
        await box.publish("q", b"x")
        await turns()
        assert told == []
        with pytest.raises(Conflict) as asked:
            await box.broker.queues.delete(QUEUE)
        await box.broker.queues.delete(QUEUE, confirm=asked.value.details["confirm"])
        await turns()
        assert [error.code for error in told] == ["queue_not_found"] and too_late == []
        end()
        with pytest.raises(QueueNotFound):
            box.broker.log.watch_end(QUEUE, told.append)

    run(story)


def test_messages_are_readable_in_the_callback():
    async def story(box):
        seen = []

        def look(partition):
            reading = box.broker.log.read(QUEUE, partition=partition)
            with contextlib.suppress(StopIteration):
                reading.send(None)
            seen.append(box.host.loop.log.ends[1, partition])

        box.broker.log.watch(QUEUE, look)
        await box.publish("q", b"x", b"y", key=[b"same", b"same"])
        await turns()
        assert seen == [2]

    run(story)


def test_deletion_calls_the_callback():
    async def story(box):
        told = []
        end = box.broker.log.watch(QUEUE, told.append)
        try:
            await box.broker.queues.delete(QUEUE)
        except Conflict as asked:
            await box.broker.queues.delete(QUEUE, confirm=asked.details["confirm"])
        await turns()
        assert told == [None]
        end()
        with contextlib.suppress(QueueNotFound):
            box.broker.log.watch(QUEUE, told.append)

    run(story)


def test_lease_without_receiver_is_released():
    """The caller is cancelled in the very turn in which the answer came."""

    async def story(box):
        for pause in range(8):
            waiting = asyncio.ensure_future(box.broker.messages.lease(QUEUE, wait_ms=60_000))
            await asyncio.sleep(0)
            publishing = asyncio.ensure_future(box.publish("q", b"x"))
            for _ in range(pause):
                await asyncio.sleep(0)
            waiting.cancel()
            await publishing
            (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
            await turns()
            if isinstance(outcome, asyncio.CancelledError):
                (message,) = await box.lease("q", max=10)
                assert message.attempt == 1
                await box.broker.messages.ack([message.receipt])
            else:
                run = outcome.runs[0]
                await box.broker.messages.ack([f"{run.receipt}{run.offset}"])

    run(story)
