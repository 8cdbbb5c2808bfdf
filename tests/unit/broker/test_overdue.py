"""A message whose time to live ends while one group holds it is delivered to no other, in any order."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest
from patience import until

from penstock.core import invariants
from penstock.ids import parse_queue
from penstock.testing.inprocess import InProcess, in_process, messages

ORDERS = parse_queue("orders")
RETRY_AT_ONCE = {"backoff": {"kind": "none"}}
EVERY_ORDER = pytest.mark.parametrize(
    "order",
    [
        {},
        {"order": "lanes"},
        {"order": "heap"},
        {"ordered_keys": True},
        {"fair_share": {"enabled": True}},
        {"retention": {"mode": "keep"}},
    ],
    ids=["fifo", "lanes", "heap", "keys", "fair", "keep"],
)


def with_broker(test):
    @functools.wraps(test)
    def wrapped(**parameters):
        async def run() -> None:
            async with in_process() as box:
                await test(box, **parameters)

        asyncio.run(run())

    _box, *others = inspect.signature(test).parameters.values()
    wrapped.__signature__ = inspect.Signature(others)
    return wrapped


async def two_groups(box: InProcess, **config: Any) -> None:
    await box.broker.queues.put(ORDERS, {**RETRY_AT_ONCE, **config})
    for group in ("a", "b"):
        assert await box.lease("orders", group=group) == []


async def leased(box: InProcess, group: str, max: int = 10) -> list[bytes]:
    return [message.payload for message in await box.lease("orders", group=group, max=max, lease_ms=5000)]


async def peeked(box: InProcess, group: str) -> list[bytes]:
    return [message.payload for message in messages(await box.broker.log.peek(ORDERS, group=group))]


async def explained(box: InProcess, message_id: str, group: str) -> tuple[str, bool, list[str]]:
    (message,) = (await box.broker.explanations.explain(ORDERS, id=message_id, group=group))["messages"]
    return message["state"], message["deliverable"], [reason["kind"] for reason in message["reasons"]]


def undone(box: InProcess) -> list[int]:
    shard = box.host.loop.shard
    invariants.check(shard)
    invariants.check_dispatch(shard)
    (queue,) = shard.queues.values()
    return [progress.undone(part.end) for part in queue.partitions for progress in part.progress.values()]


@EVERY_ORDER
@with_broker
async def test_what_another_group_holds_past_its_time_is_not_delivered(box, order):
    await two_groups(box, **order)
    await box.publish("orders", b"brief", b"lasting", ttl_ms=[500, 0], key=[b"k", b"l"])
    (held,) = await box.lease("orders", group="a", max=1, lease_ms=5000)
    assert held.payload == b"brief"
    await box.advance(1500)
    assert await peeked(box, "b") == [b"lasting"]
    assert (await explained(box, held.id, "b"))[:2] == ("ready", False)
    assert "past_ttl" in (await explained(box, held.id, "b"))[2]
    assert await leased(box, "b") == [b"lasting"]
    assert await leased(box, "b") == []
    # The holder may still finish it; then it is over for all groups.
    assert (await box.broker.messages.ack([held.receipt]))[0].status == "acked"
    await box.advance(0)
    assert await leased(box, "b") == []
    assert undone(box) == [1, 1]


@EVERY_ORDER
@with_broker
async def test_it_does_not_come_back_while_another_group_holds_it(box, order):
    """Both had it when its time ran out. One fails: there is no second attempt."""
    await two_groups(box, **order)
    await box.publish("orders", b"brief", ttl_ms=[500])
    (first,) = await box.lease("orders", group="a", lease_ms=5000)
    (second,) = await box.lease("orders", group="b", lease_ms=5000)
    await box.advance(1000)
    await box.broker.messages.nack([second.receipt])
    assert await peeked(box, "b") == []
    assert await leased(box, "b") == []
    await box.broker.messages.nack([first.receipt])
    await box.advance(0)
    assert (await leased(box, "a"), await leased(box, "b")) == ([], [])
    assert undone(box) == [0, 0]


@EVERY_ORDER
@pytest.mark.parametrize("final_snapshot", [True, False])
@with_broker
async def test_a_restart_does_not_bring_it_back(box, order, final_snapshot):
    await two_groups(box, **order)
    await box.publish("orders", b"1", b"brief", b"3", ttl_ms=[0, 500, 0], key=[b"x", b"y", b"z"])
    held = await box.lease("orders", group="a", max=2, lease_ms=5000)
    await box.advance(1000)
    await box.restart(final_snapshot=final_snapshot)
    assert await leased(box, "b") == [b"1", b"3"]
    assert await leased(box, "b") == []
    await box.restart(final_snapshot=final_snapshot)
    assert await leased(box, "b") == []
    await box.broker.messages.release([held[1].receipt])
    await box.advance(0)
    assert await leased(box, "a") == [b"3"]
    assert undone(box) == [2, 2]


@EVERY_ORDER
@with_broker
async def test_a_group_that_begins_later_does_not_get_it_either(box, order):
    await two_groups(box, **order)
    await box.publish("orders", b"brief", b"lasting", ttl_ms=[500, 0])
    (held,) = await box.lease("orders", group="a", max=1, lease_ms=5000)
    await box.advance(1000)
    assert await peeked(box, "c") == [b"lasting"]
    assert (await explained(box, held.id, "c"))[1:] == (False, ["past_ttl", "group_not_begun"])
    assert await leased(box, "c") == [b"lasting"]


@EVERY_ORDER
@with_broker
async def test_redriven_message_does_not_expire_in_any_group(box, order):
    """One group dead-lettered and redrove it while another held it: it no longer expires."""
    await two_groups(box, **order)
    await box.publish("orders", b"brief", b"lasting", ttl_ms=[500, 0], key=[b"k", b"l"])
    (first,) = await box.lease("orders", group="a", max=1, lease_ms=5000)
    (second,) = await box.lease("orders", group="c", max=1, lease_ms=5000)
    await box.advance(1000)
    assert await leased(box, "b") == [b"lasting"]
    await box.broker.messages.reject([first.receipt])
    await box.broker.redrives.start(ORDERS, redrive_id="again", group="a", ids=[first.id], dry_run=False)
    async with asyncio.timeout(10):
        await until(lambda: box.broker.redrives.list(ORDERS, "again")["redrives"][0]["status"] != "running")
    assert sorted(await leased(box, "a")) == [b"brief", b"lasting"]
    assert await leased(box, "b") == [b"brief"]
    assert (await box.broker.messages.ack([second.receipt]))[0].status == "acked"


@with_broker
async def test_it_keeps_the_place_of_its_key_until_it_ends(box):
    """So no younger one overtakes it, should a redrive spare it."""
    await two_groups(box, ordered_keys=True)
    await box.publish("orders", b"1", b"brief", b"3", ttl_ms=[0, 500, 0], key=[b"k", b"k", b"k"])
    (first,) = await box.lease("orders", group="a", lease_ms=5000)
    await box.broker.messages.ack([first.receipt])
    (held,) = await box.lease("orders", group="a", lease_ms=5000)
    await box.advance(1000)
    (first,) = await box.lease("orders", group="b", lease_ms=5000)
    await box.broker.messages.ack([first.receipt])
    undone(box)
    assert await leased(box, "b") == []
    await box.broker.messages.ack([held.receipt])
    await box.advance(0)
    assert await leased(box, "b") == [b"3"]
    assert undone(box) == [1, 1]


@with_broker
async def test_overdue_message_does_not_block_its_key(box):
    await two_groups(box, ordered_keys=True)
    await box.publish("orders", b"brief", b"2", ttl_ms=[500, 0], delay_ms=[100, 0], key=[b"k", b"k"])
    await box.advance(200)
    (second,) = await box.lease("orders", group="a", lease_ms=5000)
    await box.broker.messages.ack([second.receipt])
    (held,) = await box.lease("orders", group="a", lease_ms=5000)
    assert (second.payload, held.payload) == (b"2", b"brief")
    await box.advance(1000)
    assert undone(box) == [1, 2]
    assert await leased(box, "b") == [b"2"]
