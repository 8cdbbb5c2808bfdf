"""Requests over a WebSocket: one reply each, the same as over HTTP; refused frames change nothing."""

from __future__ import annotations

import pytest
from patience import until
from websocket_fake import run

from penstock import limits
from penstock.batch import build
from penstock.broker.messages import Messages
from penstock.transports.http import routes
from penstock.wire import stream


def test_publish_is_answered_with_ids():
    async def story(edge):
        client = edge.connect()
        answer = await client.ask(type="publish", queue="q", messages=[{"payload": {"n": 1.10}}, {"payload": None}])
        assert (answer["type"], answer["status"], answer["durable"]) == (
            "published",
            201,
            False,
        )  # the engine is in memory
        assert [message["offset"] for message in answer["messages"]] == [0, 1]
        client.send(type="subscribe", role="reader", queue="q", offset="earliest")
        assert [message["payload"] for message in await client.messages(2)] == [{"n": 1.10}, None]
        apart = await client.ask(type="publish", queue="q", atomic=False, messages=[{"payload": 1}, {"nonsense": 1}])
        assert (apart["status"], [each["status"] for each in apart["results"]]) == (207, [201, 400])

    run(story)


def test_publish_in_msgpack_by_message_and_by_batch():
    async def story(edge):
        client = edge.connect(stream.MSGPACK_PROTOCOL)
        messages = [{"payload": b"\x00\xff", "key": "k"}, {"payload": b'{"a":1}', "json": True}]
        answer = await client.ask(type="publish", queue="q", messages=messages)
        assert answer["status"] == 201
        frame = build([b"raw", b"2"])
        answer = await client.ask(type="publish", queue="q", batch=frame, producer={"id": "p", "epoch": 1, "seq": 0})
        assert answer["status"] == 201
        client.send(type="subscribe", role="reader", queue="q", offset="earliest")
        found = await client.messages(4)
        assert [message["payload"] for message in found] == [b"\x00\xff", b'{"a":1}', b"raw", b"2"]
        assert [message.get("json", False) for message in found[:2]] == [False, True]
        refused = await client.ask(type="publish", queue="q", messages=[{"payload": b"{", "json": True}])
        assert (refused["type"], refused["error"]["code"]) == ("error", "invalid_request")
        refused = await client.ask(type="publish", queue="q", batch=b"rubbish")
        assert refused["error"]["code"] == "invalid_request"
        refused = await client.ask(type="publish", queue="q")
        assert refused["error"]["details"] == {"field": "messages"}

    run(story)


def test_every_operation_can_be_called():
    """A call has exactly one reply, the same as the HTTP request has."""

    async def story(edge):
        client = edge.connect()
        await edge.create("q")
        for operation in routes.OPERATIONS:
            path = operation.path.replace("{path}", "q").replace("{name}", "s")
            answer = await client.ask(type="call", method=operation.method, path=path)
            assert answer["type"] == "reply" and answer["status"] < 500, (operation, answer)
        assert not client.received
        assert (await client.ask(type="call", path="/nowhere"))["status"] == 404
        lease = await client.ask(type="call", path="/v1/lease", body={"queue": "q", "wait_ms": 0})
        assert lease["body"] == {"messages": []}

    run(story)


def test_msgpack_call_accepts_and_returns_batches():
    from penstock.wire.delivery import LeaseMeta, decode_delivery

    async def story(edge):
        client = edge.connect(stream.MSGPACK_PROTOCOL)
        batch = "application/vnd.penstock.batch"
        answer = await client.ask(
            type="call", path="/v1/publish", query="queue=q", body=build([b"a", b"b"]), content_type=batch
        )
        assert answer["status"] == 201
        answer = await client.ask(type="call", path="/v1/lease", body=b'{"queue":"q","max":5}', accept=batch)
        assert answer["content_type"] == batch
        meta, batches = decode_delivery(answer["body"], LeaseMeta)
        assert (meta.runs[0].count, batches[0].payloads()) == (2, [b"a", b"b"])

    run(story)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ({"type": "nonsense"}, "type"),
        ({"type": "ack"}, "receipts"),
        ({"type": "ack", "receipts": [], "more": 1}, "more"),
        ({"type": "subscribe", "role": "reader"}, "queue"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "scope": "s"}, "queue"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "credit": 1}, "credit"),
        ({"type": "subscribe", "role": "consumer", "queue": "q", "offset": "latest"}, "offset"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "offset": "nowhere"}, "offset"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "offset": "kept"}, "client_id"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "offsets": {"7": 1}}, "offsets"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "partition": 3}, "partition"),
        ({"type": "subscribe", "role": "reader", "queue": "q", "format": "batch"}, "format"),
        ({"type": "credit", "sub": "none", "credit": 1}, "sub"),
        ({"type": "unsubscribe", "sub": "none"}, "sub"),
        ({"type": "publish", "queue": "q", "messages": []}, "messages"),
    ],
)
def test_invalid_frame_is_refused_with_its_field(frame, field):
    async def story(edge):
        await edge.create("q")
        client = edge.connect()
        answer = await client.ask(**frame)
        assert (answer["type"], answer["status"], answer["error"]["code"]) == ("error", 400, "invalid_request")
        assert answer["error"]["details"]["field"] == field
        assert (await client.ask(type="ping"))["type"] == "pong"

    run(story)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b'{"type":7}', b"[" * 100_000])
def test_undecodable_message_is_refused_and_the_connection_stays_open(data):
    async def story(edge):
        client = edge.connect()
        client.session.receive(data)
        assert (await client.take("error"))["error"]["code"] == "invalid_request"
        assert (await client.ask(type="ping"))["type"] == "pong"

    run(story)


def test_invalid_utf8_ends_the_connection():
    async def story(edge):
        client = edge.connect()
        client.session.receive(b'{"type":"ping","id":"\xff"}')
        assert client.closed_with == 1007

    run(story)


def test_subscription_names_are_unique_and_their_number_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_SUBSCRIPTIONS_MAX", 2)

    async def story(edge):
        await edge.create("q")
        client = edge.connect()
        subscribe = {"type": "subscribe", "role": "reader", "queue": "q"}
        assert (await client.ask(**subscribe))["type"] == "subscribed"
        assert (await client.ask(**subscribe))["error"]["code"] == "conflict"
        assert (await client.ask(**subscribe, sub="again"))["type"] == "subscribed"
        assert (await client.ask(**subscribe, sub="more"))["error"]["code"] == "conflict"
        assert 'penstock_websocket_subscriptions{role="reader"} 2.0' in edge.metrics()
        client.session.ended()
        assert 'penstock_websocket_subscriptions{role="reader"} 0.0' in edge.metrics()

    run(story)


def test_running_requests_are_bounded_and_cancelled_with_the_connection(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_REQUESTS_MAX", 3)

    async def story(edge):
        await edge.create("q")
        client = edge.connect()
        for number in range(3):
            assert not client.session.busy
            client.send(id=number, type="call", path="/v1/lease", body={"queue": "q", "wait_ms": 60_000})
        await until(lambda: edge.broker.waiting >= 3)
        assert client.session.busy
        await edge.publish("q", b"1")
        await client.take("reply")
        await until(lambda: client.freed_count)
        assert not client.session.busy
        client.session.ended()
        await until(lambda: not edge.broker.waiting)

    run(story)


def test_crash_is_an_internal_error_without_details(monkeypatch):
    async def broken(self, receipts):
        raise RuntimeError("secret")

    monkeypatch.setattr(Messages, "ack", broken)

    async def story(edge):
        client = edge.connect()
        answer = await client.ask(type="ack", receipts=[])
        assert (answer["status"], answer["error"]["code"]) == (500, "internal")
        assert "secret" not in str(answer)

    run(story)
