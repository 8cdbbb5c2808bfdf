"""Consumer subscriptions: credit, leases, and leases of ended connections."""

from __future__ import annotations

import asyncio
from base64 import b64decode

import pytest
from patience import until
from websocket_fake import run

from penstock import limits
from penstock.errors import Conflict
from penstock.ids import parse_queue
from penstock.wire import stream


def payloads(messages) -> list[bytes]:
    return [b64decode(message["payload_b64"]) for message in messages]


def receipts(messages) -> list[str]:
    return [message["receipt"] for message in messages]


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


async def consuming(edge, queue="work", **options):
    client = edge.connect()
    answer = await client.ask(type="subscribe", role="consumer", queue=queue, **options)
    assert answer["type"] == "subscribed", answer
    return client


def test_deliveries_are_bounded_by_credit():
    async def story(edge):
        await edge.create("work")
        client = await consuming(edge, credit=3)
        await edge.publish("work", *numbers(0, 10))
        assert payloads(await client.messages(3)) == numbers(0, 3)
        assert (await edge.broker.stats.queue(parse_queue("work")))["leased"] == 3
        assert (await client.ask(type="credit", sub="work", credit=5))["credit"] == 5
        assert payloads(await client.messages(5)) == numbers(3, 8)
        await edge.settle()
        assert not client.received
        too_much = await client.ask(type="credit", sub="work", credit=limits.LEASE_MESSAGES_MAX)
        assert too_much["type"] == "credited"
        assert (await client.ask(type="credit", sub="work", credit=3))["error"]["details"] == {"field": "credit"}

    run(story)


def test_refill_returns_credit_on_settle():
    async def story(edge):
        await edge.create("work", backoff={"kind": "none"})
        client = await consuming(edge, credit=2, refill=True, lease_ms=1_000)
        await edge.publish("work", *numbers(0, 6))
        first = receipts(await client.messages(2))
        await client.ask(type="extend", receipts=first, lease_ms=2_000)
        await edge.settle()
        assert not client.received
        await client.ask(type="ack", receipts=first[:1])
        await client.ask(type="ack", receipts=first[:1])  # a repeated ack returns no credit
        (third,) = receipts(await client.messages(1))
        await edge.settle()
        assert not client.received
        await client.ask(type="nack", receipts=[third], delay_ms=60_000)
        assert payloads(await client.messages(1)) == [b"3"]
        # The acks are stale, but the expired messages return their credit.
        await edge.box.advance(2_500)
        late = await client.ask(type="ack", receipts=first[1:])
        assert late["results"][0]["status"] == "stale"
        await client.messages(1)

    run(story)


def test_all_settle_operations():
    async def story(edge):
        await edge.create("work")
        client = await consuming(edge, credit=10, lease_ms=5_000, consumer="me")
        await edge.publish("work", *numbers(0, 5))
        found = receipts(await client.messages(5))
        assert (await client.ask(type="ack", receipts=found[:2]))["results"] == [
            {"receipt": receipt, "status": "acked"} for receipt in found[:2]
        ]
        nacked = await client.ask(type="nack", receipts=[found[2]], delay_ms=700, error="later")
        assert nacked["results"][0]["status"] == "retrying"
        rejected = await client.ask(type="reject", receipts=[found[3]], error="never")
        assert rejected["results"][0]["status"] == "dead_lettered"
        extended = await client.ask(type="extend", receipts=[found[4]], lease_ms=60_000)
        assert extended["results"][0]["deadline_at_ms"] == edge.box.clock.now_ms() + 60_000
        assert (await client.ask(type="ack", receipts=[found[0], "forged"]))["results"] == [
            {"receipt": found[0], "status": "stale"},
            {"receipt": "forged", "status": "stale"},
        ]
        released = await client.ask(type="release", receipts=[found[4]])
        assert released["results"][0]["status"] == "released"
        assert payloads(await client.messages(1)) == [b"4"]
        await edge.box.advance(701)
        again = await client.messages(1)
        assert (payloads(again), again[0]["attempt"]) == ([b"2"], 2)

    run(story)


def test_message_goes_to_one_waiting_consumer():
    async def story(edge):
        await edge.create("work")
        clients = [await consuming(edge, credit=1) for _ in range(20)]
        await edge.publish("work", b"one")
        await edge.settle()
        got = [client for client in clients if client.received]
        assert len(got) == 1 and payloads(await got[0].messages(1)) == [b"one"]

    run(story)


@pytest.mark.parametrize(
    ("end", "attempt", "delay_ms"), [("lost", 2, 1_200), ("bye", 1, 0), ("unsubscribe", 1, 0), ("drain", 1, 0)]
)
def test_leases_are_returned_when_the_connection_ends(end, attempt, delay_ms):
    """A lost connection counts an attempt and uses the backoff of the queue; other ends release the messages."""

    async def story(edge):
        await edge.create("work")
        await edge.publish("work", *numbers(0, 4))
        client = await consuming(edge, credit=4, lease_ms=3_600_000)
        found = receipts(await client.messages(4))
        await client.ask(type="ack", receipts=found[1:2])
        if end == "lost":
            client.session.ended()
        elif end == "bye":
            client.send(type="bye")
            assert client.closed_with == 1000
        elif end == "unsubscribe":
            assert (await client.ask(type="unsubscribe", sub="work"))["released"] == 3
        else:
            client.session.drain()
            assert (await client.take("bye"))["code"] == 1012
            client.session._leave()
            assert client.closed_with == 1012
        await edge.settle()
        await edge.box.advance(delay_ms)
        again = await edge.box.lease("work", max=10)
        assert [message.payload for message in again] == [b"0", b"2", b"3"]
        assert {message.attempt for message in again} == {attempt}
        late = await edge.broker.messages.ack([found[0]])
        assert late[0].status == "stale"

    run(story)


@pytest.mark.parametrize("credit", [None, 1], ids=["never had credit", "all of it in hand"])
def test_consumer_without_credit_ends_with_its_queue(credit):
    async def story(edge):
        await edge.create("work")
        await edge.publish("work", b"1", b"2")
        client, left, over = edge.connect(), edge.connect(), edge.connect()
        granted = {} if credit is None else {"credit": credit}
        for each in (client, left, over):
            await each.ask(type="subscribe", role="consumer", queue="work", group=f"g{id(each)}", **granted)
            await each.messages(credit or 0)
        await left.ask(type="unsubscribe", sub="work")
        over.session.ended()
        with pytest.raises(Conflict) as asked:
            await edge.broker.queues.delete(parse_queue("work"))
        await edge.broker.queues.delete(parse_queue("work"), confirm=asked.value.details["confirm"])
        ended = await client.take("ended")
        assert (ended["sub"], ended["error"]["code"]) == ("work", "queue_not_found")
        assert (await client.ask(type="credit", sub="work", credit=1))["type"] == "error"
        assert not left.received and not over.received
        assert not edge.broker._loop.watchers._ends, "the watch has ended"

    run(story)


def test_when_lost_keep_leaves_leases_in_place():
    async def story(edge):
        await edge.create("work")
        await edge.publish("work", b"mine")
        client = await consuming(edge, credit=1, when_lost="keep")
        found = receipts(await client.messages(1))
        client.session.ended()
        await edge.settle()
        assert await edge.box.lease("work") == []
        again = edge.connect()
        assert (await again.ask(type="ack", receipts=found))["results"][0]["status"] == "acked"

    run(story)


def test_drain_waits_for_delivered_messages():
    async def story(edge):
        await edge.create("work")
        await edge.publish("work", b"1", b"2")
        client = await consuming(edge, credit=1)
        idle = await consuming(edge, queue="work", sub="idle")
        found = receipts(await client.messages(1))
        for each in (client, idle):
            each.session.drain()
        assert idle.closed_with == 1012 and client.closed_with is None
        assert (await client.take("bye"))["grace_ms"] == limits.WEBSOCKET_DRAIN_MS
        refused = await client.ask(type="subscribe", role="reader", queue="work")
        assert refused["error"]["code"] == "unavailable"
        assert (await client.ask(type="ack", receipts=found))["results"][0]["status"] == "acked"
        await until(lambda: client.closed_with is not None)
        assert client.closed_with == 1012
        assert len(await edge.box.lease("work")) == 1

    run(story)


def test_paused_output_stops_leases():
    async def story(edge):
        await edge.create("work")
        client = await consuming(edge, credit=10)
        client.session.paused()
        await edge.publish("work", b"1")
        await edge.settle()
        assert not client.received
        assert [message.payload for message in await edge.box.lease("work")] == [b"1"]
        await edge.publish("work", b"2")
        client.session.resumed()
        assert payloads(await client.messages(1)) == [b"2"]

    run(story)


def test_lease_granted_during_a_pause_is_released():
    async def story(edge):
        await edge.create("work")
        client = await consuming(edge, credit=10)
        publishing = asyncio.ensure_future(edge.publish("work", b"1", b"2"))
        for _ in range(12):
            # The message was sent, or it is still ready, whenever the pause comes.
            client.session.paused()
            client.session.resumed()
            await asyncio.sleep(0)
        await publishing
        client.session.paused()
        await edge.settle()
        sent = [message for frame in client.received for message in frame["messages"]]
        there = await edge.box.lease("work", max=10)
        assert sorted([*payloads(sent), *[message.payload for message in there]]) == [b"1", b"2"]
        assert all(message.attempt == 1 for message in there)

    run(story)


def test_scope_and_group():
    async def story(edge):
        await edge.create("mail/high", queue_priority=1)
        await edge.create("mail/low")
        await edge.publish("mail/low", b"low")
        await edge.publish("mail/high", b"high")
        for group in ("a", "b"):
            client = edge.connect()
            client.send(type="subscribe", role="consumer", scope="mail", group=group, credit=2)
            assert payloads(await client.messages(2)) == [b"high", b"low"]

    run(story)


def test_at_most_once_delivery_has_no_receipt_and_is_not_returned():
    async def story(edge):
        await edge.create("work", delivery="at_most_once")
        await edge.publish("work", b"1")
        client = await consuming(edge, credit=1)
        assert receipts(await client.messages(1)) == [None]
        client.session.ended()
        await edge.settle()
        assert await edge.box.lease("work") == []

    run(story)


def test_settled_leases_are_dropped():
    async def story(edge):
        await edge.create("work")
        client = await consuming(edge, credit=1_000, lease_ms=1_000)
        held = client.session._subs["work"].outstanding
        for _ in range(10):
            await edge.publish("work", b"x", b"y")
            await client.ask(type="ack", receipts=receipts(await client.messages(2)))
            assert not held and len(held) == 0
        await edge.publish("work", b"x", b"y", b"z")
        first, *rest = receipts(await client.messages(3))
        assert (await client.ask(type="extend", receipts=rest, lease_ms=90_000))["results"][0]["status"] == "extended"
        await client.ask(type="ack", receipts=[first])
        assert len(held) == 2 and held

    run(story)


def test_msgpack_messages_contain_payload_bytes():
    async def story(edge):
        await edge.create("work")
        await edge.publish("work", b"\x00\xff", key=[b"k"], priority=[3], headers=[b'{"h":"v"}'], tenant=[b"t"])
        client = edge.connect(stream.MSGPACK_PROTOCOL)
        client.send(type="subscribe", role="consumer", queue="work", credit=1)
        (message,) = await client.messages(1)
        assert message["payload"] == b"\x00\xff" and "json" not in message
        assert (message["key"], message["priority"], message["headers"]) == ("k", 3, {"h": "v"})
        assert (message["tenant"], message["offset"]) == ("t", 0)
        settled = await client.ask(type="ack", receipts=[message["receipt"]])
        assert settled["results"] == [{"receipt": message["receipt"], "status": "acked"}]

    run(story)
