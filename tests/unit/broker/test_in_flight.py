"""Settling by id: the holder of a message is found among the leases."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.broker import in_flight
from penstock.core.commands import DeleteQueue, Tick
from penstock.errors import Conflict, QueueNotFound
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process

ORDERS = parse_queue("orders")


def story(told):
    async def run():
        async with in_process() as box:
            await told(box)

    return asyncio.run(run())


async def one(box, text, **options):
    (receipt,) = await box.broker.in_flight.receipts([text], **options)
    return receipt


def test_by_the_id_of_its_publisher_or_its_own():
    async def told(box):
        await box.publish("orders", b"1", b"2", b"3", id=[b"first", b"", b"third"])
        assert await one(box, "first") is None, "it is not leased yet"
        first, second, third = await box.lease("orders", max=3)
        receipts = await box.broker.in_flight.receipts(["third", "first", second.id, first.id, "fourth", ulid_text(1)])
        assert receipts == [third.receipt, first.receipt, second.receipt, first.receipt, None, None]
        await box.broker.messages.ack([first.receipt])
        assert await one(box, "first") is None

    story(told)


def test_queue_that_is_deleted_during_the_search(monkeypatch):
    monkeypatch.setattr(in_flight, "FIND_STEP", 1)

    async def told(box):
        await box.publish("orders", b"1", id=[b"first"])
        await box.lease("orders")
        search = asyncio.ensure_future(box.broker.in_flight.receipts(["other", "first", ulid_text(1)]))
        await asyncio.sleep(0)
        await box.host.loop.submit(DeleteQueue(box.host.view.queue(ORDERS).number))
        assert await search == [None, None, None]

    story(told)


def test_by_id_over_queues_partitions_and_batches():
    async def told(box):
        for queue in ("a", "b"):
            await box.broker.queues.put(parse_queue(queue), {"partitions": 3})
            for number in range(4):
                await box.publish(queue, b"x", b"y", id=[b"%d-x" % number, b"%d-y" % number], key=[b"x", b"y"])
        held = {}
        for queue in ("a", "b"):
            for message in await box.lease(queue, max=100):
                held[message.id] = message.receipt
        assert len(held) == 16
        assert await box.broker.in_flight.receipts(list(held)) == list(held.values())
        with pytest.raises(Conflict):
            await one(box, "0-x")
        assert await one(box, "0-x", queue=parse_queue("b")) in held.values()
        with pytest.raises(QueueNotFound):
            await one(box, "0-x", queue=parse_queue("c"))

    story(told)


def test_a_lease_that_ran_out_holds_nothing():
    async def told(box):
        await box.publish("orders", b"1", id=[b"first"])
        await box.lease("orders", lease_ms=1_000)
        box.clock.advance(1_000)
        assert await one(box, "first") is None
        await box.advance(60_000)
        (again,) = await box.lease("orders")
        assert await one(box, "first") == again.receipt

    story(told)


def test_ids_are_found_after_they_stopped_being_unique():
    async def told(box):
        await box.publish("orders", b"1", b"2", id=[b"first", b"second"])
        await box.advance(limits.DEDUP_WINDOW_MS + 1)
        await box.publish("orders", b"3", id=[b"third"])
        await box.host.loop.submit(Tick())
        old = await box.lease("orders", max=3)
        found = await box.broker.in_flight.receipts(["first", "second", "third", "none"])
        assert found == [*(message.receipt for message in old), None]

    story(told)


def test_settle_by_consumer_name_finds_its_leases():
    async def told(box):
        await box.publish("orders", b"1", b"2", id=[b"first", b"second"])
        (first,) = await box.lease("orders", consumer="worker-1")
        (second,) = await box.lease("orders")
        assert await one(box, "first", consumer="worker-1") == first.receipt
        assert await one(box, "first", consumer="worker-2") is None
        assert await one(box, "first") == first.receipt, "there is only one lease"
        assert await one(box, "second", consumer="worker-2") == second.receipt, "the holder of the first is not named"
        await box.broker.queues.patch(ORDERS, {"strict_leases": True})
        assert await one(box, "first", consumer="worker-1") == first.receipt
        assert await one(box, "first") is None
        assert await one(box, "second", consumer="worker-2") is None

    story(told)


def test_groups_hold_apart():
    async def told(box):
        await box.publish("orders", b"1", id=[b"first"])
        (billing,) = await box.lease("orders", group="billing", consumer="w")
        (mailing,) = await box.lease("orders", group="mailing", consumer="v")
        with pytest.raises(Conflict) as refused:
            await one(box, "first")
        assert [held["group"] for held in refused.value.details["held"]] == ["billing", "mailing"]
        assert await one(box, "first", group="billing") == billing.receipt
        assert await one(box, "first", consumer="v") == mailing.receipt
        assert await one(box, "first", group="others") is None

    story(told)


def test_a_receipt_belongs_to_its_message():
    async def told(box):
        await box.publish("orders", b"1", b"2", id=[b"first", b"second"])
        first, second = await box.lease("orders", max=2)
        assert box.broker.in_flight.is_held(ORDERS, "first", first.receipt)
        assert not box.broker.in_flight.is_held(ORDERS, "first", second.receipt)
        assert not box.broker.in_flight.is_held(ORDERS, "first", "")

    story(told)


# -- groups that begin later ----------------------------------------------------------------------------------------


def test_a_group_may_begin_with_what_comes():
    async def told(box):
        await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep"}})
        await box.publish("orders", b"1", b"2")
        assert await box.broker.groups.begin(ORDERS, "late") is True
        await box.publish("orders", b"3")
        assert [message.payload for message in await box.lease("orders", group="late", max=9)] == [b"3"]
        assert await box.broker.groups.begin(ORDERS, "late", offset="earliest") is False, "it stays where it is"
        assert await box.lease("orders", group="late") == []
        await box.restart()
        assert len(await box.lease("orders", group="default", max=9)) == 3

    story(told)


def test_a_group_may_begin_behind_a_message():
    async def told(box):
        await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep"}, "partitions": 2})
        published = await box.publish("orders", b"1", b"2", b"3", b"4", key=[b"a", b"b", b"a", b"b"])
        ids = sorted(run.id + row for run in published.runs for row in range(run.count))
        await box.broker.groups.begin(ORDERS, "behind", offset=f"after:{ulid_text(ids[1])}")
        assert len(await box.lease("orders", group="behind", max=9)) == 2

    story(told)


def test_a_group_may_begin_later_in_a_heap():
    async def told(box):
        await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep"}, "order": "heap"})
        await box.publish("orders", b"1", priority=[1])
        await box.broker.groups.begin(ORDERS, "late")
        await box.publish("orders", b"3", b"2", priority=[3, 2])
        assert [message.payload for message in await box.lease("orders", group="late", max=9)] == [b"2", b"3"]

    story(told)


def test_the_first_group_passes_over_nothing_that_only_it_would_keep():
    async def told(box):
        await box.publish("orders", b"1")
        await box.broker.groups.begin(ORDERS, "first")
        assert [message.payload for message in await box.lease("orders", group="first")] == [b"1"]
        await box.broker.groups.begin(ORDERS, "second")
        await box.publish("orders", b"2")
        assert [message.payload for message in await box.lease("orders", group="second", max=9)] == [b"2"]

    story(told)
