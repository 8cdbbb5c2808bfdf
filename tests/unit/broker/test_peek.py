"""A peek shows what a lease would give next, in that order, whether the group has begun or not."""

from __future__ import annotations

import pytest
from boxed import boxed

from penstock.broker import log_reads
from penstock.errors import Conflict, QueueNotFound
from penstock.ids import parse_queue
from penstock.testing.inprocess import messages

JOBS = parse_queue("jobs")
ORDERS = {
    "heap": {"order": "heap"},
    "max heap": {"order": "heap", "heap_mode": "max", "partitions": 3},
    "lanes": {"order": "lanes", "lane_weights": [2, 1, 1, 1, 1]},
    "keys": {"ordered_keys": True},
    "tenants": {"fair_share": {"enabled": True}},
    "fifo": {"partitions": 3},
}


async def peeked(box, **options) -> list[bytes]:
    return [message.payload for message in messages(await box.broker.log.peek(JOBS, **options))]


async def filled(box, config, count: int = 30) -> None:
    await box.broker.queues.put(JOBS, config)
    rows = range(count)
    await box.publish(
        "jobs",
        *[b"%d" % row for row in rows],
        priority=[(row * 7) % 5 for row in rows],
        key=[b"k%d" % (row % 11) for row in rows],
        tenant=[b"t%d" % (row * row % 3) for row in rows],
        delay_ms=[1_000 if row % 10 == 9 else 0 for row in rows],
    )


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("begun", [False, True])
@boxed
async def test_peek_shows_what_a_lease_would_give(box, name, begun):
    await filled(box, ORDERS[name])
    if begun:
        leased = await box.lease("jobs", max=4)
        await box.broker.messages.nack([message.receipt for message in leased[:2]], delay_ms=0)
    for most in (1, 5, 100):
        shown = await peeked(box, max=most)
        leased = await box.lease("jobs", max=most, group="default" if begun else f"new-{most}")
        assert shown == [message.payload for message in leased]
        await box.broker.messages.release([message.receipt for message in leased])


@boxed
async def test_peek_does_not_begin_the_group(box):
    await filled(box, {"order": "heap"})
    await peeked(box, group="nobody")
    assert (await box.broker.groups.list(JOBS))["groups"] == []


@boxed
async def test_peek_shows_messages_whose_delay_is_over(box):
    await box.broker.queues.put(JOBS, {"order": "heap"})
    await box.publish("jobs", b"later", b"now", priority=[0, 1], delay_ms=[1_000, 0])
    assert await peeked(box) == [b"now"]
    box.clock.advance(1_000)
    assert await peeked(box) == [b"later", b"now"]


@boxed
async def test_messages_that_end_while_a_peek_looks_are_left_out(box, monkeypatch):
    monkeypatch.setattr(log_reads, "PREVIEW_STEP", 1)
    await box.broker.queues.put(JOBS, {"order": "heap"})
    await box.publish("jobs", b"0", b"1", b"2", priority=[0, 1, 2])
    peek = box.broker.log.peek(JOBS)
    peek.send(None)
    await box.broker.scheduled.cancel(
        JOBS, ids=[message.id for message in messages((await box.broker.log.read(JOBS)).runs)][:1]
    )
    with pytest.raises(StopIteration) as done:
        while True:
            peek.send(None)
    assert [message.payload for message in messages(done.value.value)] == [b"1", b"2"]


@boxed
async def test_peek_at_a_queue_that_is_deleted_meanwhile_is_refused(box, monkeypatch):
    monkeypatch.setattr(log_reads, "PREVIEW_STEP", 1)
    await filled(box, {"order": "heap"})
    peek = box.broker.log.peek(JOBS)
    peek.send(None)
    with pytest.raises(Conflict) as asked:
        await box.broker.queues.delete(JOBS)
    await box.broker.queues.delete(JOBS, confirm=asked.value.details["confirm"])
    with pytest.raises(QueueNotFound):
        while True:
            peek.send(None)
