"""Reader subscriptions: start offsets, pages, and one shared read for many readers."""

from __future__ import annotations

import asyncio
from base64 import b64decode

import pytest
from websocket_fake import run

from penstock import limits
from penstock.core.routing import CURRENT, partition_of
from penstock.errors import Conflict
from penstock.ids import parse_queue, ulid_text
from penstock.wire import stream

PATH = "default/default/log"


def payloads(messages) -> list[bytes]:
    return [b64decode(message["payload_b64"]) for message in messages]


def test_reader_starts_at_the_end_and_gets_new_messages():
    async def story(edge):
        await edge.create("log")
        await edge.publish("log", b"before")
        client = edge.connect()
        answer = await client.ask(type="subscribe", role="reader", queue="log")
        assert answer == {"type": "subscribed", "id": 1, "sub": "log", "offsets": {PATH: {"0": 1}}}
        await edge.publish("log", b"a", b"b")
        frame = await client.take("messages")
        assert payloads(frame["messages"]) == [b"a", b"b"]
        assert (frame["sub"], frame["queue"], frame["partition"]) == ("log", PATH, 0)
        assert (frame["next_offset"], frame["end_offset"]) == (3, 3)
        await edge.publish("log", b"c")
        assert payloads((await client.take("messages"))["messages"]) == [b"c"]

    run(story)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("earliest", "012345"), ("4", "45"), (4, "45"), (0, "012345"), ("latest", ""), ("id", "2345"), ("after", "345"),
        ("at", "2345"),
    ],
)  # fmt: skip
def test_start_offset_of_a_reader(offset, expected):
    async def story(edge):
        await edge.create("log", retention={"mode": "keep"})
        first = edge.box.clock.now_ms()
        ids = []
        for number in range(6):
            reply = await edge.box.publish("log", b"%d" % number)
            ids.append(ulid_text(reply.runs[0].id))
            await edge.box.advance(10)
        begin = {"id": f"id:{ids[2]}", "after": f"after:{ids[2]}", "at": f"at:{first + 15}"}.get(offset, offset)
        client = edge.connect()
        client.send(type="subscribe", role="reader", queue="log", offset=begin)
        assert payloads(await client.messages(len(expected))) == [digit.encode() for digit in expected]

    run(story)


@pytest.mark.parametrize("offset", ["soon", "", "-1", -1, 1.5, 10**19, True, ["0"]])
def test_invalid_offset_is_refused(offset):
    async def story(edge):
        await edge.create("log")
        client = edge.connect()
        refused = await client.ask(type="subscribe", role="reader", queue="log", offset=offset)
        assert (refused["type"], refused["error"]["code"]) == ("error", "invalid_request")
        assert refused["error"]["details"]["field"] == "offset"
        assert "regex" not in refused["error"]["message"]
        assert (await client.ask(type="ping"))["type"] == "pong"

    run(story)


def test_reader_resumes_at_next_offset():
    async def story(edge):
        await edge.create("log", partitions=2, retention={"mode": "keep"})
        await edge.publish("log", *[b"%d" % number for number in range(20)], key=[b"k%d" % n for n in range(20)])
        first = edge.connect()
        client_offsets = {}
        first.send(type="subscribe", role="reader", queue="log", offset="earliest")
        seen = []
        while len(seen) < 20:
            frame = await first.take("messages")
            client_offsets[str(frame["partition"])] = frame["next_offset"]
            seen += payloads(frame["messages"])
        first.session.ended()
        await edge.publish("log", *[b"%d" % number for number in range(20, 40)], key=[b"k%d" % n for n in range(20)])
        second = edge.connect()
        second.send(type="subscribe", role="reader", queue="log", offsets=client_offsets)
        seen += payloads(await second.messages(20))
        assert sorted(seen, key=int) == [b"%d" % number for number in range(40)]

    run(story)


def test_resumed_reader_gets_partitions_it_did_not_name_from_the_start():
    async def story(edge):
        await edge.create("log", partitions=2, retention={"mode": "keep"})
        keys = keys_by_partition(2)
        await edge.publish("log", b"first", key=[keys[0]])
        first = edge.connect()
        first.send(type="subscribe", role="reader", queue="log", offset="earliest")
        frame = await first.take("messages")
        remembered = {str(frame["partition"]): frame["next_offset"]}
        assert remembered == {"0": 1}
        first.session.ended()
        await edge.publish("log", b"0", b"1", key=keys)
        await edge.broker.queues.patch(parse_queue("log"), {"partitions": 3})
        added = keys_by_partition(3)[2]
        await edge.publish("log", b"2", key=[added])
        second = edge.connect()
        answer = await second.ask(type="subscribe", role="reader", queue="log", offsets=remembered)
        assert answer["offsets"] == {PATH: {"0": 1, "1": 0, "2": 0}}
        assert sorted(payloads(await second.messages(3))) == [b"0", b"1", b"2"]

    run(story)


def test_partitions_left_out_of_offsets_start_at_offset():
    async def story(edge):
        await edge.create("log", partitions=2, retention={"mode": "keep"})
        await edge.publish("log", b"0", b"1", key=keys_by_partition(2))
        client = edge.connect()
        answer = await client.ask(type="subscribe", role="reader", queue="log", offset="latest", offsets={"0": 0})
        assert answer["offsets"] == {PATH: {"0": 0, "1": 1}}

    run(story)


def keys_by_partition(count: int) -> list[bytes]:
    """One key for each of `count` partitions."""
    found: dict[int, bytes] = {}
    for number in range(1_000):
        key = b"k%d" % number
        found.setdefault(partition_of(key, count, CURRENT), key)
    return [found[partition] for partition in range(count)]


def test_reader_starts_at_the_kept_offset_of_its_client_id():
    async def story(edge):
        await edge.create("log", retention={"mode": "keep"})
        await edge.publish("log", b"0", b"1", b"2")
        client = edge.connect()
        kept = await client.ask(
            type="call", path="/v1/offsets", body={"queue": "log", "client_id": "me", "offsets": {"0": 2}}
        )
        assert (kept["status"], kept["body"]["offsets"]) == (200, {"0": 2})
        client.send(type="subscribe", role="reader", queue="log", offset="kept", client_id="me")
        assert payloads(await client.messages(1)) == [b"2"]

    run(story)


def test_trimmed_messages_are_reported_as_skipped():
    async def story(edge):
        await edge.create("log")
        await edge.publish("log", b"0", b"1")
        with pytest.raises(Conflict) as asked:
            await edge.broker.queues.purge(parse_queue("log"))
        await edge.broker.queues.purge(parse_queue("log"), confirm=asked.value.details["confirm"])
        await edge.publish("log", b"2")
        client = edge.connect()
        client.send(type="subscribe", role="reader", queue="log", offset="0")
        frame = await client.take("messages")
        assert (frame["skipped"], payloads(frame["messages"])) == (2, [b"2"])

    run(story)


def test_subscription_of_many_queues_follows_added_partitions():
    async def story(edge):
        await edge.create("a")
        await edge.create("b")
        client = edge.connect()
        answer = await client.ask(type="subscribe", role="reader", sub="both", queues=["a", "b"])
        assert set(answer["offsets"]) == {"default/default/a", "default/default/b"}
        await edge.publish("a", b"1")
        await edge.publish("b", b"2")
        assert sorted(payloads(await client.messages(2))) == [b"1", b"2"]
        await edge.broker.queues.patch(parse_queue("a"), {"partitions": 4})
        await edge.publish("a", *[b"x"] * 40, key=[b"k%d" % number for number in range(40)])
        found = await client.messages(40)
        assert len({message["partition"] for message in found}) == 4

    run(story)


def test_readers_at_the_tail_share_one_read_and_the_same_bytes():
    async def story(edge):
        await edge.create("log")
        clients = [edge.connect() for _ in range(450)]
        for client in clients:
            await client.ask(type="subscribe", role="reader", queue="log")
            client.frames.clear()
        looks = []
        read = edge.broker.log.read
        edge.broker.log.read = lambda *args, **options: looks.append(1) or read(*args, **options)
        await edge.publish("log", b"to all")
        for client in clients:
            assert payloads(await client.messages(1)) == [b"to all"]
        assert len(looks) == 1
        assert len({id(client.frames[0]) for client in clients}) == 1

    run(story)


def test_messages_that_arrive_during_a_round_start_another_round():
    async def story(edge):
        await edge.create("log")
        clients = [edge.connect() for _ in range(450)]
        for client in clients:
            await client.ask(type="subscribe", role="reader", queue="log")
        (tail,) = edge.sockets.tails._by_queue.values()
        for number in range(30):
            await edge.publish("log", b"%d" % number)
            assert len(tail._round) <= len(clients) and len(tail._pages) <= 16
        for client in clients:
            assert payloads(await client.messages(30)) == [b"%d" % number for number in range(30)]

    run(story)


def test_paused_reader_continues_without_loss():
    async def story(edge):
        await edge.create("log")
        slow, quick = edge.connect(), edge.connect()
        for client in (slow, quick):
            await client.ask(type="subscribe", role="reader", queue="log")
        slow.session.paused()
        for number in range(5):
            await edge.publish("log", b"%d" % number)
        assert payloads(await quick.messages(5)) == [b"%d" % number for number in range(5)]
        assert not slow.received
        slow.session.resumed()
        assert payloads(await slow.messages(5)) == [b"%d" % number for number in range(5)]

    run(story)


def test_backlog_is_sent_in_bounded_pages():
    async def story(edge):
        await edge.create("log")
        for _ in range(5):
            await edge.publish("log", *[bytes(1_000)] * 300)
        await edge.publish("log", bytes(500_000))
        client = edge.connect()
        client.send(type="subscribe", role="reader", queue="log", offset="earliest")
        assert len(await client.messages(1_501)) == 1_501
        pages = [len(frame) for frame in client.frames if b'"messages"' in frame]
        assert len(pages) > 10
        assert sorted(pages)[-2] < limits.WEBSOCKET_OUTPUT_BYTES_MAX - limits.WEBSOCKET_OUTPUT_PAUSE_BYTES

    run(story)


def test_deleted_queue_ends_its_subscriptions():
    async def story(edge):
        await edge.create("log")
        client = edge.connect()
        await client.ask(type="subscribe", role="reader", queue="log")
        await client.ask(type="subscribe", role="consumer", sub="work", queue="log", credit=1)
        gone = await client.ask(type="call", method="DELETE", path="/v1/queues/log")
        token = gone["body"]["error"]["details"]["confirm"]
        assert gone["status"] == 409
        done = await client.ask(type="call", method="DELETE", path="/v1/queues/log", query=f"confirm={token}")
        assert done["status"] == 200
        ended = [await client.take("ended"), await client.take("ended")]
        assert {frame["sub"] for frame in ended} == {"log", "work"}
        assert {frame["error"]["code"] for frame in ended} == {"queue_not_found"}
        assert 'subscriptions{role="reader"} 0.0' in edge.metrics()

    run(story)


def test_unsubscribe_stops_deliveries():
    async def story(edge):
        await edge.create("log")
        client, other = edge.connect(), edge.connect()
        for each in (client, other):
            await each.ask(type="subscribe", role="reader", queue="log")
        assert (await client.ask(type="unsubscribe", sub="log"))["type"] == "unsubscribed"
        await edge.publish("log", b"x")
        await other.messages(1)
        assert not client.received
        other.session.ended()
        await edge.publish("log", b"y")  # the queue has no readers now
        await asyncio.sleep(0)

    run(story)


def test_batches_are_sent_as_stored():
    from penstock.wire.delivery import ReadMeta, decode_delivery

    async def story(edge):
        await edge.create("log")
        await edge.publish("log", b"\x00\xff", b"two")
        client = edge.connect(stream.MSGPACK_PROTOCOL)
        client.send(type="subscribe", role="reader", queue="log", offset="earliest", format="batch")
        frame = await client.take("messages")
        meta, batches = decode_delivery(frame["batch"], ReadMeta)
        assert meta.next_offset == frame["next_offset"] == 2
        assert [payload for batch in batches for payload in batch.payloads()] == [b"\x00\xff", b"two"]

    run(story)
