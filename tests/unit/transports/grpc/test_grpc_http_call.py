"""`Call`: a request of the HTTP interface over gRPC."""

from __future__ import annotations

import json

from grpc_served import refusal, run

from penstock import limits
from penstock.errors import RateLimited
from penstock.v1 import broker_pb2 as pb


def request(method, target, body=None, **fields):
    content = b"" if body is None else json.dumps(body).encode()
    return pb.CallRequest(method=method, target=target, body=content, content_type="application/json", **fields)


def test_answer_of_http_is_the_reply():
    async def story(here):
        sent = request("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 1}]})
        reply = await here.stub.Call(sent)
        assert (reply.status, json.loads(reply.body)["durable"]) == (201, False)
        reply = await here.stub.Call(request("GET", "/v1/queues/default/default/or%64ers"))
        assert (reply.status, json.loads(reply.body)["queue"]) == (200, "default/default/orders")

    run(story)


def test_refusal_is_a_reply_with_the_error_in_its_body():
    async def story(here):
        reply = await here.stub.Call(request("GET", "/v1/nothing"))
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (404, "not_found")
        assert not reply.HasField("retry_after_s")

        def refuse(*_, **__):
            raise RateLimited("slow down", retry_after_ms=3_000)

        here.broker.messages.ack = refuse
        reply = await here.stub.Call(request("POST", "/v1/ack", {"receipts": ["r"]}))
        assert (reply.status, reply.retry_after_s) == (429, 3)

    run(story)


def test_body_over_the_limit_is_refused_as_by_http():
    async def story(here):
        large = request("POST", "/v1/publish")
        large.body = b" " * (limits.REQUEST_BYTES_MAX + 1)
        reply = await here.stub.Call(large)
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (413, "too_large")

    run(story)


def test_stream_of_events_is_refused():
    async def story(here):
        reply = await here.stub.Call(request("GET", "/v1/events/stream"))
        assert reply.status >= 400 and b"error" in reply.body

    run(story)


def test_bytes_that_are_no_request_are_refused():
    async def story(here):
        call = here.channel.unary_unary("/penstock.v1.Broker/Call")
        assert (await refusal(call(b"\xff\xff"))).status == "INVALID_ARGUMENT"

    run(story)


def test_cancelled_lease_leaves_no_waiter_and_no_lease():
    async def story(here):
        await here.stub.PutQueue(pb.PutQueueRequest(queue="orders"))
        call = here.stub.Call(request("POST", "/v1/lease", {"queue": "orders", "wait_ms": 60_000}))
        await here.until(lambda: here.broker.waiting == 1)
        call.cancel()
        await here.until(lambda: here.broker.waiting == 0)
        await here.publish("orders", b"1")
        assert (here.ready("orders"), here.leased("orders")) == (1, 0)

    run(story)
