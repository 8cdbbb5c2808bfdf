"""Exclusive queues: one lease at a time in a group, and what failed comes before what is next."""

from __future__ import annotations

import asyncio

import pytest

from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process, messages

QUEUE = parse_queue("books/ledger/main")
PATH = str(QUEUE)
STEADY = {"kind": "fixed", "base_ms": 5_000, "jitter": 0}


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


async def made(box, **config):
    await box.broker.queues.put(QUEUE, {"exclusive": True, "lease_ms": 1_000, "backoff": STEADY, **config})
    await box.publish(PATH, *(b"%d" % number for number in range(4)))


def payloads(leased):
    return [int(message.payload) for message in leased]


def waiting(box, **options):
    return asyncio.ensure_future(box.lease(PATH, wait_ms=60_000, **options))


@pytest.mark.parametrize("order", [{}, {"order": "lanes"}, {"ordered_keys": True}])
def test_the_next_gets_something_when_the_last_is_done(order):
    async def story():
        async with in_process() as box:
            await made(box, **order)
            first = await box.lease(PATH, max=2)
            assert payloads(first) == [0, 1]
            second = waiting(box, max=9)
            assert payloads(await box.lease(PATH, group="audit", max=9)) == [0, 1, 2, 3], "groups are alone each"
            await box.broker.messages.ack([first[0].receipt])
            assert not second.done() and await box.lease(PATH) == []
            await box.broker.messages.ack([first[1].receipt])
            assert payloads(await second) == [2, 3]

    run(story)


def test_what_failed_comes_before_what_is_next_also_after_a_restart():
    async def story():
        async with in_process() as box:
            await made(box)
            (first,) = await box.lease(PATH, max=1)
            await box.broker.messages.nack([first.receipt], error="no")
            await box.restart()
            assert await box.lease(PATH) == []
            next_one = waiting(box, max=1)
            await box.advance(4_999)
            assert not next_one.done()
            await box.advance(1)
            assert payloads(await next_one) == [0]

    run(story)


def test_exclusive_queue_is_blocked_until_the_lease_of_a_crashed_worker_expires():
    async def story():
        async with in_process() as box:
            await made(box, backoff={"kind": "none"})
            await box.lease(PATH, max=1)
            next_one = waiting(box, max=1)
            await box.advance(999)
            assert not next_one.done()
            await box.advance(1)
            assert [(int(m.payload), m.attempt) for m in await next_one] == [(0, 2)]

    run(story)


def test_exclusive_mode_can_be_switched_at_any_time():
    async def story():
        async with in_process() as box:
            await made(box, exclusive=False)
            (first,) = await box.lease(PATH, max=1)
            await box.broker.queues.patch(QUEUE, {"exclusive": True})
            assert await box.lease(PATH) == []
            told = await box.broker.explanations.explain(QUEUE, group="default")
            assert "exclusive, and 1 of its messages are in flight" in str(told)
            await box.broker.messages.nack([first.receipt], error="no")
            other = (await box.lease(PATH, group="audit", max=2))[1]
            assert "what failed comes again in 5s" in str(await box.broker.explanations.explain(QUEUE, id=other.id))
            next_one = waiting(box, max=1)
            await box.broker.queues.patch(QUEUE, {"exclusive": False})
            assert payloads(await next_one) == [1]

    run(story)


def test_a_scope_goes_on_to_other_queues_and_comes_back():
    async def story():
        async with in_process() as box:
            await made(box, queue_priority=9)
            await box.publish("books/ledger/other", b"7")

            async def lease():
                return messages((await box.broker.messages.lease_scope("books", max=1)).runs)

            first = await lease()
            assert payloads(first) == [0] and payloads(await lease()) == [7]
            await box.broker.messages.ack([first[0].receipt])
            assert payloads(await lease()) == [1]

    run(story)


def test_members_wait_for_what_happens_in_any_partition():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(QUEUE, {"exclusive": True, "partitions": 2, "lease_ms": 60_000})
            seats = {}
            for name in ("ada", "bob", "ada", "bob"):
                if name not in seats:
                    seats[name] = await box.broker.members.join(QUEUE, member=name)
                else:
                    seats[name] = await box.broker.members.heartbeat(
                        QUEUE, member=name, generation=seats[name].generation
                    )
            owner = {partition: name for name, seat in seats.items() for partition in seat.assigned}
            for key in (b"a", b"b", b"c", b"d", b"e"):
                await box.publish(PATH, b"0", key=[key])

            def lease(name, **options):
                generation = seats[name].generation
                return box.lease(PATH, max=100, member=name, generation=generation, **options)

            first = await lease(owner[0])
            other = asyncio.ensure_future(lease(owner[1], wait_ms=60_000))
            await asyncio.sleep(0)
            assert first and not other.done()
            await box.broker.messages.ack([message.receipt for message in first])
            assert {message.partition for message in await asyncio.wait_for(other, 5)} == {1}

    run(story)


@pytest.mark.parametrize("config", [{}, {"exclusive": False, "ordered_keys": True}])
def test_what_waits_behind_something_goes_on_when_that_expires(config):
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(QUEUE, {"exclusive": True, **config})
            await box.publish(PATH, b"0", b"1", key=[b"k", b"k"], ttl_ms=[10_000, 0])
            (first,) = await box.lease(PATH, max=1)
            await box.broker.messages.nack([first.receipt], delay_ms=3_600_000)
            next_one = waiting(box, max=1)
            await asyncio.sleep(0)
            assert not next_one.done()
            await box.advance(10_000)
            assert payloads(await asyncio.wait_for(next_one, 5)) == [1]

    run(story)
