"""Calls without I/O: targets and bodies as documented, answers read, errors typed, retries decided."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

import penstock
from penstock import errors
from penstock.batch import build
from penstock.client import Client
from penstock.client.calls import delivery
from penstock.client.calls.call import Response, error_of, operation
from penstock.client.calls.delivery import ProducerSeq, publish
from penstock.client.publish.published import Published, messages_of
from penstock.client.transport.retry import AnswerLost, RetryPolicy, RetryState, Unreachable, unreachable
from penstock.ids import parse_queue, ulid_text
from penstock.testing import MemoryBroker
from penstock.wire.delivery import LeaseMeta, Run, Settled, encode_delivery
from penstock.wire.replies import PublishedRun, PublishRunsReply, QueueReply
from penstock.wire.stats import StatsReply
from penstock.wire.status import STATUS

ORDERS = parse_queue("orders")


def answer(body: object, status: int = 200, **headers: str) -> Response:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(
        status, {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}, raw, True
    )


# -- requests ---------------------------------------------------------------------------------------------------


def test_a_publish_carries_the_frame_and_its_numbers():
    call = publish(ORDERS, b"frame", ProducerSeq("sdk 1", 2, 3))
    assert call.target == "/v1/publish?queue=default/default/orders&producer=sdk%201&epoch=2&seq=3"
    assert (call.method, call.body, call.content_type) == ("POST", b"frame", "application/vnd.penstock.batch")


def test_a_lease_asks_for_a_delivery_and_takes_acks_along():
    fields = {"queue": ORDERS, "max": 5, "wait_ms": 700, "ack": ["r1.0.1.f.2-9"]}
    call = delivery.lease(fields)
    assert msgspec.json.decode(call.body) == fields
    assert (call.accept, call.wait_ms) == ("application/vnd.penstock.batch", 700)


def test_a_read_names_where_to_start():
    call = delivery.read(ORDERS, partition=1, offset="at:5", max=10, wait_ms=0)
    assert call.target == "/v1/read?queue=default/default/orders&partition=1&offset=at:5&max=10&wait_ms=0"


@pytest.mark.parametrize(
    "make",
    [
        lambda queue: queue.cancel(),
        lambda queue: queue.cancel(ids=["a"], key="k"),
        lambda queue: queue.reschedule(ids=["a"]),
        lambda queue: queue.reschedule(ids=["a"], delay=1, deliver_at=1),
        lambda queue: queue.redrive(),
        lambda queue: queue.delete_dead_letters(filter="", ids=["a"]),
    ],
)
def test_ambiguous_requests_are_not_sent(make):
    with pytest.raises(errors.InvalidRequest):
        asyncio.run(make(Client().queue("orders")))


# -- answers ----------------------------------------------------------------------------------------------------


def test_messages_of_a_delivery_have_their_position():
    frame = build([b'{"n":1}', b"\x00"], kinds=[1, 0], columns={1 << 16: [b"k", b""], 1 << 18: [b'{"a":"b"}', b""]})
    run = Run(ORDERS, 3, 10, 2, ulid_text(77), 1_700_000_000_000, len(frame), 2, "r1.0.9.f.", 1)
    body = encode_delivery(LeaseMeta([run], [Settled("x", "acked")]), [frame])
    leased = delivery.lease({"queue": ORDERS}).result(answer(body))
    assert [result.status for result in leased.results] == ["acked"]
    (got,) = leased.runs
    assert (got.payloads(), got.id(1), got.spans()[0].receipt) == (
        [b'{"n":1}', b"\x00"],
        ulid_text(78),
        "r1.0.9.f.10-11",
    )


def test_peeked_messages_look_like_any_other():
    common = {"queue": ORDERS, "partition": 0, "published_at_ms": 5, "attempt": 1}
    body = {
        "messages": [
            {
                **common,
                "id": ulid_text(1),
                "offset": 1,
                "payload": {"a": 1},
                "key": "k",
                "priority": 4,
                "headers": {"h": "v"},
            },
            {
                **common,
                "id": ulid_text(2),
                "offset": 2,
                "payload_b64": "AAE=",
                "key": None,
                "priority": 0,
                "headers": {},
            },
        ]
    }
    first, second = delivery.peek(ORDERS, max=10, group="g").result(answer(body))
    assert (first.value, first.key, first.priority, first.headers, first.offset) == ({"a": 1}, "k", 4, {"h": "v"}, 1)
    assert (second.value, second.key, second.headers, second.id) == (b"\x00\x01", None, {}, ulid_text(2))


def test_published_messages_come_in_the_order_they_were_given():
    runs = [
        PublishedRun(ORDERS, 0, 5, 2, ulid_text(100), False, [0, 3]),
        PublishedRun(ORDERS, 1, 9, 1, ulid_text(200), True, [1]),
        PublishedRun(ORDERS, 2, 0, 1, ulid_text(300), False, [2]),
    ]
    published = Published([PublishRunsReply(runs, True)])
    assert [(m.partition, m.offset, m.duplicate) for m in published] == [
        (0, 5, False), (1, 9, True), (2, 0, False), (0, 6, False),
    ]  # fmt: skip
    assert published.ids == [ulid_text(n) for n in (100, 200, 300, 101)]
    assert (len(published), published.duplicates, published.durable) == (4, 1, True)
    assert messages_of(PublishRunsReply([PublishedRun(ORDERS, 0, 5, 2, ulid_text(7), False, None)], False))[1] == (
        ulid_text(8), ORDERS, 0, 6, False, False,
    )  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"nonsense", b"PD\x01\x00\xff\xff\xff\xff", b"[]", b'{"runs": 1}'])
def test_an_answer_that_cannot_be_read_is_an_error_not_a_crash(body):
    for call in (
        delivery.lease({"queue": ORDERS}),
        publish(ORDERS, b"", ProducerSeq("p", 1, 0)),
        delivery.settle("ack", ["x"]),
        operation("stats", StatsReply, queue=ORDERS)
        if body != b'{"runs": 1}'
        else delivery.peek(ORDERS, max=1, group="g"),
    ):
        with pytest.raises(errors.PenstockError, match="cannot be read"):
            call.result(answer(body))


def test_answers_of_a_later_version_are_read():
    with MemoryBroker() as broker, broker.sync_client() as client:
        body = msgspec.to_builtins(client.create_queue("orders", lease=7).config())
    body["config"] |= {"new_setting": {"a": 1}, "backoff": {"kind": "fixed", "new_field": 1}}
    read = operation("get_queue", QueueReply, queue=ORDERS).result(answer({**body, "new_field": True}))
    assert (read.config.lease_ms, read.config.backoff.kind) == (7_000, "fixed")


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", errors.BY_CODE)
def test_every_code_becomes_its_error(code):
    body = {"error": {"code": code, "message": "why", "retryable": True, "details": {"row": 3}}}
    error = error_of(answer(body, 400, retry_after="1.5"))
    assert type(error) is errors.BY_CODE[code]
    assert (error.message, error.details, error.retry_after_ms) == ("why", {"row": 3}, 1500)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (502, errors.Unavailable), (503, errors.Unavailable), (504, errors.Unavailable), (429, errors.RateLimited),
        (404, errors.NotFound), (401, errors.Unauthenticated), (400, errors.InvalidRequest), (500, errors.Internal),
        (599, errors.Internal), (418, errors.PenstockError), (302, errors.PenstockError),
    ],
)  # fmt: skip
def test_a_stranger_is_judged_by_its_status(status, kind):
    error = error_of(answer(b"<html>", status, retry_after="soon"))
    assert type(error) is kind and error.retry_after_ms is None and "not an answer of Penstock" in error.message


# -- retry ------------------------------------------------------------------------------------------------------


def test_retries_back_off_until_the_deadline():
    retry = RetryState(RetryPolicy(10.0))
    now, waits = 100.0, []
    while (delay := retry.delay_after(errors.Unavailable("x"), now, reached_before=True)) is not None:
        waits.append(delay)
        now += delay
    assert 100.0 < now < 110.0 and len(waits) > 5
    assert 0.025 <= waits[0] <= 0.05 and all(delay <= 2.0 for delay in waits) and waits[4] > waits[0]


def test_the_deadline_counts_from_the_first_failure_not_from_the_call():
    retry = RetryState(RetryPolicy(1.0))
    assert retry.delay_after(errors.Unavailable("x"), 5000.0, reached_before=True) is not None
    assert retry.delay_after(errors.Unavailable("x"), 5001.0, reached_before=True) is None


def test_retry_after_is_honoured_and_ends_the_retries_if_too_long():
    slow = errors.RateLimited("x", retry_after_ms=3000)
    assert RetryState(RetryPolicy(10.0)).delay_after(slow, 0.0, reached_before=True) == 3.0
    assert RetryState(RetryPolicy(1.0)).delay_after(slow, 0.0, reached_before=True) is None


@pytest.mark.parametrize(
    ("error", "again", "uncertain"),
    [
        (errors.InvalidRequest("x"), False, False),
        (errors.StaleReceipt("x"), False, False),
        (errors.PenstockError("x"), False, False),
        (Unreachable("x"), True, False),
        (errors.QueueFull("x"), True, False),
        (AnswerLost("x"), True, True),
        (errors.Unavailable("x"), True, True),
        (errors.DiskFull("x"), True, True),
    ],
)
def test_retryable_errors_and_their_uncertainty(error, again, uncertain):
    retry = RetryState(RetryPolicy(math.inf))
    assert (retry.delay_after(error, 0.0, reached_before=True) is not None) == again
    assert retry.uncertain == uncertain


def test_a_server_that_was_never_reached_is_reported_at_once():
    assert RetryState(RetryPolicy(30.0)).delay_after(Unreachable("x"), 0.0, reached_before=False) is None


def test_refused_connection_asks_if_the_server_runs():
    text = "cannot reach http://h:1: is `penstock serve` running?"
    assert str(unreachable("http://h:1", ConnectionRefusedError(111, "refused"))) == text
    assert str(unreachable("http://h:1", OSError("Multiple exceptions: [Errno 111] x, [Errno 111] y"))) == text
    assert "no route" in str(unreachable("http://h:1", OSError(113, "no route")))


@pytest.mark.parametrize("code", sorted(STATUS))
def test_every_code_of_the_status_table_is_raised_as_its_own_class(code):
    body = msgspec.json.encode({"error": {"code": code, "message": "m", "retryable": False, "details": {"a": 1}}})
    error = error_of(Response(STATUS[code].http, {b"retry-after": b"2"}, body, True))
    name = "".join(word.capitalize() for word in code.split("_"))
    assert type(error) is getattr(penstock, name) and error.code == code
    assert (error.message, error.details, error.retry_after_ms) == ("m", {"a": 1}, 2000)
