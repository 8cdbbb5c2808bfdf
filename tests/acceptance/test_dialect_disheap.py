"""The HTTP part of the dialect `disheap` against a real server: every request that its specification names.

| in the specification of disheap | test |
| --- | --- |
| 10, HTTP/JSON: `POST /v1/heaps` (MakeHeapReq) | test_make_heap |
| 10, HTTP/JSON: `DELETE /v1/heaps/{topic}`, `?force=true` and confirmation token | test_delete_heap |
| 10, HTTP/JSON: `PATCH /v1/heaps/{topic}` | test_update_heap |
| 10, HTTP/JSON: `GET /v1/heaps` | test_list_heaps |
| 10, HTTP/JSON: `GET /v1/stats` | test_stats |
| 10, HTTP/JSON: `POST /v1/enqueue` (EnqueueReq, EnqueueResp) | test_enqueue, test_producer_sequence_numbers |
| 10, HTTP/JSON: `POST /v1/enqueue:batch`, all or nothing (6, Batch atomicity) | test_enqueue_batch |
| 10, HTTP/JSON: `POST /v1/ack` (AckReq) | test_ack |
| 10, HTTP/JSON: `POST /v1/nack` (NackReq) | test_nack |
| 10, HTTP/JSON: `POST /v1/extend` (ExtendReq) | test_extend |
| 10, HTTP/JSON: `GET /v1/peek` | test_peek |
| 10, Errors: INVALID_ARGUMENT, FAILED_PRECONDITION, ABORTED, NOT_FOUND | REFUSED, test_ack, test_missing, … |
| 2, Message: `not_before`; 8: retries, DLQ | test_not_before, test_nack |
"""

from __future__ import annotations

import re
from base64 import b64encode

import pytest
from dialect_server import emptied
from http_server import running

ULID = r"[0-7][0-9A-Z]{25}"
HEAP = {"topic": "jobs", "mode": "MIN", "partitions": 4, "rf": 3, "K": 8}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(tmp_path_factory.mktemp("disheap") / "data", "--dialect", "disheap") as server:
        yield server


@pytest.fixture
def server(shared):
    with emptied(shared):
        yield shared


def done(server, method, target, body=None):
    answer = server.ask(method, target, body)
    assert answer.status == 200, answer.body
    return answer.json


def refused(server, method, target, body=None):
    answer = server.ask(method, target, body)
    assert set(answer.json) == {"code", "status", "message", "details"}, answer.body
    return answer.status, answer.json["code"], answer.json["status"]


INVALID_ARGUMENT = (400, 3, "INVALID_ARGUMENT")
NOT_FOUND = (404, 5, "NOT_FOUND")
FAILED_PRECONDITION = (409, 9, "FAILED_PRECONDITION")
ABORTED = (409, 10, "ABORTED")


def b64(text):
    return b64encode(text.encode()).decode()


def enqueue(server, text="work", **fields):
    return done(server, "POST", "/v1/enqueue", {"topic": "jobs", "payload": b64(text), **fields})


def leased(server, **more):
    """A message with its token, as a consumer gets it."""
    (message,) = server.lease("jobs", max=1, **more)
    return {"topic": "jobs", "message_id": message["id"], "lease_token": message["receipt"]}


# -- heaps --------------------------------------------------------------------------------------------------------


def test_make_heap(server):
    assert done(server, "POST", "/v1/heaps", HEAP) == {"topic": "jobs", "heap_id": "default/default/jobs"}
    config = server.ask("GET", "/v1/queues/jobs").json["config"]
    assert (config["order"], config["heap_mode"], config["partitions"], config["top_k"]) == ("heap", "min", 4, 8)
    assert refused(server, "POST", "/v1/heaps", HEAP) == ABORTED
    done(server, "POST", "/v1/heaps", {"topic": "maximum", "mode": "MAX"})
    assert server.ask("GET", "/v1/queues/maximum").json["config"]["heap_mode"] == "max"


def test_delete_heap(server):
    done(server, "POST", "/v1/heaps", HEAP)
    enqueue(server)
    assert refused(server, "DELETE", "/v1/heaps/jobs") == INVALID_ARGUMENT
    assert refused(server, "DELETE", "/v1/heaps/jobs?force=true") == ABORTED
    (detail,) = server.ask("DELETE", "/v1/heaps/jobs?force=true").json["details"]
    assert detail["would_lose"]["messages"] == 1
    token = detail["confirmation_token"]
    assert refused(server, "DELETE", f"/v1/heaps/jobs?confirmation_token={token}") == INVALID_ARGUMENT
    assert done(server, "DELETE", f"/v1/heaps/jobs?force=true&confirmation_token={token}") == {}
    assert refused(server, "DELETE", "/v1/heaps/jobs?force=true") == NOT_FOUND


def test_update_heap(server):
    done(server, "POST", "/v1/heaps", HEAP)
    changes = {
        "visibility_timeout_default": "1.500s",
        "max_retries_default": 7,
        "retention_time": "86400s",
        "max_payload_bytes": "1024",
        "dlq_policy": {"enabled": True},
    }
    assert done(server, "PATCH", "/v1/heaps/jobs", changes) == {}
    (heap,) = done(server, "GET", "/v1/heaps")["heaps"]
    assert {name: heap[name] for name in changes} == {
        **changes,
        "dlq_policy": {"enabled": True, "retention_time": "86400s"},
    }
    assert (heap["K"], heap["partitions"]) == (8, 4), "what is not named stays"


def test_update_asks_before_dead_letters_go_sooner(server):
    done(server, "POST", "/v1/heaps", HEAP)
    enqueue(server)
    (message,) = server.lease("jobs", max=1)
    server.ask("POST", "/v1/reject", {"receipts": [message["receipt"]]})
    changes = {"retention_time": "3600s"}
    answer = server.ask("PATCH", "/v1/heaps/jobs", changes)
    assert (answer.status, answer.json["status"]) == (409, "ABORTED")
    (detail,) = answer.json["details"]
    token = detail["confirmation_token"]
    assert done(server, "PATCH", f"/v1/heaps/jobs?confirmation_token={token}", changes) == {}


def test_list_heaps(server):
    done(server, "POST", "/v1/heaps", HEAP)
    server.ask("PUT", "/v1/queues/fifo", {})
    server.ask("PUT", "/v1/queues/email/high", {"order": "heap"})
    heaps = done(server, "GET", "/v1/heaps")["heaps"]
    assert [heap["topic"] for heap in heaps] == ["jobs", "email/default/high"]
    assert {"topic": "jobs", "mode": "MIN", "partitions": 4, "K": 8, "compression": False}.items() <= heaps[0].items()


def test_stats(server):
    done(server, "POST", "/v1/heaps", HEAP)
    done(server, "POST", "/v1/heaps", {"topic": "other"})
    enqueue(server)
    enqueue(server)
    done(server, "POST", "/v1/ack", leased(server))
    leased(server)
    stats = done(server, "GET", "/v1/stats")
    jobs = stats["topic_stats"]["jobs"]
    assert (jobs["total_messages"], jobs["inflight_messages"], jobs["total_enqueues"]) == ("1", "1", "2")
    assert (jobs["total_pops"], jobs["total_acks"]) == ("2", "1")
    assert stats["global_stats"] == jobs and set(stats["topic_stats"]) == {"jobs", "other"}
    assert set(done(server, "GET", "/v1/stats?topic=other")["topic_stats"]) == {"other"}
    # The same path with a queue is the native operation.
    assert server.ask("GET", "/v1/stats?queue=jobs").json["depth"] == 1
    assert server.ask("GET", "/v1/stats?queue=jobs&topic=jobs").status == 400


# -- messages -----------------------------------------------------------------------------------------------------


def test_enqueue(server):
    done(server, "POST", "/v1/heaps", HEAP)
    reply = enqueue(server, "work", priority=5, partition_key="user-42", max_retries=1)
    assert re.fullmatch(ULID, reply["message_id"]) and reply["duplicate"] is False
    enqueue(server, "urgent", priority="-9223372036854775808")
    first, second = server.lease("jobs")
    assert (first["payload_b64"], first["priority"]) == (b64("urgent"), -(2**63))
    assert (second["id"], second["key"], second["payload_b64"]) == (reply["message_id"], "user-42", b64("work"))


def test_payloads_in_both_base64_alphabets_and_json(server):
    done(server, "POST", "/v1/heaps", HEAP)
    for text in ("+/+/", "-_-_", "-_8", "-_8="):
        done(server, "POST", "/v1/enqueue", {"topic": "jobs", "payload": text})
    assert [each["payload_b64"] for each in server.lease("jobs")] == ["+/+/", "+/+/", "+/8=", "+/8="]
    enqueue(server, '{"a": 1}', json=True)
    assert server.lease("jobs")[0]["payload"] == {"a": 1}
    body = {"topic": "jobs", "payload": b64("{"), "json": True}
    assert refused(server, "POST", "/v1/enqueue", body) == INVALID_ARGUMENT


def test_producer_sequence_numbers(server):
    done(server, "POST", "/v1/heaps", HEAP)
    numbered = {"producer_id": "billing-1", "epoch": 3, "seq": 17}
    first = enqueue(server, **numbered)
    assert enqueue(server, "again", **numbered) == {**first, "duplicate": True}
    assert enqueue(server, **{**numbered, "seq": "18"})["duplicate"] is False
    enqueue(server, **{**numbered, "epoch": 4, "seq": 0})
    body = {"topic": "jobs", "payload": "", **numbered, "seq": 19}
    assert refused(server, "POST", "/v1/enqueue", body) == FAILED_PRECONDITION


def test_enqueue_batch(server):
    done(server, "POST", "/v1/heaps", HEAP)
    done(server, "POST", "/v1/heaps", {"topic": "other"})
    numbered = {"topic": "jobs", "payload": b64("x"), "producer_id": "p", "epoch": 1}
    batch = {"requests": [{**numbered, "seq": seq} for seq in (1, 2, 3)]}
    reply = done(server, "POST", "/v1/enqueue:batch", batch)
    assert [each["duplicate"] for each in reply["responses"]] == [False, False, False]
    again = done(server, "POST", "/v1/enqueue:batch", batch)
    assert again["all_duplicates"] is True
    assert [each["message_id"] for each in again["responses"]] == [each["message_id"] for each in reply["responses"]]
    over_two = {"requests": [{"topic": "jobs", "payload": ""}, {"topic": "other", "payload": ""}]}
    assert len(done(server, "POST", "/v1/enqueue:batch", over_two)["responses"]) == 2
    # All or nothing.
    broken = {"requests": [{"topic": "other", "payload": ""}, {"topic": "missing", "payload": ""}]}
    assert refused(server, "POST", "/v1/enqueue:batch", broken) == NOT_FOUND
    gap = {"requests": [{**numbered, "seq": seq} for seq in (4, 6)]}
    assert refused(server, "POST", "/v1/enqueue:batch", gap) == INVALID_ARGUMENT
    stats = done(server, "GET", "/v1/stats")["topic_stats"]
    assert (stats["jobs"]["total_messages"], stats["other"]["total_messages"]) == ("4", "1")


def test_not_before(server):
    done(server, "POST", "/v1/heaps", HEAP)
    enqueue(server, "later", not_before="0.3s")
    assert server.lease("jobs") == []
    assert server.lease("jobs", wait_ms=30_000)[0]["payload_b64"] == b64("later")


def test_ack(server):
    done(server, "POST", "/v1/heaps", HEAP)
    enqueue(server)
    enqueue(server)
    first, second = leased(server), leased(server)
    mixed_up = {**first, "message_id": second["message_id"]}
    assert refused(server, "POST", "/v1/ack", mixed_up) == FAILED_PRECONDITION
    assert done(server, "POST", "/v1/ack", first) == {}
    assert refused(server, "POST", "/v1/ack", first) == FAILED_PRECONDITION
    # The same path with receipts is the native operation; with both the request is refused.
    receipt = second["lease_token"]
    both = server.ask("POST", "/v1/ack", {**second, "receipts": [receipt]})
    assert (both.status, both.json["error"]["code"]) == (400, "invalid_request")
    native = server.ask("POST", "/v1/ack", {"receipts": [receipt]})
    assert native.json == {"results": [{"receipt": receipt, "status": "acked"}]}


def test_nack(server):
    done(server, "POST", "/v1/heaps", {**HEAP, "max_retries_default": 1})
    enqueue(server)
    assert done(server, "POST", "/v1/nack", {**leased(server), "backoff_override": "0.1s"}) == {}
    again = leased(server, wait_ms=30_000)
    assert done(server, "POST", "/v1/nack", {**again, "reason": "broken"}) == {}
    assert refused(server, "POST", "/v1/nack", again) == FAILED_PRECONDITION
    assert done(server, "GET", "/v1/stats")["topic_stats"]["jobs"]["dlq_messages"] == "1"
    assert server.ask("GET", "/v1/dlq?queue=jobs").json["messages"][0]["error"] == "broken"


def test_extend(server):
    done(server, "POST", "/v1/heaps", HEAP)
    enqueue(server)
    lease = leased(server)
    body = {"topic": "jobs", "lease_token": lease["lease_token"], "extension": "30s"}
    assert done(server, "POST", "/v1/extend", body) == {}
    assert refused(server, "POST", "/v1/extend", {**body, "lease_token": "unknown"}) == FAILED_PRECONDITION
    a_range = {**body, "lease_token": f"{lease['lease_token']}-9"}
    assert refused(server, "POST", "/v1/extend", a_range) == FAILED_PRECONDITION
    assert refused(server, "POST", "/v1/extend", {**body, "extension": "86400s"}) == INVALID_ARGUMENT


def test_peek(server):
    done(server, "POST", "/v1/heaps", HEAP)
    for priority in (3, 1, 2):
        enqueue(server, f"p{priority}", priority=priority)
    found = done(server, "GET", "/v1/peek?topic=jobs&limit=2")
    assert [(item["priority"], item["payload"]) for item in found["items"]] == [("1", b64("p1")), ("2", b64("p2"))]
    assert found["has_more"] is True and found["items"][0]["topic"] == "jobs"
    assert len(done(server, "GET", "/v1/peek?topic=jobs")["items"]) == 3
    leased(server)
    left = done(server, "GET", "/v1/peek?topic=jobs")
    assert ([item["priority"] for item in left["items"]], left["has_more"]) == (["2", "3"], False)
    assert len(server.ask("GET", "/v1/peek?queue=jobs").json["messages"]) == 2, (
        "the same path with a queue is the native operation"
    )
    assert server.ask("GET", "/v1/peek?queue=jobs&topic=jobs").status == 400
    assert server.ask("GET", "/v1/peek").status == 400


def test_missing(server):
    server.ask("PUT", "/v1/queues/fifo", {})
    lease = {"message_id": "x", "lease_token": "y"}
    for topic in ("nothing", "fifo"):
        assert refused(server, "POST", "/v1/enqueue", {"topic": topic, "payload": ""}) == NOT_FOUND
        assert refused(server, "POST", "/v1/ack", {"topic": topic, **lease}) == NOT_FOUND
        assert refused(server, "PATCH", f"/v1/heaps/{topic}", {}) == NOT_FOUND
        assert refused(server, "GET", f"/v1/peek?topic={topic}") == NOT_FOUND
        assert refused(server, "GET", f"/v1/stats?topic={topic}") == NOT_FOUND


REFUSED = [
    ("POST", "/v1/heaps", b"{", "not JSON"),
    ("POST", "/v1/heaps", {}, "no topic"),
    ("POST", "/v1/heaps", {"topic": "Jobs!"}, "other letters"),
    ("POST", "/v1/heaps", {"topic": "t", "mode": "MEDIAN"}, "no such mode"),
    ("POST", "/v1/heaps", {"topic": "t", "rf": 4}, "too many replicas"),
    ("POST", "/v1/heaps", {"topic": "t", "K": 8, "top_k_bound": 9}, "two values for one thing"),
    ("POST", "/v1/heaps", {"topic": "t", "partitions": 1000}, "too many partitions"),
    ("POST", "/v1/heaps", {"topic": "t", "visibility_timeout_default": "1m"}, "not a duration"),
    ("POST", "/v1/heaps", {"topic": "t", "visibility_timeout_default": 30}, "a number without a unit"),
    ("POST", "/v1/heaps", {"topic": "t", "compression": True}, "not supported"),
    ("POST", "/v1/heaps", {"topic": "t", "order": "fifo"}, "unknown field"),
    ("PATCH", "/v1/heaps/jobs", {"mode": "MAX"}, "cannot change"),
    ("POST", "/v1/enqueue", {"topic": "jobs", "payload": "*"}, "not base64"),
    ("POST", "/v1/enqueue", {"topic": "jobs", "payload": "YQ", "not_before": "-1s"}, "negative"),
    ("POST", "/v1/enqueue", {"topic": "jobs", "priority": 2**63}, "too large a number"),
    ("POST", "/v1/enqueue", {"topic": "jobs", "priority": "high"}, "not a number"),
    ("POST", "/v1/enqueue", {"topic": "jobs", "seq": 1}, "a number without a producer"),
    ("POST", "/v1/enqueue:batch", {"requests": []}, "nothing"),
    ("POST", "/v1/ack", {"topic": "jobs", "message_id": "x"}, "no token"),
    ("POST", "/v1/nack", {"topic": "jobs", "message_id": "x", "lease_token": "x", "backoff_override": 5}, "no unit"),
    ("POST", "/v1/extend", {"topic": "jobs", "lease_token": "x"}, "no extension"),
    ("GET", "/v1/peek?topic=jobs&limit=0", None, "none"),
    ("GET", "/v1/peek?topic=jobs&limit=1000", None, "too many"),
    ("GET", "/v1/heaps?page=2", None, "unknown parameter"),
]


def test_invalid_requests_are_refused_and_change_nothing(server):
    done(server, "POST", "/v1/heaps", HEAP)
    before = server.ask("GET", "/v1/queues").json
    for method, target, body, why in REFUSED:
        assert refused(server, method, target, body) == INVALID_ARGUMENT, why
    large = {"topic": "jobs", "payload": "A" * (4 << 19)}
    answer = server.ask("POST", "/v1/enqueue", large)
    assert (answer.status, answer.json["status"]) == (413, "INVALID_ARGUMENT")
    assert server.ask("POST", "/v1/ack", {}).json["error"]["code"] == "invalid_request"
    assert server.ask("GET", "/v1/enqueue").status == 405
    assert server.ask("GET", "/v1/queues").json == before


def test_native_operations_still_work(server):
    server.publish("orders", {"order": 1})
    (message,) = server.lease("orders")
    assert server.ask("POST", "/v1/extend", {"receipts": [message["receipt"]], "lease_ms": 1000}).status == 200
    answer = server.ask("POST", "/v1/nack", {"receipts": [message["receipt"]], "delay_ms": 0})
    assert answer.json["results"][0]["status"] == "retrying"
