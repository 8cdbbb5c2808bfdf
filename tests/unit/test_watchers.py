"""Who watches a queue is told after the commit, once, and not any more when they have had enough."""

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
            await box.broker.put_queue(QUEUE, {"partitions": 2})
            await story(box)

    asyncio.run(whole())


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_watcher_is_told_which_partition_has_grown():
    async def story(box):
        told = []
        end = box.broker.watch(QUEUE, told.append)
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


def test_who_waits_for_the_end_of_a_queue_is_told_of_nothing_else():
    async def story(box):
        told, too_late = [], []
        end = box.broker.watch_end(QUEUE, told.append)
        ends = box.broker.watch_end(QUEUE, too_late.append)
        ends()
        await box.publish("q", b"x")
        await turns()
        assert told == []
        with pytest.raises(Conflict) as asked:
            await box.broker.delete_queue(QUEUE)
        await box.broker.delete_queue(QUEUE, confirm=asked.value.details["confirm"])
        await turns()
        assert [error.code for error in told] == ["queue_not_found"] and too_late == []
        end()
        with pytest.raises(QueueNotFound):
            box.broker.watch_end(QUEUE, told.append)

    run(story)


def test_what_is_told_is_there_to_be_read():
    async def story(box):
        seen = []

        def look(partition):
            reading = box.broker.read(QUEUE, partition=partition)
            with contextlib.suppress(StopIteration):
                reading.send(None)
            seen.append(box.host.loop.log.ends[1, partition])

        box.broker.watch(QUEUE, look)
        await box.publish("q", b"x", b"y", key=[b"same", b"same"])
        await turns()
        assert seen == [2]

    run(story)


def test_the_end_of_a_queue_is_told_too():
    async def story(box):
        told = []
        end = box.broker.watch(QUEUE, told.append)
        try:
            await box.broker.delete_queue(QUEUE)
        except Conflict as asked:
            await box.broker.delete_queue(QUEUE, confirm=asked.details["confirm"])
        await turns()
        assert told == [None]
        end()
        with contextlib.suppress(QueueNotFound):
            box.broker.watch(QUEUE, told.append)

    run(story)


def test_a_lease_that_was_answered_to_nobody_goes_back():
    """The caller is cancelled in the very turn in which the answer came."""

    async def story(box):
        for pause in range(8):
            waiting = asyncio.ensure_future(box.broker.lease(QUEUE, wait_ms=60_000))
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
                await box.broker.ack([message.receipt])
            else:
                run = outcome.runs[0]
                await box.broker.ack([f"{run.receipt}{run.offset}"])

    run(story)
