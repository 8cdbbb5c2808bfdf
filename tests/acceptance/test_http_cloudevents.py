"""CloudEvents of a running server, checked with the official CloudEvents library in both directions."""

from __future__ import annotations

import json

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from http_server import running
from receiver import LOOPBACK, receiving

ATTRIBUTES = {
    "type": "com.example.order.paid", "source": "https://example.com/shop?x=%20", "subject": "Käse \"100 %\" 😀",
    "dataschema": "https://example.com/schema", "partitionkey": "user-42", "traceid": "a b",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("events") / "data", "--webhook-allow", LOOPBACK) as running_server:
        yield running_server


def send(server, queue: str, message: HTTPMessage, query: str = ""):
    body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
    return server.ask("POST", f"/v1/publish?queue={queue}{query}", body, **dict(message.headers))


def event(data, **more) -> CloudEvent:
    return CloudEvent({**ATTRIBUTES, **more}, data)


@pytest.mark.parametrize("mode", [to_binary_event, to_structured_event])
@pytest.mark.parametrize(
    ("kind", "data"), [("application/json", {"n": [1, None, "ä"]}), ("text/plain", "Grüße"), ("image/png", b"\x00\xff")]
)
@pytest.mark.parametrize("form", ["cloudevents-binary", "cloudevents-structured"])
def test_event_is_delivered_unchanged(server, mode, kind, data, form):
    queue = f"e-{mode.__name__.replace('_', '-')}-{kind.replace('/', '-')}-{form}"
    sent = event(data, datacontenttype=kind)
    assert send(server, queue, mode(sent)).status == 201
    with receiving() as receiver:
        made = server.ask("POST", "/v1/webhooks", {"queue": queue, "url": receiver.url, "format": form})
        assert made.status == 201, made.body
        (delivery,) = receiver.wait_for(1)
        came = from_http_event(HTTPMessage(headers=delivery.headers, body=delivery.body))
        server.ask("DELETE", f"/v1/webhooks/{made.json['id']}")
    assert came.get_attributes() == sent.get_attributes()
    mine, theirs = came.get_data(), sent.get_data()
    assert mine == theirs or (isinstance(mine, bytes) and mine.decode() == theirs)


def test_event_attributes_are_headers_and_events_are_deduplicated(server):
    sent = event({"n": 1}, id="order-1", datacontenttype="application/json")
    first = send(server, "once", to_binary_event(sent))
    again = send(server, "once", to_structured_event(sent))
    assert [answer.json["messages"][0]["duplicate"] for answer in (first, again)] == [False, True]
    assert send(server, "once", to_structured_event(sent), "&dedup=false").json["messages"][0]["duplicate"] is False
    other = event({"n": 1}, id="order-1", source="https://example.com/other")
    assert send(server, "once", to_binary_event(other)).json["messages"][0]["duplicate"] is False
    message = server.lease("once")[0]
    assert message["headers"]["ce-subject"] == ATTRIBUTES["subject"] and message["key"] == "user-42"
    assert message["headers"]["ce-id"] == "order-1" and message["payload"] == {"n": 1}


def test_empty_batch_stores_nothing(server):
    kind = {"content_type": "application/cloudevents-batch+json"}
    answer = server.ask("POST", "/v1/publish?queue=empty", b"[]", **kind)
    assert (answer.status, answer.json) == (201, {"messages": [], "durable": True})
    assert server.ask("GET", "/v1/stats?queue=empty").status == 404
    assert server.ask("POST", "/v1/publish?queue=EMPTY!", b"[]", **kind).status == 400


def test_batch_is_atomic(server):
    one = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 1}
    kind = {"content_type": "application/cloudevents-batch+json; charset=UTF-8"}
    body = json.dumps([one, {**one, "id": "2", "data_base64": "AP8=", "data": None}]).encode()
    assert server.ask("POST", "/v1/publish?queue=batch", body, **kind).status == 400
    body = json.dumps([one, {**one, "id": ""}]).encode()
    refused = server.ask("POST", "/v1/publish?queue=batch", body, **kind)
    assert (refused.status, refused.json["error"]["details"]) == (400, {"field": "id", "row": 1})
    assert server.ask("GET", "/v1/stats?queue=batch").status == 404
    body = json.dumps([one, {**one, "id": "2"}, {**one, "id": "3"}]).encode()
    answer = server.ask("POST", "/v1/publish?queue=batch", body, **kind)
    assert [message["offset"] for message in answer.json["messages"]] == [0, 1, 2] and answer.json["durable"]


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/v1/publish?queue=x", {"content_type": "application/cloudevents+avro"}, 415),
        ("/v1/publish?queue=x", {"content_type": "application/cloudevents+xml"}, 415),
        ("/v1/publish?queue=x", {"content_type": "application/cloudevents"}, 415),
        ("/v1/publish", {"content_type": "application/cloudevents+json"}, 400),
        ("/v1/publish?queue=x&unknown=1", {"content_type": "application/cloudevents+json"}, 400),
        ("/v1/publish?queue=X!", {"content_type": "application/cloudevents+json"}, 400),
        ("/v1/publish?queue=x", {"ce_id": "1", "content_type": "application/json"}, 400),
        ("/v1/publish?queue=x", {"ce_specversion": "0.3", "ce_id": "1", "ce_source": "/", "ce_type": "t"}, 400),
    ],
)
def test_invalid_event_is_refused(server, target, headers, status):
    refused = server.ask("POST", target, b"{}", **headers)
    assert refused.status == status
    assert refused.json["error"]["code"] == {400: "invalid_request", 415: "unsupported_media_type"}[status]
