"""The dialect `queen` against a real server: every request that its documentation shows, and what it promises of them.

| example in the documentation of queen | test |
| --- | --- |
| API Endpoints, Configuration: `POST /api/v1/configure` | test_configure |
| Configuration, Queue Options Schema: defaults | test_the_defaults_of_the_options |
| API Endpoints, Push Messages: `POST /api/v1/push` | test_push, test_transaction_id_is_deduplicated |
| API Endpoints, Pop Messages: `GET /api/v1/pop/ns/…?timeout=30000&wait=true` | test_pop_of_a_namespace |
| API Endpoints, Pop Messages: `GET /api/v1/pop/ns/…/task/…?timeout=30000&wait=true` | test_pop_of_a_task |
| API Endpoints, Pop Messages: `GET /api/v1/pop/ns/…/task/…/queue/…?timeout=30000&wait=true` | test_pop_of_a_queue |
| API Endpoints, Pop Messages: `204 No Content on timeout` | test_empty_pop_is_204 |
| API Endpoints, Analytics: five `GET /api/v1/analytics/…` | test_analytics |
| API Endpoints, Message Acknowledgment: `POST /api/v1/ack` | test_ack_completed, test_ack_failed |
| API Endpoints, Batch Acknowledgment: `POST /api/v1/ack/batch` | test_ack_batch |
| API Endpoints, WebSocket Events: `WS /ws/dashboard` | test_dialect_sockets.py |
| Client SDK Design, Basic Usage: configure, push, pop, ack | test_requests_of_the_client_library |
| Advanced Queue Processing, Delayed Processing | test_delayed_processing |
| Advanced Queue Processing, Window Buffer | test_window_buffer |
| Advanced Queue Processing, Lease-Based Processing | test_lease_expiry |
| Advanced Queue Processing, Queue Priority Processing | test_higher_priorities_first |
"""

from __future__ import annotations

import re
import threading
import uuid

import pytest
from dialect_server import emptied
from http_server import running

NS = "email-service"
QUEUE = {"ns": NS, "task": "send-notifications", "queue": "high-priority"}
POP = f"/api/v1/pop/ns/{NS}"
POP_TASK = f"{POP}/task/send-notifications"
POP_QUEUE = f"{POP_TASK}/queue/high-priority"
WELCOME = {"to": "user@example.com", "template": "welcome"}
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
ULID = r"[0-7][0-9A-Z]{25}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(tmp_path_factory.mktemp("queen") / "data", "--dialect", "queen") as server:
        yield server


@pytest.fixture
def server(shared):
    with emptied(shared):
        yield shared


def push(server, *payloads, config=None, **fields):
    items = [{**QUEUE, "payload": payload, **fields} for payload in payloads]
    answer = server.ask("POST", "/api/v1/push", {"items": items, **({} if config is None else {"config": config})})
    assert answer.status == 201, answer.body
    return answer.json["messages"]


def pop(server, target=POP_QUEUE, **query):
    answer = server.ask("GET", target + "?" + "&".join(f"{name}={value}" for name, value in query.items()))
    assert answer.status in (200, 204), answer.body
    return answer.json["messages"] if answer.status == 200 else []


# -- configuration ------------------------------------------------------------------------------------------------


def test_configure(server):
    options = {
        "leaseTime": 300,
        "maxSize": 10000,
        "ttl": 3600,
        "retryLimit": 3,
        "deadLetterQueue": True,
        "delayedProcessing": 60,
        "windowBuffer": 30,
        "priority": 10,
    }
    answer = server.ask("POST", "/api/v1/configure", {**QUEUE, "options": options})
    assert answer.status == 201
    assert answer.json == {**QUEUE, "options": {**options, "retryDelay": 1000}}
    config = server.ask("GET", f"/v1/queues/{NS}/send-notifications/high-priority").json["config"]
    assert (config["lease_ms"], config["max_messages"], config["ttl_ms"]) == (300_000, 10_000, 3_600_000)
    assert (config["max_retries"], config["dead_letter"], config["queue_priority"]) == (3, True, 10)
    assert (config["delay_ms"], config["window_ms"]) == (60_000, 30_000)
    assert config["backoff"]["kind"] == "fixed" and config["backoff"]["base_ms"] == 1000


def test_the_defaults_of_the_options(server):
    answer = server.ask("POST", "/api/v1/configure", QUEUE)
    assert answer.json["options"] == {
        "leaseTime": 300,
        "maxSize": 10000,
        "ttl": 3600,
        "retryLimit": 3,
        "retryDelay": 1000,
        "deadLetterQueue": True,
        "priority": 0,
        "delayedProcessing": 0,
        "windowBuffer": 0,
    }


def test_configure_changes_only_named_options(server):
    server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"priority": 10, "ttl": 0, "windowMaxWait": 5}})
    answer = server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"leaseTime": 60}})
    assert answer.status == 201
    options = answer.json["options"]
    assert (options["leaseTime"], options["priority"], options["ttl"], options["windowMaxWait"]) == (60, 10, 0, 5)


# -- push ---------------------------------------------------------------------------------------------------------

TRANSACTION = "550e8400-e29b-41d4-a716-446655440000"


def test_push(server):
    body = {
        "items": [{**QUEUE, "payload": WELCOME, "transactionId": TRANSACTION}],
        "config": {"batchMode": True, "autoCreate": True},
    }
    answer = server.ask("POST", "/api/v1/push", body)
    assert answer.status == 201
    (message,) = answer.json["messages"]
    assert message == {"id": message["id"], "transactionId": TRANSACTION, "status": "queued"}
    assert re.fullmatch(ULID, message["id"])
    assert server.lease(f"{NS}/send-notifications/high-priority")[0]["payload"] == WELCOME


def test_transaction_id_is_generated_if_missing(server):
    first, second = push(server, WELCOME, WELCOME)
    assert uuid.UUID(first["transactionId"]).version == 4
    assert first["transactionId"] != second["transactionId"]


def test_transaction_id_is_deduplicated(server):
    (first,) = push(server, WELCOME, transactionId=TRANSACTION)
    (again,) = push(server, {"other": "payload"}, transactionId=TRANSACTION)
    assert again == {**first, "duplicate": True}
    assert [message["payload"] for message in pop(server, batch=10)] == [WELCOME]
    # Ids are unique per queue.
    other = {**QUEUE, "queue": "low-priority", "payload": 1, "transactionId": TRANSACTION}
    answer = server.ask("POST", "/api/v1/push", {"items": [other]})
    assert "duplicate" not in answer.json["messages"][0]


def test_batch_mode_is_atomic(server):
    server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"maxSize": 2}})
    items = [{**QUEUE, "payload": number} for number in range(3)]
    assert server.ask("POST", "/api/v1/push", {"items": items}).status == 429
    assert pop(server) == []
    answer = server.ask("POST", "/api/v1/push", {"items": items, "config": {"batchMode": False}})
    assert answer.status == 207
    assert [message["status"] for message in answer.json["messages"]] == ["queued", "queued", "failed"]
    assert answer.json["messages"][2]["error"]["code"] == "queue_full"
    assert [message["payload"] for message in pop(server, batch=10)] == [0, 1]


def test_push_without_auto_create_needs_the_queue(server):
    body = {"items": [{**QUEUE, "payload": 1}], "config": {"autoCreate": False}}
    answer = server.ask("POST", "/api/v1/push", body)
    assert (answer.status, answer.json["error"]["code"]) == (404, "queue_not_found")
    assert server.ask("GET", "/v1/queues").json["total"] == 0
    server.ask("POST", "/api/v1/configure", QUEUE)
    assert server.ask("POST", "/api/v1/push", body).status == 201


# -- pop ----------------------------------------------------------------------------------------------------------


def is_welcome(message):
    assert set(message) == {"id", "transactionId", "payload", "queue", "createdAt"}
    assert message["payload"] == WELCOME
    assert message["queue"] == "email-service/send-notifications/high-priority"
    assert re.fullmatch(MOMENT, message["createdAt"])
    return True


@pytest.mark.parametrize("target", [POP, POP_TASK, POP_QUEUE], ids=["namespace", "task", "queue"])
def test_pop_returns_ready_messages(server, target):
    (pushed,) = push(server, WELCOME, transactionId=TRANSACTION)
    (popped,) = pop(server, target, timeout=30000, wait="true")
    assert is_welcome(popped)
    assert (popped["id"], popped["transactionId"]) == (pushed["id"], TRANSACTION)


def waits_for_a_push(server, target):
    found = []
    popping = threading.Thread(target=lambda: found.extend(pop(server, target, timeout=30000, wait="true")))
    popping.start()
    server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 1)
    push(server, WELCOME)
    popping.join(timeout=30)
    return len(found) == 1 and is_welcome(found[0])


def test_pop_of_a_namespace(server):
    assert waits_for_a_push(server, POP)


def test_pop_of_a_task(server):
    assert waits_for_a_push(server, POP_TASK)


def test_pop_of_a_queue(server):
    server.ask("POST", "/api/v1/configure", QUEUE)
    assert waits_for_a_push(server, POP_QUEUE)


def test_empty_pop_is_204(server):
    assert server.ask("GET", f"{POP}?timeout=30000").status == 204
    answer = server.ask("GET", f"{POP}?timeout=20&wait=true")
    assert (answer.status, answer.body) == (204, b"")


def test_pop_respects_batch(server):
    push(server, *range(5))
    assert [message["payload"] for message in pop(server, POP)] == [0]
    assert [message["payload"] for message in pop(server, POP, batch=3)] == [1, 2, 3]


def test_there_is_no_global_pop(server):
    push(server, WELCOME)
    assert server.ask("GET", "/api/v1/pop").status == 404
    assert server.ask("GET", "/api/v1/pop/ns").status == 404
    assert server.ask("GET", f"/api/v1/pop/ns/{NS}/task").status == 404


def test_natively_published_message_can_be_popped_and_acked(server):
    (published,) = server.publish(f"{NS}/send-notifications/high-priority", WELCOME)
    (popped,) = pop(server)
    assert is_welcome(popped) and popped["transactionId"] == published["id"]
    answer = server.ask("POST", "/api/v1/ack", {"transactionId": published["id"], "status": "completed"})
    assert answer.status == 200
    server.ask("POST", "/v1/publish", {"queue": "a/b/c", "messages": [{"payload_b64": "AAE="}]})
    (popped,) = pop(server, "/api/v1/pop/ns/a/task/b/queue/c")
    assert popped["payload_b64"] == "AAE=" and "payload" not in popped


# -- acknowledgment -----------------------------------------------------------------------------------------------


def test_ack_completed(server):
    push(server, WELCOME, transactionId=TRANSACTION)
    pop(server)
    body = {"transactionId": TRANSACTION, "status": "completed"}
    answer = server.ask("POST", "/api/v1/ack", body)
    assert answer.status == 200
    assert answer.json == {**body, "completedAt": answer.json["completedAt"]}
    assert re.fullmatch(MOMENT, answer.json["completedAt"])
    again = server.ask("POST", "/api/v1/ack", body)
    assert (again.status, again.json["error"]["code"]) == (409, "stale_receipt")
    stats = server.ask("GET", f"/v1/stats?queue={NS}/send-notifications/high-priority").json
    assert (stats["depth"], stats["totals"]["acked"]) == (0, 1)


def test_ack_failed(server):
    server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"retryLimit": 1, "retryDelay": 0}})
    push(server, WELCOME, transactionId=TRANSACTION)
    pop(server)
    body = {"transactionId": TRANSACTION, "status": "failed", "error": "Optional error message if failed"}
    answer = server.ask("POST", "/api/v1/ack", body)
    assert answer.status == 200
    assert {name: answer.json[name] for name in ("transactionId", "status", "retryScheduled")} == {
        "transactionId": TRANSACTION,
        "status": "failed",
        "retryScheduled": True,
    }
    (popped,) = pop(server, wait="true")
    assert popped["transactionId"] == TRANSACTION
    assert server.ask("POST", "/api/v1/ack", body).json["retryScheduled"] is False
    (letter,) = server.ask("GET", f"/v1/dlq?queue={NS}/send-notifications/high-priority").json["messages"]
    assert letter["error"] == "Optional error message if failed"


def test_ack_batch(server):
    second = "660e8400-e29b-41d4-a716-446655440001"
    push(server, WELCOME, transactionId=TRANSACTION)
    push(server, WELCOME, transactionId=second)
    pop(server, batch=10)
    body = {
        "acknowledgments": [
            {"transactionId": TRANSACTION, "status": "completed"},
            {"transactionId": second, "status": "failed", "error": "Connection timeout"},
        ]
    }
    answer = server.ask("POST", "/api/v1/ack/batch", body)
    assert answer.status == 200
    results = [
        {"transactionId": TRANSACTION, "status": "completed"},
        {"transactionId": second, "status": "failed", "retryScheduled": True},
    ]
    assert answer.json == {"processed": 2, "results": results}
    again = server.ask("POST", "/api/v1/ack/batch", body)
    assert again.json["processed"] == 0
    assert {result["status"] for result in again.json["results"]} == {"stale"}


def test_ack_with_worker_id_applies_to_its_own_leases(server):
    push(server, WELCOME, transactionId=TRANSACTION)
    pop(server, workerId="worker-1")
    body = {"transactionId": TRANSACTION, "status": "completed"}
    assert server.ask("POST", "/api/v1/ack", {**body, "workerId": "worker-2"}).status == 409
    assert server.ask("POST", "/api/v1/ack", {**body, "workerId": "worker-1"}).status == 200


def test_strict_leases_need_the_worker_id(server):
    push(server, WELCOME, transactionId=TRANSACTION)
    server.ask("PATCH", f"/v1/queues/{NS}/send-notifications/high-priority", {"strict_leases": True})
    pop(server, workerId="worker-1")
    body = {"transactionId": TRANSACTION, "status": "completed"}
    assert server.ask("POST", "/api/v1/ack", body).status == 409
    assert server.ask("POST", "/api/v1/ack", {**body, "workerId": "worker-1"}).status == 200


def test_ambiguous_transaction_id_needs_queue_or_group(server):
    push(server, WELCOME, transactionId=TRANSACTION)
    pop(server, group="billing")
    pop(server, group="mailing")
    body = {"transactionId": TRANSACTION, "status": "completed"}
    answer = server.ask("POST", "/api/v1/ack", body)
    assert (answer.status, answer.json["error"]["code"]) == (409, "conflict")
    assert [held["group"] for held in answer.json["error"]["details"]["held"]] == ["billing", "mailing"]
    assert server.ask("POST", "/api/v1/ack", {**body, "group": "billing"}).status == 200
    assert server.ask("POST", "/api/v1/ack", body).status == 200


def test_ack_with_fields_of_two_operations_is_refused(server):
    (published,) = server.publish("orders", 1)
    (leased,) = server.lease("orders")
    body = {"transactionId": published["id"], "status": "completed", "receipts": [leased["receipt"]]}
    assert server.ask("POST", "/api/v1/ack", body).status == 400
    assert server.ask("POST", "/api/v1/ack", {}).status == 400
    answer = server.ask("POST", "/api/v1/ack", {"receipts": [leased["receipt"]]})
    assert answer.json == {"results": [{"receipt": leased["receipt"], "status": "acked"}]}


def test_acks_survive_a_restart_of_the_server(tmp_path):
    with running(tmp_path / "data", "--dialect", "queen") as server:
        push(server, WELCOME, transactionId=TRANSACTION)
        pop(server)
        server.terminate()
    with running(tmp_path / "data", "--dialect", "queen") as server:
        answer = server.ask("POST", "/api/v1/ack", {"transactionId": TRANSACTION, "status": "completed"})
        assert answer.status == 200


# -- what queues do -----------------------------------------------------------------------------------------------


def test_delayed_processing(server):
    server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"delayedProcessing": 1}})
    push(server, WELCOME)
    assert pop(server) == []
    assert is_welcome(pop(server, wait="true")[0])


def test_window_buffer(server):
    server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"windowBuffer": 1}})
    push(server, 1)
    push(server, 2)
    assert pop(server) == []
    assert [message["payload"] for message in pop(server, batch=10, wait="true")] == [1, 2]


def test_lease_expiry(server):
    server.ask("POST", "/api/v1/configure", {**QUEUE, "options": {"leaseTime": 1, "retryLimit": 1, "retryDelay": 0}})
    push(server, WELCOME, transactionId=TRANSACTION)
    assert pop(server, workerId="crashed")
    assert pop(server, wait="true", workerId="next")[0]["transactionId"] == TRANSACTION
    queue = f"{NS}/send-notifications/high-priority"
    server.wait_until(lambda: server.ask("GET", f"/v1/dlq?queue={queue}").json["total"] == 1)


def test_higher_priorities_first(server):
    for queue, priority in {"low": 1, "high": 10, "middle": 5}.items():
        server.ask("POST", "/api/v1/configure", {**QUEUE, "queue": queue, "options": {"priority": priority}})
        items = [{**QUEUE, "queue": queue, "payload": [queue, number]} for number in range(2)]
        server.ask("POST", "/api/v1/push", {"items": items})
    popped = [message["payload"] for message in pop(server, POP, batch=5)]
    assert popped == [["high", 0], ["high", 1], ["middle", 0], ["middle", 1], ["low", 0]]


def test_requests_of_the_client_library(server):
    queue = {"ns": NS, "task": "notifications", "queue": "high-priority"}
    options = {"leaseTime": 300, "delayedProcessing": 0, "windowBuffer": 0, "priority": 10}
    assert server.ask("POST", "/api/v1/configure", {**queue, "options": options}).status == 201
    answer = server.ask("POST", "/api/v1/push", {"items": [{**queue, "payload": WELCOME}]})
    (pushed,) = answer.json["messages"]
    target = f"/api/v1/pop/ns/{NS}/task/notifications/queue/high-priority"
    (message,) = pop(server, target, wait="true", timeout=30000)
    assert message["id"] == pushed["id"]
    body = {"transactionId": message["transactionId"], "status": "completed"}
    assert server.ask("POST", "/api/v1/ack", body).status == 200
    assert pop(server, target) == []


# -- analytics ----------------------------------------------------------------------------------------------------


def test_analytics(server):
    push(server, 1, 2, 3)
    server.ask("POST", "/api/v1/push", {"items": [{"ns": NS, "task": "other", "queue": "one", "payload": 1}]})
    (popped,) = pop(server)
    server.ask("POST", "/api/v1/ack", {"transactionId": popped["transactionId"], "status": "completed"})
    pop(server)
    counts = {"depth": 2, "pending": 1, "processing": 1, "completed": 1, "deadLetter": 0}
    of_queue = {**QUEUE, "priority": 0, **counts}
    queues = server.ask("GET", "/api/v1/analytics/queues")
    assert queues.status == 200
    assert [queue["queue"] for queue in queues.json["queues"]] == ["one", "high-priority"]
    assert queues.json["queues"][1] == of_queue
    namespace = server.ask("GET", f"/api/v1/analytics/ns/{NS}").json
    assert (namespace["ns"], namespace["totals"]["depth"], len(namespace["queues"])) == (NS, 3, 2)
    task = server.ask("GET", f"/api/v1/analytics/ns/{NS}/task/send-notifications").json
    assert task == {"ns": NS, "task": "send-notifications", "totals": counts, "queues": [of_queue]}
    depths = server.ask("GET", "/api/v1/analytics/queue-depths").json
    assert depths["totalDepth"] == 3
    assert {"queue": f"{NS}/send-notifications/high-priority", "depth": 2} in depths["queues"]
    throughput = server.ask("GET", "/api/v1/analytics/throughput").json
    assert throughput["pushedPerSecond"] > throughput["completedPerSecond"] > 0
    assert len(throughput["queues"]) == 2
    assert server.ask("GET", "/api/v1/analytics/ns/nowhere").status == 404


# -- what is refused ----------------------------------------------------------------------------------------------

REFUSED = [
    ("POST", "/api/v1/configure", b"{", "not json"),
    ("POST", "/api/v1/configure", {"ns": NS, "task": "t"}, "no queue"),
    ("POST", "/api/v1/configure", {**QUEUE, "queue": "High!"}, "other letters"),
    ("POST", "/api/v1/configure", {**QUEUE, "queue": ".dlq"}, "begins with a dot"),
    ("POST", "/api/v1/configure", {**QUEUE, "ns": "a/b"}, "four levels"),
    ("POST", "/api/v1/configure", {**QUEUE, "options": {"leaseTime": "300"}}, "text for a number"),
    ("POST", "/api/v1/configure", {**QUEUE, "options": {"leaseTime": 300000}}, "milliseconds for seconds"),
    ("POST", "/api/v1/configure", {**QUEUE, "options": {"leasetime": 300}}, "misspelled"),
    ("POST", "/api/v1/push", {"items": []}, "nothing to push"),
    ("POST", "/api/v1/push", {"items": [QUEUE]}, "no payload"),
    ("POST", "/api/v1/push", {"items": [{**QUEUE, "payload": 1, "transactionId": "x" * 65}]}, "long id"),
    ("POST", "/api/v1/push", {"items": [{**QUEUE, "payload": 1, "transactionId": 7}]}, "number for an id"),
    ("POST", "/api/v1/push", {"items": {**QUEUE, "payload": 1}}, "object for a list"),
    ("POST", "/api/v1/push", [1], "list for an object"),
    ("GET", f"{POP}?batch=0", None, "none"),
    ("GET", f"{POP}?batch=101", None, "too many"),
    ("GET", f"{POP}?timeout=60001", None, "too long"),
    ("GET", f"{POP}?timeout=soon", None, "no number"),
    ("GET", f"{POP}?wait=perhaps", None, "no boolean"),
    ("GET", f"{POP}?group=%20", None, "no group"),
    ("GET", "/api/v1/pop/ns/UPPER!", None, "other letters"),
    ("POST", "/api/v1/ack", {"transactionId": "x"}, "no status"),
    ("POST", "/api/v1/ack", {"transactionId": "x", "status": "done"}, "unknown status"),
    ("POST", "/api/v1/ack", {"transactionId": "", "status": "completed"}, "empty id"),
    ("POST", "/api/v1/ack", b"\xff", "not utf-8"),
    ("POST", "/api/v1/ack/batch", {"acknowledgments": [{"transactionId": "x"}]}, "no status in a batch"),
    ("GET", "/api/v1/analytics/queues?page=1", None, "unknown parameter"),
]


def test_invalid_requests_are_refused_and_change_nothing(server):
    push(server, WELCOME)
    before = server.ask("GET", "/api/v1/analytics/queues").json
    for method, target, body, why in REFUSED:
        answer = server.ask(method, target, body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request"), why
    large = {"items": [{**QUEUE, "payload": "x" * (1 << 20)}]}
    assert server.ask("POST", "/api/v1/push", large).status == 413
    assert server.ask("GET", "/api/v1/pop/ns/a/task/b/queue/unknown").status == 404
    assert server.ask("GET", "/api/v1/push").status == 405
    assert server.ask("OPTIONS", "/api/v1/push").headers["allow"] == "OPTIONS, POST"
    assert server.ask("GET", "/api/v1/analytics/queues").json == before


def test_paths_are_404_without_the_dialect(tmp_path):
    with running(tmp_path / "data") as server:
        assert server.ask("POST", "/api/v1/push", {"items": [{**QUEUE, "payload": 1}]}).status == 404
        assert server.ask("GET", POP).status == 404
