"""Priorities of published messages: the default of each order, and priorities without effect."""

from __future__ import annotations

import asyncio

import pytest
from at_once import at_once
from patience import until

from penstock.batch import Batch, build, layout
from penstock.batch.priorities import priority_columns
from penstock.broker.types import PublishPart
from penstock.core import commands
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process

JOBS = parse_queue("jobs")


async def publish(box, payloads, priorities):
    batch = Batch.open(build(payloads, kind=layout.KIND_BYTES, columns=priority_columns(priorities)))
    return await box.broker.messages.publish([PublishPart(JOBS, batch)])


async def leased(box, queue):
    """(payload, priority) in the order of delivery."""
    found = []
    for run in (await box.broker.messages.lease(parse_queue(queue), max=100)).runs:
        assert not run.batch.has(layout.HAS_PRIORITY), "stored frames have the priorities themselves"
        has = run.batch.has(layout.PRIORITY)
        priorities = run.batch.integers(layout.PRIORITY).tolist() if has else [0] * run.count
        found += zip(run.batch.payloads(), priorities, strict=True)
    return found


def delivered(config, *batches):
    """The deliveries of these batches, each the payloads and their priorities."""

    async def run():
        async with in_process() as box:
            await box.broker.queues.put(JOBS, config)
            for payloads, priorities in batches:
                await publish(box, payloads, priorities)
            return await leased(box, "jobs")

    return asyncio.run(run())


def test_message_without_priority_is_in_the_normal_lane():
    found = delivered(
        {"order": "lanes"},
        ([b"plain"], [None]),
        ([b"low", b"none", b"critical"], [3, None, 0]),
    )
    assert found == [(b"critical", 0), (b"plain", 2), (b"none", 2), (b"low", 3)]


def test_message_without_priority_has_priority_zero_in_a_heap():
    found = delivered({"order": "heap"}, ([b"plain"], [None]), ([b"none", b"late", b"early"], [None, 7, -7]))
    assert found == [(b"early", -7), (b"plain", 0), (b"none", 0), (b"late", 7)]


def test_message_without_priority_shows_zero_in_a_fifo_queue():
    assert delivered({}, ([b"a", b"b"], [None, 5])) == [(b"a", 0), (b"b", 5)]


@pytest.mark.parametrize("wrong", [-1, 5, -(2**63) + 1])
def test_priority_that_is_no_lane_is_refused(wrong):
    with pytest.raises(InvalidRequest, match="not a lane of the queue: use 0") as refused:
        delivered({"order": "lanes"}, ([b"a", b"b"], [None, wrong]))
    assert refused.value.details == {"row": 1, "field": "priority"}


def test_stored_messages_without_priority_stay_in_the_critical_lane():
    """Journals of before have no priority for them; the lane of a stored message does not change."""

    async def run():
        async with in_process() as box:
            await box.broker.queues.put(JOBS, {"order": "lanes"})
            await publish(box, [b"new"], [None])
            number = box.host.loop.shard.paths[JOBS]
            stored = Batch.open(build([b"old"], kind=layout.KIND_BYTES))
            await box.host.loop.submit(commands.Publish([commands.Part(number, stored)], 0))
            await box.restart()
            return await leased(box, "jobs")

    assert asyncio.run(run()) == [(b"old", 0), (b"new", 2)]


@pytest.mark.parametrize(
    ("config", "priority", "ignored"),
    [({}, 3, ("priority",)), ({}, 0, ()), ({}, None, ()), ({"order": "lanes"}, 3, ()), ({"order": "heap"}, 3, ())],
)
def test_reply_names_a_priority_without_effect(config, priority, ignored):
    async def run():
        async with in_process() as box:
            await box.broker.queues.put(JOBS, config)
            reply = await publish(box, [b"1", b"2"], [0, priority])
            assert reply.ignored == ignored

    asyncio.run(run())


def test_redriven_copies_without_priority_are_normal_in_lanes():
    async def run():
        async with in_process() as box:
            target = parse_queue("lanes")
            await box.broker.queues.put(target, {"order": "lanes"})
            await box.publish("jobs", b"1")
            (message,) = await box.lease("jobs")
            await box.broker.messages.reject([message.receipt])
            await box.broker.redrives.start(JOBS, filter="", target=target, dry_run=False)
            await until(lambda: at_once(box.broker.stats.queue(target))["depth"] == 1)
            assert [priority for _, priority in await leased(box, "lanes")] == [2]

    asyncio.run(run())
