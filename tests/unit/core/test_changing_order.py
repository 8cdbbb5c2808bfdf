"""The order of a queue changes while nothing is stored that would not fit into the new one, and at no other time."""

from __future__ import annotations

import pytest

from penstock.core.invariants import check as check_invariants
from penstock.errors import Conflict
from penstock.ids import parse_queue, ulid_text
from tests.unit.broker.test_broker import with_broker

ORDERS = parse_queue("orders")
CHANGES = [{"ordered_keys": True}, {"order": "heap"}, {"order": "lanes"}, {"fair_share": {"enabled": True}}]


async def give_up(box) -> None:
    await box.publish("orders", b"k1", key=[b"k"], priority=[5])
    (message,) = await box.lease("orders")
    await box.broker.messages.reject([message.receipt])


@with_broker
async def test_not_while_there_are_dead_letters(box):
    """Redriven, a letter would have neither the key nor the priority that the new order goes by."""
    await give_up(box)
    for change in CHANGES:
        (field,) = change
        with pytest.raises(Conflict, match="1 of its dead letters could still be redriven") as caught:
            await box.broker.queues.patch(ORDERS, change)
        assert caught.value.details == {"field": field, "dead_letters": 1}
    await box.broker.queues.patch(ORDERS, {"max_retries": 7})
    config = box.broker.queues.get(ORDERS)["config"]
    assert (config["max_retries"], config["order"], config["ordered_keys"]) == (7, "fifo", False)


@with_broker
async def test_as_soon_as_they_are_gone(box):
    await give_up(box)
    await box.broker.dead_letters.delete(ORDERS, filter="", confirm=await confirmation(box))
    await box.broker.queues.patch(ORDERS, {"ordered_keys": True})
    await box.publish("orders", b"k2", b"k3", key=[b"k", b"k"])
    assert [message.payload for message in await box.lease("orders")] == [b"k2"]
    check_invariants(box.host.loop.shard)


async def confirmation(box) -> str:
    with pytest.raises(Conflict) as caught:
        await box.broker.dead_letters.delete(ORDERS, filter="")
    return caught.value.details["confirm"]


@with_broker
async def test_message_cancelled_before_the_first_lease_is_not_stored(box):
    expected = [[b"3"], [b"4", b"3"], [b"4", b"3"], [b"3", b"4"]]
    for number, change in enumerate(CHANGES):
        queue = parse_queue(f"orders-{number}")
        published = await box.publish(queue, b"1", b"2", priority=[3, 4])
        first = published.runs[0].id
        with pytest.raises(Conflict, match="holds no messages"):
            await box.broker.queues.patch(queue, change)
        await box.broker.scheduled.cancel(queue, ids=[ulid_text(first), ulid_text(first + 1)])
        await box.broker.queues.patch(queue, change)
        await box.publish(queue, b"3", b"4", key=[b"k", b"k"], priority=[1, 0])
    await box.restart(final_snapshot=False)
    for number, payloads in enumerate(expected):
        assert [message.payload for message in await box.lease(f"orders-{number}", max=9)] == payloads
    check_invariants(box.host.loop.shard)
