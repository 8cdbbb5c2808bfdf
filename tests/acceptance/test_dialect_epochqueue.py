"""The dialect `epochqueue` against a real server: every request that its architecture names.

| in the architecture of EpochQueue | test |
| --- | --- |
| Write path: `POST /namespaces/ns/queues/q/messages`, `200 OK {"id":"01JP…"}` | test_publish |
| Write path: `deliverAt == 0 or <= now`, `deliverAt > now`; Scheduler | test_deliver_at |
| Queue state machine: SCHEDULED, READY, IN_FLIGHT, DELETED, DEAD_LETTER | test_message_from_publish_to_ack |
| Dashboard API: `GET /api/stats/summary` | test_summary |
| Dashboard API: `GET /api/stats?page=P&limit=L` | test_stats |
| Dashboard behaviour: `/health` | test_health |
| Naming rules: createQueue answers `400 Bad Request` | test_create_queue, REFUSED |
| HTTP middleware chain: method-qualified patterns | test_methods |
"""

from __future__ import annotations

import re
import time
from base64 import b64encode

import pytest
from dialect_server import emptied
from http_server import running

MESSAGES = "/namespaces/billing/queues/invoices/messages"
BODY = b64encode(b"\x00opaque\xff").decode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(tmp_path_factory.mktemp("epochqueue") / "data", "--dialect", "epochqueue") as server:
        yield server


@pytest.fixture
def server(shared):
    with emptied(shared):
        yield shared


def publish(server, target=MESSAGES, **fields):
    answer = server.ask("POST", target, {"body": BODY, **fields})
    assert answer.status == 200, answer.body
    return answer.json["id"]


def test_publish(server):
    answer = server.ask("POST", MESSAGES, {"body": BODY, "deliverAt": 0})
    assert answer.status == 200
    assert set(answer.json) == {"id"} and re.fullmatch(r"[0-7][0-9A-Z]{25}", answer.json["id"])
    (message,) = server.lease("billing/invoices")
    assert (message["id"], message["payload_b64"]) == (answer.json["id"], BODY)
    assert message["queue"] == "billing/default/invoices"


def test_deliver_at(server):
    now_ms = time.time_ns() // 1_000_000
    late = publish(server, deliverAt=now_ms + 3_600_000)
    soon = publish(server, deliverAt=now_ms + 300)
    past = publish(server, deliverAt=now_ms - 1000)
    assert [message["id"] for message in server.lease("billing/invoices")] == [past]
    (message,) = server.lease("billing/invoices", wait_ms=30_000)
    assert message["id"] == soon
    assert time.time_ns() // 1_000_000 >= now_ms + 300, "at or after, never before"
    cancelled = server.ask("POST", "/v1/cancel", {"queue": "billing/invoices", "ids": [late]})
    assert cancelled.json["cancelled"] == 1


def test_message_from_publish_to_ack(server):
    server.ask("PUT", "/v1/queues/billing/invoices", {"max_retries": 1, "backoff": {"kind": "none"}})

    def state():
        (row,) = server.ask("GET", "/api/stats").json["queues"]
        return tuple(row[name] for name in ("scheduled", "ready", "in_flight", "dlq_depth"))

    publish(server, deliverAt=time.time_ns() // 1_000_000 + 200)
    assert state() == (1, 0, 0, 0)
    (message,) = server.lease("billing/invoices", wait_ms=30_000)
    assert state() == (0, 0, 1, 0)
    server.ask("POST", "/v1/nack", {"receipts": [message["receipt"]]})
    assert state() == (0, 1, 0, 0)
    (message,) = server.lease("billing/invoices")
    server.ask("POST", "/v1/nack", {"receipts": [message["receipt"]]})
    assert state() == (0, 0, 0, 1)
    publish(server)
    (message,) = server.lease("billing/invoices")
    server.ask("POST", "/v1/ack", {"receipts": [message["receipt"]]})
    assert state() == (0, 0, 0, 1)


def test_create_queue(server):
    answer = server.ask("POST", "/namespaces/billing/queues", {"name": "invoices"})
    assert (answer.status, answer.json) == (201, {"namespace": "billing", "name": "invoices"})
    assert server.ask("POST", "/namespaces/billing/queues", {"name": "invoices"}).status == 200
    assert server.ask("GET", "/v1/queues/billing/default/invoices").status == 200


def test_summary(server):
    assert server.ask("GET", "/api/stats/summary").json == {
        "total_queues": 0, "namespaces": 0, "total_depth": 0, "total_scheduled": 0, "dlq_alerts": 0,
    }  # fmt: skip
    publish(server)
    publish(server, deliverAt=2**50)
    publish(server, "/namespaces/email/queues/high/messages")
    publish(server, "/namespaces/email/queues/low/messages")
    (message,) = server.lease("email/low")
    server.ask("POST", "/v1/reject", {"receipts": [message["receipt"]]})
    assert server.ask("GET", "/api/stats/summary").json == {
        "total_queues": 3, "namespaces": 2, "total_depth": 3, "total_scheduled": 1, "dlq_alerts": 1,
    }  # fmt: skip


def test_stats(server):
    for number in range(5):
        publish(server, f"/namespaces/ns/queues/q{number}/messages")
    page = server.ask("GET", "/api/stats?page=2&limit=2").json
    assert (page["total"], page["page"], page["limit"], page["total_pages"]) == (5, 2, 2, 3)
    assert [queue["name"] for queue in page["queues"]] == ["q2", "q3"]
    assert page["queues"][0] == {
        "namespace": "ns", "name": "q2", "depth": 1, "ready": 1, "scheduled": 0, "in_flight": 0, "dlq_depth": 0,
    }  # fmt: skip
    assert server.ask("GET", "/api/stats?page=4&limit=2").json["queues"] == []
    assert server.ask("GET", "/api/stats").json["limit"] == 50
    server.publish("a/b/c", 1)
    assert server.ask("GET", "/api/stats").json["queues"][0]["name"] == "b/c", "a queue of another door"


def test_health(server):
    assert (server.ask("GET", "/health").status, server.ask("GET", "/health").json) == (200, {"status": "ok"})


def test_methods(server):
    answer = server.ask("DELETE", MESSAGES)
    assert (answer.status, answer.headers["allow"]) == (405, "OPTIONS, POST")
    assert server.ask("POST", "/api/stats").headers["allow"] == "GET, HEAD, OPTIONS"
    assert server.ask("GET", "/namespaces").status == 404


REFUSED = [
    (MESSAGES, b"{", "not JSON"),
    (MESSAGES, {}, "no body"),
    (MESSAGES, {"body": "*"}, "not base64"),
    (MESSAGES, {"body": BODY, "deliverAt": "tomorrow"}, "not a number"),
    (MESSAGES, {"body": BODY, "deliverAt": -1}, "before all time"),
    (MESSAGES, {"body": BODY, "deliverAt": 2**63}, "no such moment"),
    (MESSAGES, {"body": BODY, "deliver_at": 0}, "misspelled"),
    ("/namespaces/Billing/queues/invoices/messages", {"body": BODY}, "capital letters"),
    ("/namespaces/billing/queues/in_voices/messages", {"body": BODY}, "an underscore"),
    ("/namespaces/billing/queues/in.voices/messages", {"body": BODY}, "a dot"),
    ("/namespaces/billing/queues/-x/messages", {"body": BODY}, "begins with a hyphen"),
    ("/namespaces/billing/queues/" + "x" * 65 + "/messages", {"body": BODY}, "too long"),
    ("/namespaces/billing/queues", {"name": "Invoices"}, "capital letters"),
    ("/namespaces/billing/queues", {"name": "a/b"}, "a slash"),
    ("/namespaces/billing/queues", {"name": "__dlq__"}, "not a name"),
    ("/namespaces/billing/queues", {"name": ""}, "nothing"),
    ("/namespaces/billing/queues", {}, "no name"),
]


def test_invalid_requests_are_refused_and_change_nothing(server):
    for target, body, why in REFUSED:
        answer = server.ask("POST", target, body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request"), why
    for target in ("/api/stats?page=0", "/api/stats?limit=201", "/api/stats?limit=x", "/api/stats/summary?page=1"):
        assert server.ask("GET", target).status == 400, target
    assert server.ask("POST", MESSAGES, {"body": "A" * (4 << 19)}).status == 413
    assert server.ask("GET", "/v1/queues").json["total"] == 0


def test_queue_path_has_several_forms(tmp_path):
    names = ("queen", "pulsar-proxy", "disheap", "epochqueue")
    flags = [word for name in names for word in ("--dialect", name)]
    with running(tmp_path / "data", *flags) as server:
        publish(server, "/namespaces/default/queues/orders/messages")
        server.ask("POST", "/api/v1/messages", {"topic": "orders", "payload": {}})
        item = {"ns": "default", "task": "default", "queue": "orders", "payload": 3}
        server.ask("POST", "/api/v1/push", {"items": [item]})
        server.publish("orders", 4)
        assert server.ask("GET", "/v1/queues").json["total"] == 1
        assert len(server.lease("default/default/orders")) == 4
