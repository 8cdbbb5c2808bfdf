"""WebSockets of the dialects, over real sockets: the frames that their documentation shows.

| example in the documentation | test |
| --- | --- |
| pulsar-proxy, 3. WebSocket Server: connect with a token, `subscribe`, `subscribed` | test_subscribe |
| pulsar-proxy, 3. WebSocket Server: `message` to the client, `ack` from it | test_messages_and_acks |
| pulsar-proxy, 3. WebSocket Server, Message Types: `unsubscribe` | test_unsubscribe |
| pulsar-proxy, 3. WebSocket Server, Message Types: `error` | test_errors |
| pulsar-proxy, 3. WebSocket Server, Message Types: `ping`/`pong` | test_ping |
| pulsar-proxy, 3. WebSocket Server: `offset: 'last'  // or specific message_id` | test_start_offset_of_a_client |
| pulsar-proxy, Connection Management: client provides last received message_id | test_resume |
| pulsar-proxy, Connection Management: close frame with reason code | test_stopping_server_closes_with_1012 |
| queen, WebSocket Events: message.pushed, processing, completed, failed | test_dashboard_messages |
| queen, WebSocket Events: queue.created, queue.depth, worker.connected | test_dashboard_queues_and_workers |
| queen, WebSocket Events: worker.disconnected | tests/unit/transports/dialects/test_dialect_sessions.py |
"""

from __future__ import annotations

import contextlib
import json
import re
import time

import pytest
from dialect_server import emptied
from http_server import running
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    flags = ("--dialect", "queen", "--dialect", "pulsar-proxy")
    with running(tmp_path_factory.mktemp("sockets") / "data", *flags) as server:
        yield server


@pytest.fixture
def server(shared):
    with emptied(shared):
        yield shared


@contextlib.contextmanager
def socket(server, path, **options):
    with connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None, **options) as websocket:
        yield websocket


def say(websocket, **frame):
    websocket.send(json.dumps(frame))


def hear(websocket, timeout=30):
    return json.loads(websocket.recv(timeout=timeout))


def subscribe(websocket, *topics, client="client_abc123", **fields):
    say(websocket, type="subscribe", topics=list(topics), client_id=client, **fields)
    answer = hear(websocket)
    assert answer["type"] == "subscribed", answer
    return answer


def publish(server, topic, number):
    answer = server.ask("POST", "/api/v1/messages", {"topic": topic, "payload": {"n": number}})
    assert answer.status == 201
    return answer.json["message_id"]


# -- pulsar-proxy -------------------------------------------------------------------------------------------------


def test_subscribe(server):
    with socket(server, "/ws?token=%3Cauth_token%3E") as websocket:
        answer = subscribe(websocket, "notifications", "alerts", offset="last")
        assert answer["topics"] == ["notifications", "alerts"]
        assert re.fullmatch(r"sess_[0-9a-f]+", answer["session_id"])


def test_messages_and_acks(server):
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", "alerts", offset="last")
        sent = publish(server, "notifications", 1)
        message = hear(websocket)
        assert message == {
            "type": "message",
            "message_id": sent,
            "topic": "notifications",
            "payload": {"n": 1},
            "timestamp": message["timestamp"],
        }
        assert re.fullmatch(MOMENT, message["timestamp"])
        say(websocket, type="ack", message_id=sent)
        server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=notifications").json["totals"]["acked"] == 1)
        ids = [publish(server, topic, number) for number, topic in enumerate(("alerts", "notifications"))]
        assert [hear(websocket)["message_id"] for _ in ids] == ids
        say(websocket, type="ack", message_id=sent)
        stale = hear(websocket)
        assert (stale["type"], stale["error"], stale["message_id"]) == ("error", "stale_receipt", sent)


def test_every_client_gets_every_message(server):
    with socket(server, "/ws") as first, socket(server, "/ws") as second:
        subscribe(first, "notifications", client="a")
        subscribe(second, "notifications", client="b")
        sent = publish(server, "notifications", 1)
        assert hear(first)["message_id"] == hear(second)["message_id"] == sent
        say(first, type="ack", message_id=sent)
        # An ack over HTTP with the client_id counts too.
        answer = server.ask("POST", "/api/v1/ack", {"message_ids": [sent], "client_id": "b"})
        assert answer.json["results"][0]["status"] == "acked"


def test_start_offset_of_a_client(server):
    ids = [publish(server, "notifications", number) for number in range(3)]
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", client="live", offset="last")
        ids.append(publish(server, "notifications", 3))
        assert hear(websocket)["message_id"] == ids[3]
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", client="behind", offset=ids[1])
        assert [hear(websocket)["message_id"] for _ in range(2)] == ids[2:]
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", client="all")
        assert [hear(websocket)["message_id"] for _ in range(4)] == ids


def test_resume(server):
    server.ask("PUT", "/v1/queues/notifications", {"retention": {"mode": "keep"}, "backoff": {"kind": "none"}})
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", offset="last")
        ids = [publish(server, "notifications", number) for number in range(3)]
        assert [hear(websocket)["message_id"] for _ in ids] == ids
        say(websocket, type="ack", message_id=ids[0])
        server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=notifications").json["leased"] == 2)
    server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=notifications").json["leased"] == 0)
    missed = publish(server, "notifications", 3)
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", offset=ids[0])
        assert [hear(websocket)["message_id"] for _ in range(3)] == [*ids[1:], missed]


def test_unacked_message_is_delivered_again(server):
    server.ask("PUT", "/v1/queues/notifications", {"lease_ms": 200, "backoff": {"kind": "none"}})
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications")
        sent = publish(server, "notifications", 1)
        assert [hear(websocket)["message_id"] for _ in range(2)] == [sent, sent]


def test_unsubscribe(server):
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", "alerts")
        publish(server, "notifications", 1)
        hear(websocket)
        say(websocket, type="unsubscribe", topics=["notifications"])
        assert hear(websocket) == {"type": "unsubscribed", "topics": ["notifications"]}
        assert server.ask("GET", "/v1/stats?queue=notifications").json["leased"] == 0
        publish(server, "notifications", 2)
        sent = publish(server, "alerts", 3)
        assert hear(websocket)["message_id"] == sent
        subscribe(websocket, "notifications")
        assert [hear(websocket)["payload"]["n"] for _ in range(2)] == [1, 2]


def test_ping(server):
    with socket(server, "/ws") as websocket:
        say(websocket, type="ping")
        assert hear(websocket) == {"type": "pong"}
        say(websocket, type="pong")
        say(websocket, type="ping")
        assert hear(websocket) == {"type": "pong"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "invalid_request"),
        ("[]", "invalid_request"),
        ('{"type": "shout"}', "invalid_request"),
        ('{"type": "subscribe", "topics": ["a"]}', "invalid_request"),
        ('{"type": "subscribe", "topics": [], "client_id": "c"}', "invalid_request"),
        ('{"type": "subscribe", "topics": ["A!"], "client_id": "c"}', "invalid_topic"),
        ('{"type": "subscribe", "topics": ["a"], "client_id": "c", "offset": "msg_123"}', "invalid_request"),
        ('{"type": "subscribe", "topics": ["a"], "client_id": " "}', "invalid_request"),
        ('{"type": "unsubscribe", "topics": "a"}', "invalid_request"),
        ('{"type": "ack", "message_id": "msg_123"}', "invalid_request"),
        ('{"type": "ack"}', "invalid_request"),
    ],
)
def test_errors(server, text, error):
    with socket(server, "/ws") as websocket:
        websocket.send(text)
        answer = hear(websocket)
        assert (answer["type"], answer["error"]) == ("error", error)
        say(websocket, type="ping")
        assert hear(websocket) == {"type": "pong"}, "the connection goes on"
    assert server.ask("GET", "/v1/queues").json["total"] == 0


def test_connection_belongs_to_one_client(server):
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "a", client="me")
        say(websocket, type="subscribe", topics=["b"], client_id="you")
        assert hear(websocket)["error"] == "conflict"


def test_deleted_topic_ends_the_subscription(server):
    with socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications")
        token = server.ask("DELETE", "/v1/queues/notifications").json["error"]["details"]["confirm"]
        server.ask("DELETE", f"/v1/queues/notifications?confirm={token}")
        assert hear(websocket)["error"] == "queue_not_found"


def test_foreign_origins_and_other_paths_are_refused(server):
    for path, options, status in (
        ("/ws", {"origin": "http://evil.example"}, 403),
        ("/ws", {"origin": "http://localhost:8000"}, 403),
        ("/ws/other", {}, 404),
        ("/v1/queues", {}, 200),  # the offer is ignored
    ):
        with pytest.raises(InvalidStatus) as refused, socket(server, path, **options):
            pass
        assert refused.value.response.status_code == status
    with socket(server, "/ws", origin=f"http://127.0.0.1:{server.port}") as websocket:
        say(websocket, type="ping")
        assert hear(websocket) == {"type": "pong"}


def test_frames_are_bounded(server):
    with socket(server, "/ws") as websocket:
        websocket.send("x" * (1 << 17))
        with pytest.raises(ConnectionClosed) as closed:
            hear(websocket)
        assert closed.value.rcvd.code == 1009


def test_stopping_server_closes_with_1012(tmp_path):
    with running(tmp_path / "data", "--dialect", "pulsar-proxy") as server, socket(server, "/ws") as websocket:
        subscribe(websocket, "notifications", offset="last")
        publish(server, "notifications", 1)
        hear(websocket)
        assert server.terminate() == 0
        with pytest.raises(ConnectionClosed) as closed:
            hear(websocket)
        assert closed.value.rcvd.code == 1012


def test_http_works_beside_websockets(server):
    """Inline requests on a server that also accepts WebSockets."""
    with contextlib.closing(server.connect()) as connection:
        for _ in range(3):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b'{"status":"ok"}'


# -- queen --------------------------------------------------------------------------------------------------------

QUEUE = {"ns": "email-service", "task": "send", "queue": "high"}
PATH = "email-service/send/high"


def events(websocket, until, timeout=30):
    found = []
    deadline = time.monotonic() + timeout
    while not found or found[-1]["event"] != until:
        found.append(hear(websocket, max(0.01, deadline - time.monotonic())))
    return found


def watching(server, websocket):
    """Wait for a first event; then the dashboard receives all later events."""
    server.ask("PUT", "/v1/queues/watched", {})
    events(websocket, "queue.created")


def test_dashboard_messages(server):
    with socket(server, "/ws/dashboard") as websocket:
        watching(server, websocket)
        item = {**QUEUE, "payload": 1, "transactionId": "t-1"}
        server.ask("POST", "/api/v1/push", {"items": [item]})
        pushed = events(websocket, "message.pushed")[-1]
        assert pushed["data"] == {"queue": PATH, "transactionId": "t-1", "timestamp": pushed["data"]["timestamp"]}
        assert re.fullmatch(MOMENT, pushed["data"]["timestamp"])
        pop = "/api/v1/pop/ns/email-service/task/send/queue/high?workerId=worker-1"
        server.ask("GET", pop)
        processing = events(websocket, "message.processing")[-1]["data"]
        assert (processing["transactionId"], processing["workerId"]) == ("t-1", "worker-1")
        server.ask("POST", "/api/v1/ack", {"transactionId": "t-1", "status": "failed", "error": "broken"})
        failed = events(websocket, "message.failed")[-1]["data"]
        assert (failed["queue"], failed["transactionId"], failed["error"]) == (PATH, "t-1", "broken")
        (popped,) = server.ask("GET", f"{pop}&wait=true").json["messages"]
        server.ask("POST", "/api/v1/ack", {"transactionId": popped["transactionId"], "status": "completed"})
        completed = events(websocket, "message.completed")[-1]["data"]
        assert (completed["queue"], completed["transactionId"]) == (PATH, "t-1")


def test_dashboard_queues_and_workers(server):
    with socket(server, "/ws/dashboard") as websocket:
        watching(server, websocket)
        server.ask("POST", "/api/v1/push", {"items": [{**QUEUE, "payload": number} for number in range(3)]})
        created = events(websocket, "queue.created")[-1]["data"]
        assert created == {**QUEUE, "timestamp": created["timestamp"]}
        server.ask("GET", "/api/v1/pop/ns/email-service?workerId=worker-1")
        assert events(websocket, "worker.connected")[-1]["data"]["workerId"] == "worker-1"
        depths = []
        while not depths or depths[-1]["queue"] != PATH:
            depths.append(events(websocket, "queue.depth")[-1]["data"])
        assert depths[-1]["depth"] == 3


def test_dashboard_ignores_client_frames(server):
    with socket(server, "/ws/dashboard") as websocket:
        websocket.send("anything")
        watching(server, websocket)
