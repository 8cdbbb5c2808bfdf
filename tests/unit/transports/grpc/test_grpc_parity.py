"""An invalid request gets the same error code and text over HTTP and gRPC."""

# ruff: noqa: E501  a table reads best as one

from __future__ import annotations

from typing import Any

import pytest
from grpc_served import Refused, Served, refusal, run
from http_fake import Http

from penstock import errors
from penstock.batch import build, layout
from penstock.clock import SystemClock
from penstock.errors import DiskFull, Forbidden, QueueFull, RateLimited, Unauthenticated, Unavailable
from penstock.transports.http import HttpApp
from penstock.v1 import broker_pb2 as pb
from penstock.wire.status import STATUS

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
STALE = "r1.0.1.00000000000000ff.0"


class Ask:
    """The same request for HTTP and for gRPC."""

    def __init__(self, call: str, message: Any, method: str, target: str, body: Any = None, *, same_text: bool = True):
        self.call, self.message = call, message
        self.method, self.target, self.body = method, target, body
        self.same_text = same_text

    def __repr__(self) -> str:
        return f"{self.call} {self.body if self.body is not None else self.target}"[:60]


def publish(message: pb.NewMessage, body: dict[str, Any], *, same_text: bool = True) -> Ask:
    return Ask(
        "Publish",
        pb.PublishRequest(queue="orders", messages=[message]),
        "POST",
        "/v1/publish",
        {"queue": "orders", "messages": [body]},
        same_text=same_text,
    )


DEEP = "[" * 40 + "]" * 40
BROKEN: dict[str, list[Ask]] = {
    "invalid_request": [
        Ask("Lease", pb.LeaseRequest(queue="No!"), "POST", "/v1/lease", {"queue": "No!"}),
        Ask("Lease", pb.LeaseRequest(), "POST", "/v1/lease", {}),
        Ask("Lease", pb.LeaseRequest(queue="q", scope="s"), "POST", "/v1/lease", {"queue": "q", "scope": "s"}),
        Ask("Lease", pb.LeaseRequest(scope="a/b/c"), "POST", "/v1/lease", {"scope": "a/b/c"}),
        Ask("Lease", pb.LeaseRequest(queue="q", max=0), "POST", "/v1/lease", {"queue": "q", "max": 0}),
        Ask("Lease", pb.LeaseRequest(queue="q", max=10_001), "POST", "/v1/lease", {"queue": "q", "max": 10_001}),
        Ask("Lease", pb.LeaseRequest(queue="q", wait_ms=60_001), "POST", "/v1/lease", {"queue": "q", "wait_ms": 60_001}),
        Ask("Lease", pb.LeaseRequest(queue="q", wait_ms=-1), "POST", "/v1/lease", {"queue": "q", "wait_ms": -1}),
        Ask("Lease", pb.LeaseRequest(queue="q", lease_ms=1), "POST", "/v1/lease", {"queue": "q", "lease_ms": 1}),
        Ask("Lease", pb.LeaseRequest(queue="q", group="-"), "POST", "/v1/lease", {"queue": "q", "group": "-"}),
        Ask("Lease", pb.LeaseRequest(queue="q", consumer="x" * 129), "POST", "/v1/lease",
            {"queue": "q", "consumer": "x" * 129}),
        Ask("Lease", pb.LeaseRequest(queue="q", member="m"), "POST", "/v1/lease", {"queue": "q", "member": "m"}),
        Ask("Lease", pb.LeaseRequest(queue="q", ack=["x" * 257]), "POST", "/v1/lease", {"queue": "q", "ack": ["x" * 257]}),
        publish(pb.NewMessage(), {}),
        publish(pb.NewMessage(json="1", key=""), {"payload": 1, "key": ""}),
        publish(pb.NewMessage(json="1", key="k" * 257), {"payload": 1, "key": "k" * 257}),
        publish(pb.NewMessage(json="1", key="é" * 200), {"payload": 1, "key": "é" * 200}),
        publish(pb.NewMessage(json="1", delay_ms=-1), {"payload": 1, "delay_ms": -1}),
        publish(pb.NewMessage(json="1", delay_ms=1, deliver_at_ms=1), {"payload": 1, "delay_ms": 1, "deliver_at_ms": 1}),
        publish(pb.NewMessage(json="1", ttl_ms=0), {"payload": 1, "ttl_ms": 0}),
        publish(pb.NewMessage(json="1", max_retries=-1), {"payload": 1, "max_retries": -1}),
        publish(pb.NewMessage(json="1", queue="A!"), {"payload": 1, "queue": "A!"}),
        publish(pb.NewMessage(json="1", id="i" * 129), {"payload": 1, "id": "i" * 129}),
        publish(pb.NewMessage(json="1", headers={str(n): "" for n in range(65)}),
                {"payload": 1, "headers": {str(n): "" for n in range(65)}}),
        publish(pb.NewMessage(json=DEEP), {"payload": eval(DEEP)}, same_text=False),
        Ask("Publish", pb.PublishRequest(messages=[pb.NewMessage(json="1")]), "POST", "/v1/publish",
            {"messages": [{"payload": 1}]}),
        Ask("Publish", pb.PublishRequest(queue="q"), "POST", "/v1/publish", {"queue": "q", "messages": []},
            same_text=False),
        Ask("Publish", pb.PublishRequest(queue="q", producer=pb.Producer(), messages=[pb.NewMessage(json="1")]), "POST",
            "/v1/publish", {"queue": "q", "producer": {"id": "", "epoch": 0, "seq": 0}, "messages": [{"payload": 1}]},
            same_text=False),
        Ask("Publish", pb.PublishRequest(queue="q", batch=b"garbage"), "POST", "/v1/publish?queue=q", b"garbage"),
        Ask("Publish", pb.PublishRequest(queue="q", batch=build([b"1"], columns={layout.DELAY_MS: [-5]})), "POST",
            "/v1/publish?queue=q", build([b"1"], columns={layout.DELAY_MS: [-5]})),
        Ask("Publish", pb.PublishRequest(batch=build([b"1"])), "POST", "/v1/publish", build([b"1"])),
        Ask("Nack", pb.NackRequest(receipts=["x"], delay_ms=-1), "POST", "/v1/nack", {"receipts": ["x"], "delay_ms": -1}),
        Ask("Extend", pb.ExtendRequest(receipts=["x"]), "POST", "/v1/extend", {"receipts": ["x"]}),
        Ask("Extend", pb.ExtendRequest(receipts=["x"], lease_ms=99), "POST", "/v1/extend",
            {"receipts": ["x"], "lease_ms": 99}),
        Ask("Ack", pb.AckRequest(receipts=["x"] * 10_001), "POST", "/v1/ack", {"receipts": ["x"] * 10_001}),
        Ask("Transact", pb.TransactRequest(), "POST", "/v1/transact", {}),
        Ask("Cancel", pb.CancelRequest(queue="q"), "POST", "/v1/cancel", {"queue": "q"}),
        Ask("Cancel", pb.CancelRequest(queue="orders", ids=[""]), "POST", "/v1/cancel", {"queue": "orders", "ids": [""]}),
        Ask("Reschedule", pb.RescheduleRequest(queue="q", key="k"), "POST", "/v1/reschedule", {"queue": "q", "key": "k"}),
        Ask("JoinGroup", pb.JoinGroupRequest(queue="orders", session_ms=1), "POST", "/v1/groups/join",
            {"queue": "orders", "session_ms": 1}),
        Ask("Heartbeat", pb.HeartbeatRequest(queue="orders", member="m"), "POST", "/v1/groups/heartbeat",
            {"queue": "orders", "member": "m", "generation": 0}),
        Ask("LeaveGroup", pb.LeaveGroupRequest(queue="orders", member="-"), "POST", "/v1/groups/leave",
            {"queue": "orders", "member": "-"}),
        Ask("Read", pb.ReadRequest(queue="orders", offset="soon"), "GET", "/v1/read?queue=orders&offset=soon"),
        Ask("Read", pb.ReadRequest(queue="orders", partition=7), "GET", "/v1/read?queue=orders&partition=7"),
        Ask("Read", pb.ReadRequest(queue="orders", offset="kept"), "GET", "/v1/read?queue=orders&offset=kept"),
        Ask("KeepOffsets", pb.KeepOffsetsRequest(queue="orders", client_id="c", offsets={"x": 1}), "POST", "/v1/offsets",
            {"queue": "orders", "client_id": "c", "offsets": {"x": 1}}),
        Ask("KeepOffsets", pb.KeepOffsetsRequest(queue="orders", client_id="-", offsets={"0": 1}), "POST", "/v1/offsets",
            {"queue": "orders", "client_id": "-", "offsets": {"0": 1}}),
        Ask("Peek", pb.PeekRequest(queue="orders", max=1_001), "GET", "/v1/peek?queue=orders&max=1001"),
        Ask("Explain", pb.ExplainRequest(queue="orders", id="x" * 129), "GET", f"/v1/explain?queue=orders&id={'x' * 129}"),
        Ask("History", pb.HistoryRequest(queue="orders", id=""), "GET", "/v1/history?queue=orders&id="),
        Ask("Autoscale", pb.AutoscaleRequest(queue="orders", min_workers=2, max_workers=1), "GET",
            "/v1/autoscale?queue=orders&min_workers=2&max_workers=1"),
        Ask("ListQueues", pb.ListQueuesRequest(limit=501), "GET", "/v1/queues?limit=501"),
        Ask("ListQueues", pb.ListQueuesRequest(page=0), "GET", "/v1/queues?page=0"),
        Ask("PutQueue", pb.PutQueueRequest(queue="new", config=pb.QueueConfig(order="random")), "PUT", "/v1/queues/new",
            {"order": "random"}),
        Ask("PutQueue", pb.PutQueueRequest(queue="new", config=pb.QueueConfig(partitions=257)), "PUT", "/v1/queues/new",
            {"partitions": 257}),
        Ask("PutQueue", pb.PutQueueRequest(queue="new", config=pb.QueueConfig(backoff=pb.Backoff(base_ms=-1))), "PUT",
            "/v1/queues/new", {"backoff": {"base_ms": -1}}),
        Ask("PatchQueue", pb.PatchQueueRequest(queue="orders", reset=["lease_ms"]), "PATCH", "/v1/queues/orders",
            {"lease_ms": None}),
        Ask("DeadLetters", pb.DeadLettersRequest(queue="orders", filter="nonsense !"), "GET",
            "/v1/dlq?queue=orders&filter=nonsense%20!"),
        Ask("Redrive", pb.RedriveRequest(queue="orders"), "POST", "/v1/dlq/redrive", {"queue": "orders"}),
        Ask("Redrive", pb.RedriveRequest(queue="orders", filter="", rate_per_s=0), "POST", "/v1/dlq/redrive",
            {"queue": "orders", "filter": "", "rate_per_s": 0}),
        Ask("DeleteDeadLetters", pb.DeleteDeadLettersRequest(queue="orders", ids=[ULID], filter="x"), "POST",
            "/v1/dlq/delete", {"queue": "orders", "ids": [ULID], "filter": "x"}),
        Ask("PutSchedule", pb.PutScheduleRequest(name="s", queue="q", cron="x", message=pb.ScheduleMessage(json="1")),
            "PUT", "/v1/schedules/s", {"queue": "q", "cron": "x", "message": {"payload": 1}}),
        Ask("GetSchedule", pb.ScheduleNameRequest(name="-"), "GET", "/v1/schedules/-"),
    ],
    "queue_not_found": [
        Ask("Lease", pb.LeaseRequest(queue="none"), "POST", "/v1/lease", {"queue": "none"}),
        Ask("Stats", pb.StatsRequest(queue="none"), "GET", "/v1/stats?queue=none"),
        Ask("Groups", pb.GroupsRequest(queue="none"), "GET", "/v1/groups?queue=none"),
        Ask("GetQueue", pb.GetQueueRequest(queue="none"), "GET", "/v1/queues/none"),
        Ask("PatchQueue", pb.PatchQueueRequest(queue="none"), "PATCH", "/v1/queues/none", {}),
        Ask("DeleteQueue", pb.DestroyRequest(queue="none"), "DELETE", "/v1/queues/none"),
        Ask("Read", pb.ReadRequest(queue="none"), "GET", "/v1/read?queue=none"),
        Ask("Peek", pb.PeekRequest(queue="none"), "GET", "/v1/peek?queue=none"),
        Ask("DeadLetters", pb.DeadLettersRequest(queue="none"), "GET", "/v1/dlq?queue=none"),
        Ask("Cancel", pb.CancelRequest(queue="none", key="k"), "POST", "/v1/cancel", {"queue": "none", "key": "k"}),
    ],
    "not_found": [
        Ask("GetSchedule", pb.ScheduleNameRequest(name="none"), "GET", "/v1/schedules/none"),
        Ask("PauseSchedule", pb.ScheduleNameRequest(name="none"), "POST", "/v1/schedules/none/pause"),
        Ask("StopRedrive", pb.StopRedriveRequest(queue="orders", redrive_id="none"), "POST", "/v1/dlq/redrive/stop",
            {"queue": "orders", "redrive_id": "none"}),
    ],
    "conflict": [
        Ask("DeleteQueue", pb.DestroyRequest(queue="orders"), "DELETE", "/v1/queues/orders"),
        Ask("PurgeQueue", pb.DestroyRequest(queue="orders", confirm="wrong"), "POST", "/v1/queues/orders/purge?confirm=wrong"),
        Ask("PatchQueue", pb.PatchQueueRequest(queue="orders", config=pb.QueueConfig(order="heap")), "PATCH",
            "/v1/queues/orders", {"order": "heap"}),
    ],
    "stale_receipt": [
        Ask("Transact", pb.TransactRequest(ack=[STALE]), "POST", "/v1/transact", {"ack": [STALE]}),
    ],
    "fenced_producer": [
        Ask("Publish", pb.PublishRequest(queue="orders", producer=pb.Producer(id="p", epoch=1, seq=5),
            messages=[pb.NewMessage(json="1")]), "POST", "/v1/publish",
            {"queue": "orders", "producer": {"id": "p", "epoch": 1, "seq": 5}, "messages": [{"payload": 1}]}),
    ],
    "unknown_member": [
        Ask("Heartbeat", pb.HeartbeatRequest(queue="orders", member="unknown", generation=1), "POST",
            "/v1/groups/heartbeat", {"queue": "orders", "member": "unknown", "generation": 1}),
    ],
    "stale_generation": [
        Ask("Lease", pb.LeaseRequest(queue="orders", group="g", member="m", generation=99), "POST", "/v1/lease",
            {"queue": "orders", "group": "g", "member": "m", "generation": 99}),
    ],
    "too_large": [
        Ask("Publish", pb.PublishRequest(queue="small", messages=[pb.NewMessage(json='"12345678"')]), "POST",
            "/v1/publish", {"queue": "small", "messages": [{"payload": "12345678"}]}),
        Ask("PutQueue", pb.PutQueueRequest(queue="q", config=pb.QueueConfig(order="x" * 70_000)), "PUT", "/v1/queues/q",
            {"order": "x" * 70_000}),
        Ask("Publish", pb.PublishRequest(queue="q", batch=b"x" * (13 << 20)), "POST", "/v1/publish?queue=q", b"x" * (13 << 20)),
    ],
    "queue_full": [
        Ask("Publish", pb.PublishRequest(queue="full", messages=[pb.NewMessage(json="1")]), "POST", "/v1/publish",
            {"queue": "full", "messages": [{"payload": 1}]}),
    ],
}  # fmt: skip


def cases():
    return [
        pytest.param(code, ask, id=f"{code}-{number}-{ask.call}")
        for code, asks in BROKEN.items()
        for number, ask in enumerate(asks)
    ]


async def both(here: Served, ask: Ask) -> tuple[Refused, dict[str, Any], int]:
    refused = await refusal(getattr(here.stub, ask.call)(ask.message))
    http = Http()
    http.app = HttpApp(here.broker, SystemClock())
    headers = {"content-type": "application/vnd.penstock.batch"} if isinstance(ask.body, bytes) else None
    answer = await http.ask(ask.method, ask.target, ask.body, headers=headers)
    assert answer is not None
    return refused, answer.error, answer.status


async def prepare(here: Served) -> None:
    await here.publish("orders", b"1")
    await here.stub.PutQueue(pb.PutQueueRequest(queue="small", config=pb.QueueConfig(max_payload_bytes=4)))
    await here.stub.PutQueue(pb.PutQueueRequest(queue="full", config=pb.QueueConfig(max_messages=1)))
    await here.publish("full", b"1")
    await here.stub.Publish(
        pb.PublishRequest(
            queue="orders", producer=pb.Producer(id="p", epoch=2, seq=0), messages=[pb.NewMessage(json="1")]
        )
    )
    await here.stub.JoinGroup(pb.JoinGroupRequest(queue="orders", group="g", member="m"))


@pytest.mark.parametrize(("code", "ask"), cases())
def test_http_and_grpc_refuse_alike(code, ask):
    async def story(here):
        await prepare(here)
        before = await here.broker.stats.summary()
        refused, error, status = await both(here, ask)
        assert (refused.code, error["code"]) == (code, code)
        assert (refused.status, status) == (STATUS[code].grpc, STATUS[code].http)
        assert refused.error.retryable == error["retryable"]
        assert "ErrorInfo" in refused.kinds
        if ask.same_text:
            assert refused.text == error["message"]
            assert set(refused.details) == set(error["details"])
        after = await here.broker.stats.summary()
        assert {**after, "waiting_consumers": 0} == {**before, "waiting_consumers": 0}, (
            "a refusal has changed something"
        )

    run(story)


@pytest.mark.parametrize("kind", errors.BY_CODE.values(), ids=lambda kind: kind.__name__)
def test_every_error_code_reaches_the_client(kind, monkeypatch):
    """Includes errors that the broker does not raise yet, with any text."""

    async def story(here):
        failure = kind("why – and how", details={"n": 3, "list": ["a"], "none": None}, retry_after_ms=1_500)
        monkeypatch.setattr(here.broker.stats, "queue", raiser(failure))
        refused = await refusal(here.stub.Stats(pb.StatsRequest(queue="orders")))
        assert (refused.status, refused.code, refused.text) == (STATUS[kind.code].grpc, kind.code, "why – and how")
        assert refused.details == {"n": 3, "list": ["a"], "none": None}
        assert (refused.error.retryable, refused.error.retry_after_ms) == (kind.retryable, 1_500)
        assert refused.kinds == ["ErrorInfo", "Error", "RetryInfo"]

    run(story)


def raiser(failure):
    def fail(*_, **__):
        raise failure

    return fail


def test_retryable_statuses_are_those_that_grpc_clients_retry():
    retryable = {STATUS[kind.code].grpc for kind in (Unavailable, RateLimited, QueueFull, DiskFull)}
    assert retryable == {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
    assert STATUS[Unauthenticated.code].grpc == "UNAUTHENTICATED" and STATUS[Forbidden.code].grpc == "PERMISSION_DENIED"


def test_crash_is_internal_without_details(monkeypatch):
    async def story(here):
        monkeypatch.setattr(here.broker.stats, "queue", raiser(ValueError("secret")))
        refused = await refusal(here.stub.Stats(pb.StatsRequest(queue="orders")))
        assert (refused.status, refused.code) == ("INTERNAL", "internal") and "secret" not in refused.text

    run(story)


def test_large_error_fits_into_metadata():
    async def story(here):
        await here.publish("orders", b"1")
        refused = await refusal(
            here.stub.Transact(pb.TransactRequest(ack=["r1.0.1.00000000000000ff." + "9" * 200] * 300))
        )
        assert refused.code == "stale_receipt"
        refused = await refusal(here.stub.Lease(pb.LeaseRequest(queue="\U0001f40d" * 5_000)))
        assert refused.code == "invalid_request" and refused.details["field"] == "queue"

    run(story)
