"""The dialect `pulsar-proxy` against a real server: every request that its documentation shows.

| example in the documentation of pulsar-proxy | test |
| --- | --- |
| 1. Message Ingestion Layer: `POST /api/v1/messages` | test_publish |
| 1. Message Ingestion Layer: `POST /api/v1/messages/bulk`, 207 with accepted and rejected | test_bulk |
| 1. Message Ingestion Layer, Rate Limiting: 429 with Retry-After | test_full_topic_has_retry_after |
| 3. WebSocket Server: subscribe, subscribed, message, ack, ping | test_dialect_sockets.py |
| 4. Long-Polling Handler: `GET /api/v1/poll?topics=…&timeout=30&since=…`, messages available | test_poll_since |
| 4. Long-Polling Handler: no messages (304 Not Modified) | test_empty_poll, test_not_modified |
| 4. Long-Polling Handler: parameters `timeout`, `since`, `limit` | test_limit_and_has_more, REFUSED |
| 4. Long-Polling Handler, Implementation: wait for new messages or timeout | test_poll_waits_for_a_message |
| 4. Long-Polling Handler, Acknowledgment: `POST /api/v1/ack` | test_ack |
| Delivery Guarantees, At-Least-Once: no ack within timeout, redeliver | test_unacked_message_is_delivered_again |
| Delivery Guarantees, At-Most-Once: `{"topic", "delivery_mode"}` | test_at_most_once |
"""

from __future__ import annotations

import re
import threading

import pytest
from dialect_server import emptied
from http_server import running

HELLO = {"user_id": 123, "message": "Hello"}
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
ID = r"msg_[0-7][0-9A-Z]{25}"
FIRST = "msg_00000000000000000000000000"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(tmp_path_factory.mktemp("pulsar") / "data", "--dialect", "pulsar-proxy") as server:
        yield server


@pytest.fixture
def server(shared):
    with emptied(shared):
        yield shared


def publish(server, topic, *payloads, **fields):
    ids = []
    for payload in payloads:
        answer = server.ask("POST", "/api/v1/messages", {"topic": topic, "payload": {"n": payload}, **fields})
        assert answer.status == 201, answer.body
        ids.append(answer.json["message_id"])
    return ids


def poll(server, topics="notifications", timeout=0, **query):
    more = "".join(f"&{name}={value}" for name, value in query.items())
    answer = server.ask("GET", f"/api/v1/poll?topics={topics}&timeout={timeout}{more}")
    assert answer.status == 200, answer.body
    return answer.json


def ids_of(polled):
    return [message["message_id"] for message in polled["messages"]]


# -- publishing ---------------------------------------------------------------------------------------------------


def test_publish(server):
    body = {
        "topic": "notifications",
        "payload": HELLO,
        "ttl": 3600,
        "metadata": {"priority": "high", "correlation_id": "abc-123"},
    }
    answer = server.ask("POST", "/api/v1/messages", body, authorization="Bearer <token>")
    assert answer.status == 201
    assert set(answer.json) == {"message_id", "topic", "timestamp"}
    assert answer.json["topic"] == "notifications"
    assert re.fullmatch(ID, answer.json["message_id"]) and re.fullmatch(MOMENT, answer.json["timestamp"])
    (message,) = poll(server)["messages"]
    assert message == {**answer.json, "payload": HELLO, "metadata": body["metadata"]}
    config = server.ask("GET", "/v1/queues/notifications").json["config"]
    assert config["retention"] == {"mode": "keep", "ms": 86_400_000, "bytes": None}


def test_bulk(server):
    messages = [
        {"topic": "topic1", "payload": {"any": "thing"}},
        {"topic": "Topic 2", "payload": {}},
        {"topic": "topic2", "payload": {}, "ttl": "soon"},
        {"topic": "topic2", "payload": {}},
    ]
    answer = server.ask("POST", "/api/v1/messages/bulk", {"messages": messages})
    assert answer.status == 207
    accepted, bad_topic, bad_type, last = answer.json["results"]
    assert accepted == {"message_id": accepted["message_id"], "status": "accepted"}
    assert re.fullmatch(ID, accepted["message_id"]) and last["status"] == "accepted"
    assert (bad_topic["error"], bad_topic["status"]) == ("invalid_topic", "rejected")
    assert (bad_type["error"], bad_type["status"]) == ("invalid_request", "rejected")
    assert ids_of(poll(server, "topic1,topic2")) == [accepted["message_id"], last["message_id"]]


def test_full_topic_has_retry_after(server):
    server.ask("PUT", "/v1/queues/notifications", {"max_messages": 1})
    publish(server, "notifications", 1)
    body = {"topic": "notifications", "payload": {}}
    answer = server.ask("POST", "/api/v1/messages", body)
    assert (answer.status, answer.json["error"]["code"]) == (429, "queue_full")
    assert int(answer.headers["retry-after"]) >= 1
    bulk = server.ask("POST", "/api/v1/messages/bulk", {"messages": [body, {**body, "topic": "other"}]})
    assert [result["status"] for result in bulk.json["results"]] == ["rejected", "accepted"]
    assert bulk.json["results"][0]["error"] == "queue_full"


def test_priority_names_select_lanes(server):
    server.ask("PUT", "/v1/queues/notifications", {"order": "lanes"})
    publish(server, "notifications", 1, metadata={"priority": "background"})
    publish(server, "notifications", 2, metadata={"priority": "critical"})
    assert [message["payload"] for message in server.lease("notifications")] == [{"n": 2}, {"n": 1}]
    body = {"topic": "notifications", "payload": {}, "metadata": {"priority": "urgent"}}
    assert server.ask("POST", "/api/v1/messages", body).status == 400
    server.ask("PUT", "/v1/queues/heap", {"order": "heap"})
    publish(server, "heap", 1, metadata={"priority": "7"})
    publish(server, "heap", 2, metadata={"priority": "-7"})
    assert [message["payload"] for message in server.lease("heap")] == [{"n": 2}, {"n": 1}]
    assert server.ask("POST", "/api/v1/messages", {**body, "topic": "heap"}).status == 400


# -- polling ------------------------------------------------------------------------------------------------------


def test_poll_since(server):
    first, second = publish(server, "notifications", 1, 2)
    (third,) = publish(server, "alerts", 3)
    found = poll(server, "notifications,alerts", timeout=30, since=first)
    assert ids_of(found) == [second, third]
    assert (found["next_offset"], found["has_more"]) == (third, False)
    assert [message["topic"] for message in found["messages"]] == ["notifications", "alerts"]
    assert found["messages"][0] == {
        "message_id": second,
        "topic": "notifications",
        "payload": {"n": 2},
        "timestamp": found["messages"][0]["timestamp"],
    }
    # A read keeps no position: the same query has the same reply.
    assert poll(server, "notifications,alerts", since=first) == found
    assert ids_of(poll(server, "notifications,alerts", since=second.removeprefix("msg_"))) == [third]


def test_limit_and_has_more(server):
    ids = []
    for number in range(3):
        ids += publish(server, "notifications", number) + publish(server, "alerts", number)
    since, seen = FIRST, []
    while True:
        found = poll(server, "alerts,notifications", since=since, limit=2)
        seen += ids_of(found)
        since = found["next_offset"]
        if not found["has_more"]:
            break
    assert seen == ids
    assert len(poll(server, "alerts,notifications", since=FIRST)["messages"]) == 6
    for number in range(9):
        publish(server, "alerts", number)
    assert len(poll(server, "alerts", since=FIRST)["messages"]) == 10, "the default"
    leased = poll(server, "alerts,notifications", limit=4)
    assert (len(leased["messages"]), leased["has_more"]) == (4, True)
    assert {message["topic"] for message in leased["messages"]} == {"alerts", "notifications"}


def test_empty_poll(server):
    (first,) = publish(server, "notifications", 1)
    found = poll(server, since=first)
    assert found == {"messages": [], "next_offset": first, "timeout": True}
    assert poll(server, "alerts") == {"messages": [], "next_offset": None, "timeout": True}


def test_not_modified(server):
    (first,) = publish(server, "notifications", 1)
    target = f"/api/v1/poll?topics=notifications&timeout=0&since={first}"
    answer = server.ask("GET", target, if_none_match=f'"{first}"')
    assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", f'"{first}"')
    publish(server, "notifications", 2)
    assert server.ask("GET", target, if_none_match=f'"{first}"').status == 200


@pytest.mark.parametrize("query", [{}, {"since": FIRST}, {"client_id": "client_abc123"}], ids=str)
def test_poll_waits_for_a_message(server, query):
    found = []
    polling = threading.Thread(target=lambda: found.append(poll(server, "alerts,notifications", timeout=30, **query)))
    polling.start()
    server.wait_until(lambda: server.ask("GET", "/v1/queues").json["total"] == 2)
    (sent,) = publish(server, "notifications", 1)
    polling.join(timeout=30)
    assert ids_of(found[0]) == [sent]


def test_each_client_gets_all_messages_and_anonymous_polls_share(server):
    ids = publish(server, "notifications", 1, 2)
    assert ids_of(poll(server, client_id="a")) == ids
    assert ids_of(poll(server, client_id="b")) == ids
    assert ids_of(poll(server, limit=1)) + ids_of(poll(server)) == ids
    assert ids_of(poll(server)) == []


def test_new_client_starts_at_since(server):
    ids = publish(server, "notifications", 1, 2, 3)
    assert ids_of(poll(server, client_id="late", since=ids[1])) == ids[2:]


# -- acknowledging ------------------------------------------------------------------------------------------------


def test_ack(server):
    ids = publish(server, "notifications", 124, 125)
    assert ids_of(poll(server)) == ids
    answer = server.ask("POST", "/api/v1/ack", {"message_ids": ids})
    assert answer.status == 200
    assert answer.json == {"results": [{"message_id": text, "status": "acked"} for text in ids]}
    again = server.ask("POST", "/api/v1/ack", {"message_ids": [*ids, "msg_124"]})
    assert (again.status, {result["status"] for result in again.json["results"]}) == (200, {"stale"})
    assert server.ask("GET", "/v1/stats?queue=notifications").json["leased"] == 0


def test_ack_applies_to_one_client(server):
    ids = publish(server, "notifications", 1)
    poll(server, client_id="a")
    poll(server, client_id="b")
    both = server.ask("POST", "/api/v1/ack", {"message_ids": ids})
    assert (both.status, both.json["error"]["code"]) == (409, "conflict")
    own = server.ask("POST", "/api/v1/ack", {"message_ids": ids, "client_id": "a"})
    assert own.json["results"][0]["status"] == "acked"
    groups = {
        group["group"]: group["leased"] for group in server.ask("GET", "/v1/groups?queue=notifications").json["groups"]
    }
    assert groups == {"a": 0, "b": 1}


def test_unacked_message_is_delivered_again(server):
    server.ask("PUT", "/v1/queues/notifications", {"lease_ms": 200, "backoff": {"kind": "none"}})
    ids = publish(server, "notifications", 1)
    assert ids_of(poll(server)) == ids
    assert ids_of(poll(server)) == []
    assert ids_of(poll(server, timeout=30)) == ids


def test_at_most_once(server):
    answer = server.ask("POST", "/api/v1/topics", {"topic": "analytics", "delivery_mode": "at_most_once"})
    assert (answer.status, answer.json) == (201, {"topic": "analytics", "delivery_mode": "at_most_once"})
    ids = publish(server, "analytics", 1)
    assert ids_of(poll(server, "analytics")) == ids
    assert server.ask("POST", "/api/v1/ack", {"message_ids": ids}).json["results"][0]["status"] == "stale"
    assert server.ask("GET", "/v1/stats?queue=analytics").json["depth"] == 0
    again = server.ask("POST", "/api/v1/topics", {"topic": "analytics", "delivery_mode": "at_least_once"})
    assert again.status == 200


def test_ttl_expires_a_message(server):
    publish(server, "notifications", 1, ttl=1)
    lasting = publish(server, "notifications", 2)
    server.wait_until(lambda: ids_of(poll(server, since=FIRST)) == lasting)


# -- what is refused ----------------------------------------------------------------------------------------------

REFUSED = [
    ("POST", "/api/v1/messages", b"", "no body"),
    ("POST", "/api/v1/messages", b"[]", "a list"),
    ("POST", "/api/v1/messages", {"topic": "t"}, "no payload"),
    ("POST", "/api/v1/messages", {"topic": "t", "payload": "text"}, "a payload that is not an object"),
    ("POST", "/api/v1/messages", {"topic": "T!", "payload": {}}, "other letters"),
    ("POST", "/api/v1/messages", {"topic": "t", "payload": {}, "ttl": 0}, "dead at once"),
    ("POST", "/api/v1/messages", {"topic": "t", "payload": {}, "metadata": {"a": 1}}, "metadata is text"),
    ("POST", "/api/v1/messages", {"topic": "t", "payload": {}, "message_id": "x"}, "unknown field"),
    ("POST", "/api/v1/messages/bulk", {"messages": []}, "nothing"),
    ("POST", "/api/v1/messages/bulk", {"messages": {}}, "an object for a list"),
    ("POST", "/api/v1/topics", {"topic": "t", "delivery_mode": "exactly_once"}, "unknown delivery mode"),
    ("GET", "/api/v1/poll", None, "no topics"),
    ("GET", "/api/v1/poll?topics=", None, "an empty topic"),
    ("GET", "/api/v1/poll?topics=a,,b", None, "one of them empty"),
    ("GET", "/api/v1/poll?topics=" + ",".join(f"t{n}" for n in range(65)), None, "too many topics"),
    ("GET", "/api/v1/poll?topics=a&timeout=61", None, "too long"),
    ("GET", "/api/v1/poll?topics=a&timeout=30000", None, "milliseconds for seconds"),
    ("GET", "/api/v1/poll?topics=a&limit=0", None, "none"),
    ("GET", "/api/v1/poll?topics=a&limit=101", None, "too many"),
    ("GET", "/api/v1/poll?topics=a&since=msg_123", None, "not a message id"),
    ("GET", "/api/v1/poll?topics=a&client_id=%20", None, "not a name"),
    ("POST", "/api/v1/ack", {"message_ids": []}, "nothing"),
    ("POST", "/api/v1/ack", {"message_ids": "msg_1"}, "text for a list"),
    ("POST", "/api/v1/ack", {"message_ids": ["x"], "receipts": []}, "two meanings"),
    ("POST", "/api/v1/ack", {"transactionId": "x", "status": "completed"}, "another dialect's, not switched on"),
    ("POST", "/api/v1/ack", {}, "no meaning"),
]


def test_invalid_requests_are_refused_and_change_nothing(server):
    for method, target, body, why in REFUSED:
        answer = server.ask(method, target, body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request"), (why, answer.body)
    large = {"topic": "t", "payload": {"x": "x" * (1 << 20)}}
    assert server.ask("POST", "/api/v1/messages", large).status == 413
    assert server.ask("GET", "/v1/queues").json["total"] == 0


def test_topics_are_not_created_without_auto_create(tmp_path):
    with running(tmp_path / "data", "--dialect", "pulsar-proxy", "--no-auto-create") as server:
        for answer in (
            server.ask("POST", "/api/v1/messages", {"topic": "t", "payload": {}}),
            server.ask("GET", "/api/v1/poll?topics=t&timeout=0"),
        ):
            assert (answer.status, answer.json["error"]["code"]) == (404, "queue_not_found")


def test_two_dialects_share_a_path(tmp_path):
    with running(tmp_path / "data", "--dialect", "queen", "--dialect", "pulsar-proxy") as server:
        ids = publish(server, "notifications", 1)
        assert ids_of(poll(server)) == ids
        assert server.ask("POST", "/api/v1/ack", {"message_ids": ids}).json["results"][0]["status"] == "acked"
        publish(server, "notifications", 2)
        target = "/api/v1/pop/ns/default/task/default/queue/notifications"
        (popped,) = server.ask("GET", target).json["messages"]
        body = {"transactionId": popped["transactionId"], "status": "completed"}
        assert server.ask("POST", "/api/v1/ack", {**body, "message_ids": ids}).status == 400
        assert server.ask("POST", "/api/v1/ack", body).json["status"] == "completed"
