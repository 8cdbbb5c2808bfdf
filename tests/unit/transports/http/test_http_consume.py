"""Leasing, settling, reading and looking through the HTTP edge."""

from __future__ import annotations

import asyncio
import base64

import pytest
from http_fake import FIRST_ID, Http, ask
from msgspec.structs import replace
from patience import until

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.ids import ulid_text
from penstock.wire.delivery import LeaseMeta, ReadMeta, decode_delivery

ORDERS = "default/default/orders"
ACCEPT = {"accept": "application/vnd.penstock.batch"}


def run(story):
    return asyncio.run(story(Http()))


def test_a_lease_shows_every_message_with_its_payload_untouched():
    async def story(http):
        http.broker.stored[ORDERS] = [
            Batch.open(
                build(
                    [b'{"a":  1}', b"\x00\xff"],
                    kinds=[1, 0],
                    columns={
                        layout.KEY: [b"", 'k"é\n'.encode()],
                        layout.PRIORITY: [0, -9],
                        layout.HEADERS: [b'{"h": "v"}', b""],
                    },
                    checked=True,
                )
            ),
            Batch.open(build([b'"plain"'], checked=True)),
        ]
        asked = {"queue": "orders", "group": "g", "max": 10, "lease_ms": 5000, "consumer": "worker-7"}
        answer = await http.ask("POST", "/v1/lease", asked)
        assert answer.status == 200
        assert b'"payload":{"a":  1},' in answer.body
        same = {"queue": ORDERS, "partition": 0, "attempt": 1, "published_at_ms": 1_700_000_000_000,
                "deadline_at_ms": 1_700_000_030_000}  # fmt: skip
        prefix = "r1.0.7.00000000000000ff."
        assert answer.json == {
            "messages": [
                {"id": ulid_text(FIRST_ID), "receipt": f"{prefix}0", "offset": 0, "payload": {"a": 1}, "key": None,
                 "priority": 0, "headers": {"h": "v"}, **same},
                {"id": ulid_text(FIRST_ID + 1), "receipt": f"{prefix}1", "offset": 1, "key": 'k"é\n', "priority": -9,
                 "payload_b64": base64.b64encode(b"\x00\xff").decode(), "headers": {}, **same},
                {"id": ulid_text(FIRST_ID + 2), "receipt": f"{prefix}2", "offset": 2, "payload": "plain", "key": None,
                 "priority": 0, "headers": {}, **same},
            ]
        }  # fmt: skip
        assert http.broker.calls == [("lease", (ORDERS, "g", 10, 0, 5000, "worker-7", ()))]

    run(story)


@pytest.mark.parametrize(
    ("payload", "believed"),
    [
        (b"1", True), (b' {"a": [1]} ', True), ('"é"'.encode(), True), (b"[" * 32 + b"]" * 32, True),
        (b"", False), (b"1 2", False), (b"nope", False), (b'"\xff"', False), (b"[" * 33 + b"]" * 33, False),
        (b"[" * 100_000 + b"]" * 100_000, False), (b"1}", False),
    ],
)  # fmt: skip
def test_what_a_client_called_json_is_only_believed_after_a_look(payload, believed):
    async def story(http):
        http.broker.stored[ORDERS] = [Batch.open(build([payload, b"2"]))]
        answer = await http.ask("POST", "/v1/lease", {"queue": "orders", "max": 2})
        first, second = answer.json["messages"]
        assert ("payload" in first) is believed and second["payload"] == 2
        if not believed:
            assert base64.b64decode(first["payload_b64"]) == payload

    run(story)


def test_a_lease_without_receipts_says_so():
    async def story(http):
        http.broker.stored[ORDERS] = [Batch.open(build([b"1"], checked=True))]
        runs = http.broker._runs
        http.broker._runs = lambda *asked: [replace(run, receipt=None, deadline_at_ms=None) for run in runs(*asked)]
        (message,) = (await http.ask("POST", "/v1/lease", {"queue": "orders"})).json["messages"]
        assert (message["receipt"], message["deadline_at_ms"]) == (None, None)

    run(story)


def test_acks_ride_along_with_the_next_lease():
    async def story(http):
        http.broker.stored[ORDERS] = []
        answer = await http.ask("POST", "/v1/lease", {"queue": "orders", "ack": ["r1", "r2"]})
        results = [{"receipt": "r1", "status": "acked"}, {"receipt": "r2", "status": "acked"}]
        assert answer.json == {"messages": [], "results": results}
        assert (await http.ask("POST", "/v1/lease", {"queue": "orders", "ack": []})).json == {
            "messages": [],
            "results": [],
        }
        assert (await http.ask("POST", "/v1/lease", {"queue": "orders"})).json == {"messages": []}

    run(story)


def test_a_binary_lease_is_the_stored_frame():
    async def story(http):
        frame = build([b"1", b"2"], checked=True)
        http.broker.stored[ORDERS] = [Batch.open(frame)]
        answer = await http.ask("POST", "/v1/lease", {"queue": "orders", "max": 5, "ack": ["r"]}, headers=ACCEPT)
        assert answer.headers["content-type"] == "application/vnd.penstock.batch"
        meta, (batch,) = decode_delivery(answer.body, LeaseMeta)
        assert (batch.frame, meta.runs[0].receipt) == (frame, "r1.0.7.00000000000000ff.")
        assert meta.results[0].receipt == "r"

    run(story)


def test_a_long_poll_returns_as_soon_as_there_is_something():
    async def story(http):
        http.broker.stored[ORDERS] = []
        waiting = asyncio.create_task(
            http.ask("POST", "/v1/lease", {"queue": "orders", "wait_ms": 60_000, "max": 5, "ack": ["r"]})
        )
        await http.broker.parked.wait()
        await http.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 1}]})
        answer = await waiting
        assert [message["payload"] for message in answer.json["messages"]] == [1]
        assert answer.json["results"] == [{"receipt": "r", "status": "acked"}]
        leases = [what for name, what in http.broker.calls if name == "lease"]
        assert [(what[3], what[6]) for what in leases] == [(60_000, ("r",))]

    run(story)


def test_a_cancelled_request_ends_its_wait():
    async def story(http):
        http.broker.stored[ORDERS] = []
        asking = asyncio.create_task(http.ask("POST", "/v1/lease", {"queue": "orders", "wait_ms": 60_000}))
        await http.broker.parked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: http.broker.cancelled)

    run(story)


def test_a_client_that_goes_away_ends_its_read():
    async def story(http):
        http.broker.stored[ORDERS] = []
        asked = "/v1/read?queue=orders&wait_ms=60000"
        assert await http.ask("GET", asked, then=http.broker.parked.wait) is None
        assert http.broker.cancelled

    run(story)


def test_reading_by_offset():
    async def story(http):
        http.broker.stored[ORDERS] = [Batch.open(build([b"1", b"[2]"], checked=True))]
        answer = await http.ask("GET", "/v1/read?queue=orders&partition=3&offset=at:17&max=7")
        assert http.broker.calls == [("read", (ORDERS, 3, "at:17", 7, 0))]
        assert (answer.json["next_offset"], answer.json["end_offset"], answer.json["start_offset"]) == (2, 2, 0)
        assert [message["payload"] for message in answer.json["messages"]] == [1, [2]]
        assert not {"receipt", "deadline_at_ms"} & answer.json["messages"][0].keys()
        binary = await http.ask("GET", "/v1/read?queue=orders", headers=ACCEPT)
        meta, (batch,) = decode_delivery(binary.body, ReadMeta)
        assert (meta.next_offset, batch.payloads()) == (2, [b"1", b"[2]"])

    run(story)


def test_a_waiting_read_goes_on_from_where_it_looked_first():
    async def story(http):
        http.broker.stored[ORDERS] = []
        await http.ask("GET", "/v1/read?queue=orders&offset=latest&wait_ms=100")
        assert [what[2] for _, what in http.broker.calls] == ["latest", "0"]

    run(story)


def test_peeking():
    async def story(http):
        http.broker.stored[ORDERS] = [Batch.open(build([b"1"], checked=True))]
        answer = await http.ask("GET", "/v1/peek?queue=orders&max=3&group=billing")
        assert [message["payload"] for message in answer.json["messages"]] == [1]
        assert http.broker.calls == [("peek", (ORDERS, 3, "billing"))]

    run(story)


@pytest.mark.parametrize(
    ("path", "body", "called", "results"),
    [
        ("/v1/ack", {"receipts": ["a"]}, ("ack", (["a"],)), [{"receipt": "a", "status": "acked"}]),
        ("/v1/ack", {"receipts": []}, ("ack", ([],)), []),
        (
            "/v1/nack",
            {"receipts": ["a"], "delay_ms": 5, "error": "x" * 3000},
            ("nack", (["a"], 5, "x" * 2048, None)),
            [{"receipt": "a", "status": "retrying", "due_at_ms": 1}],
        ),
        ("/v1/nack", {"receipts": [], "delay_ms": None, "error": None}, ("nack", ([], None, "", None)), []),
        ("/v1/nack", {"receipts": [], "max_retries": 2}, ("nack", ([], None, "", 2)), []),
        (
            "/v1/reject",
            {"receipts": ["a"], "error": "e"},
            ("reject", (["a"], "e")),
            [{"receipt": "a", "status": "dead_lettered"}],
        ),
        ("/v1/release", {"receipts": ["a"]}, ("release", (["a"],)), [{"receipt": "a", "status": "released"}]),
        (
            "/v1/extend",
            {"receipts": ["a"], "lease_ms": 1000},
            ("extend", (["a"], 1000)),
            [{"receipt": "a", "status": "extended", "deadline_at_ms": 2}],
        ),
    ],
)
def test_settling(path, body, called, results):
    async def story(http):
        answer = await http.ask("POST", path, body)
        assert (answer.status, answer.json) == (200, {"results": results})
        assert http.broker.calls == [called]

    run(story)


def test_cancelling_and_rescheduling():
    async def story(http):
        answer = await http.ask("POST", "/v1/cancel", {"queue": "orders", "ids": ["x"]})
        assert answer.json == {"cancelled": 1, "results": [{"id": "x", "status": "cancelled"}]}
        answer = await http.ask("POST", "/v1/reschedule", {"queue": "orders", "key": "k", "delay_ms": 0})
        assert answer.json == {"rescheduled": 1, "results": [{"id": "x", "status": "rescheduled"}]}
        assert http.broker.calls == [
            ("cancel", (ORDERS, ["x"], None)), ("reschedule", (ORDERS, None, "k", None, 0)),
        ]  # fmt: skip

    run(story)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/lease", {}, "queue"),
        ("/v1/lease", {"queue": "q", "scope": "q"}, "queue"),
        ("/v1/lease", {"scope": ""}, "scope"),
        ("/v1/lease", {"scope": "email/news/high"}, "scope"),
        ("/v1/lease", {"scope": "Email!"}, "scope"),
        ("/v1/lease", {"queue": "q", "max": 0}, "max"),
        ("/v1/lease", {"queue": "q", "max": limits.LEASE_MESSAGES_MAX + 1}, "max"),
        ("/v1/lease", {"queue": "q", "wait_ms": limits.WAIT_MS_MAX + 1}, "wait_ms"),
        ("/v1/lease", {"queue": "q", "wait_ms": -1}, "wait_ms"),
        ("/v1/lease", {"queue": "q", "lease_ms": limits.LEASE_MS_MIN - 1}, "lease_ms"),
        ("/v1/lease", {"queue": "q", "lease_ms": limits.LEASE_MS_MAX + 1}, "lease_ms"),
        ("/v1/lease", {"queue": "q", "group": ""}, "group"),
        ("/v1/lease", {"queue": "q", "group": "a b"}, "group"),
        ("/v1/lease", {"queue": "q", "group": "a\n"}, "group"),
        ("/v1/lease", {"queue": "q", "consumer": "x" * 129}, "consumer"),
        ("/v1/lease", {"queue": "q", "ack": "r"}, "ack"),
        ("/v1/lease", {"queue": "q", "ack": [1]}, "ack"),
        ("/v1/lease", {"queue": "q", "visibility": 1}, "visibility"),
        ("/v1/ack", {}, "receipts"),
        ("/v1/ack", {"receipts": None}, "receipts"),
        ("/v1/ack", {"receipts": ["x" * 1000]}, "receipts"),
        ("/v1/ack", {"receipts": ["x"] * (limits.RECEIPTS_MAX + 1)}, "receipts"),
        ("/v1/nack", {"receipts": [], "delay_ms": -1}, "delay_ms"),
        ("/v1/nack", {"receipts": [], "error": 5}, "error"),
        ("/v1/nack", {"receipts": [], "max_retries": -1}, "max_retries"),
        ("/v1/reject", {"receipts": [], "delay_ms": 1}, "delay_ms"),
        ("/v1/extend", {"receipts": []}, "lease_ms"),
        ("/v1/extend", {"receipts": [], "lease_ms": 1}, "lease_ms"),
        ("/v1/cancel", {"queue": "q"}, "ids"),
        ("/v1/cancel", {"queue": "q", "ids": ["x"], "key": "k"}, "ids"),
        ("/v1/cancel", {"queue": "q", "ids": []}, "ids"),
        ("/v1/cancel", {"ids": ["x"]}, "queue"),
        ("/v1/reschedule", {"queue": "q", "ids": ["x"]}, "deliver_at_ms"),
        ("/v1/reschedule", {"queue": "q", "ids": ["x"], "deliver_at_ms": 1, "delay_ms": 1}, "deliver_at_ms"),
        ("/v1/reschedule", {"queue": "q", "delay_ms": 1}, "ids"),
    ],
)
def test_bad_requests_are_refused_with_the_field_and_change_nothing(path, body, field):
    async def story(http):
        answer = await http.ask("POST", path, body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert answer.error["details"]["field"] == field
        assert http.broker.calls == []

    run(story)


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/v1/read", "queue"),
        ("/v1/read?queue=Q!", "queue"),
        ("/v1/read?queue=q&offset=-1", "offset"),
        ("/v1/read?queue=q&offset=soon", "offset"),
        ("/v1/read?queue=q&offset=at:", "offset"),
        ("/v1/read?queue=q&offset=earliest%0A", "offset"),
        ("/v1/read?queue=q&offset=99999999999999999999", "offset"),
        ("/v1/read?queue=q&partition=-1", "partition"),
        ("/v1/read?queue=q&partition=256", "partition"),
        ("/v1/read?queue=q&max=0", "max"),
        ("/v1/read?queue=q&max=", "max"),
        ("/v1/read?queue=q&max=1.5", "max"),
        ("/v1/read?queue=q&wait_ms=60001", "wait_ms"),
        ("/v1/read?queue=q&wait=1", "wait"),
        ("/v1/read?queue=q&max=1&max=2", "max"),
        ("/v1/peek?queue=q&max=1001", "max"),
        ("/v1/peek?queue=q&group=%20", "group"),
        ("/v1/queues?limit=501", "limit"),
        ("/v1/queues?page=0", "page"),
        ("/v1/stats", "queue"),
        ("/v1/groups?queue=", "queue"),
        ("/v1/dlq?queue=q&filter=" + "x" * 3000, "filter"),
        ("/v1/dlq?queue=q&reason=x", "reason"),
        ("/v1/stats/summary?verbose=1", "verbose"),
    ],
)
def test_bad_queries_are_refused_with_the_field_and_change_nothing(target, field):
    async def story(http):
        answer = await http.ask("GET", target)
        assert (answer.status, answer.error["details"]["field"]) == (400, field)
        assert http.broker.calls == []

    run(story)


@pytest.mark.parametrize("query", ["queue=%ff", "queue", "=&=", "&".join(f"a{n}=1" for n in range(100))])
def test_a_query_that_cannot_be_read_is_refused(query):
    assert ask("GET", f"/v1/read?{query}").status == 400


def test_an_unknown_queue_is_not_found():
    answer = ask("POST", "/v1/lease", {"queue": "nowhere"})
    assert (answer.status, answer.error["code"]) == (404, "queue_not_found")
