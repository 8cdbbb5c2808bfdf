"""Publishing through the HTTP edge: what reaches the broker, and what never does."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from http_fake import FIRST_ID, Http, ask

from penstock import limits
from penstock.batch import build, layout
from penstock.broker.types import ProducerSeq
from penstock.errors import DiskFull, QueueFull, TooLarge, Unavailable
from penstock.ids import ulid_text

BATCH = {"content-type": "application/vnd.penstock.batch"}


def run(story):
    http = Http()
    return asyncio.run(story(http))


def test_a_message_is_stored_as_the_bytes_that_came_in():
    async def story(http):
        text = (
            b'{"queue": "orders", "messages": [{"payload": {"a" :  1.50, "b":"\\u00e9\xc3\xa9"} }, {"payload":null}]}'
        )
        answer = await http.ask("POST", "/v1/publish", text)
        assert answer.status == 201
        assert answer.json == {
            "messages": [
                {"id": ulid_text(FIRST_ID + n), "queue": "default/default/orders", "partition": 0, "offset": n,
                 "duplicate": False}
                for n in range(2)
            ],
            "durable": True,
        }  # fmt: skip
        (batch,) = http.broker.stored["default/default/orders"]
        assert batch.payloads() == [b'{"a" :  1.50, "b":"\\u00e9\xc3\xa9"}', b"null"]
        assert batch.checked and batch.columns == 0 and batch.is_json(0)

    run(story)


def test_every_field_becomes_its_column():
    async def story(http):
        messages = [
            {"payload": 1, "key": "k", "priority": -5, "delay_ms": 7, "ttl_ms": 9, "id": "own", "headers": {"h": "é"},
             "max_retries": 0, "payload_b64": None, "deliver_at_ms": None, "queue": None},
            {"payload_b64": base64.b64encode(b"\x00\xff").decode(), "deliver_at_ms": 1_800_000_000_000,
             "payload": None},
        ]  # fmt: skip
        answer = await http.ask("POST", "/v1/publish", {"queue": "email/high", "messages": messages})
        assert answer.status == 201
        (batch,) = http.broker.stored["email/default/high"]
        assert batch.payloads() == [b"1", b"\x00\xff"]
        assert list(batch.kinds()) == [layout.KIND_JSON, layout.KIND_BYTES]
        assert batch.strings(layout.KEY) == [b"k", b""]
        assert batch.strings(layout.ID) == [b"own", b""]
        assert json.loads(batch.string(layout.HEADERS, 0)) == {"h": "é"}
        for column, values in {
            layout.PRIORITY: [-5, 0], layout.HAS_PRIORITY: [1, 0],
            layout.DELAY_MS: [7, 0], layout.DELIVER_AT_MS: [0, 1_800_000_000_000],
            layout.TTL_MS: [9, 0], layout.MAX_RETRIES: [0, -1],
        }.items():  # fmt: skip
            assert list(batch.integers(column)) == values

    run(story)


def test_an_empty_payload_of_bytes_is_a_payload():
    async def story(http):
        answer = await http.ask("POST", "/v1/publish", {"queue": "q", "messages": [{"payload_b64": ""}]})
        assert answer.status == 201
        assert http.broker.stored["default/default/q"][0].payloads() == [b""]

    run(story)


def test_messages_name_their_own_queues_and_answers_keep_their_order():
    async def story(http):
        messages = [{"payload": n, "queue": name} for n, name in enumerate(["a", "b", None, "a", "b"])]
        answer = await http.ask("POST", "/v1/publish", {"queue": "c", "messages": messages})
        where = [(m["queue"].rpartition("/")[2], m["offset"]) for m in answer.json["messages"]]
        assert where == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1)]
        assert [name for name, _ in http.broker.calls] == ["publish"]
        assert http.broker.stored["default/default/b"][0].payloads() == [b"1", b"4"]

    run(story)


def test_a_producers_numbers_follow_the_order_of_its_messages():
    async def story(http):
        messages = [{"payload": n, "queue": name} for n, name in enumerate(["a", "a", "b", "a"])]
        producer = {"id": "p", "epoch": 3, "seq": 17}
        answer = await http.ask("POST", "/v1/publish", {"messages": messages, "producer": producer})
        assert answer.status == 201
        ((_, (parts, asked)),) = http.broker.calls
        assert asked == ProducerSeq("p", 3, 17)
        assert [(part.queue[-1], part.batch.payloads()) for part in parts] == [
            ("a", [b"0", b"1"]), ("b", [b"2"]), ("a", [b"3"]),
        ]  # fmt: skip

    run(story)


# -- refusals -----------------------------------------------------------------------------------------------------

ONE = {"payload": 1}
DEEP = "[" * 33 + "]" * 33


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"{", None),
        (b"nonsense", None),
        (b"[]", None),
        (b'"text"', None),
        (b"\xff\xfe", None),
        (b"\xef\xbb\xbf{}", None),
        (b'{"queue": "q", "messages": [{"payload": 1}]} trailing', None),
        (b'{"queue": "q", "messages": [{"payload": NaN}]}', None),
        (b'{"queue": "q", "messages": [{"payload": Infinity}]}', None),
        (b'{"queue": "q", "messages": [{"payload": 01}]}', None),
        (b'{"queue": "q", "messages": [{"payload": "\xff"}]}', None),
        (b'{"queue": "q", "messages": [{"payload": "\xed\xa0\x80"}]}', None),
        (b'{"queue": "q", "messages": [{"payload": "tab\there"}]}', None),
        (b'{"queue": "q", "messages": [{"payload": 1, "key": "\\ud800"}]}', None),
        (b'{"queue": "q", "messages": [{"payload": %s}]}' % (b"[" * 200_000 + b"]" * 200_000), None),
        (b'{"queue": "q", "messages": [{"payload": %s}]}' % (b'{"a":' * 5_000 + b"1" + b"}" * 5_000), None),
        (b'{"queue": "q", "messages": [{"payload": %s}]}' % DEEP.encode(), "payload"),
        (b'{"queue": "q", "messages": [{"payload": 1, "priority": 1e999}]}', "priority"),
        ({}, "messages"),
        ({"queue": "q"}, "messages"),
        ({"queue": "q", "messages": []}, "messages"),
        ({"queue": "q", "messages": {}}, "messages"),
        ({"queue": "q", "messages": [1]}, "messages"),
        ({"queue": "q", "messages": [ONE], "extra": 1}, "extra"),
        ({"queue": "q", "messages": [{"payload": 1, "Key": "k"}]}, "Key"),
        ({"messages": [ONE]}, "queue"),
        ({"queue": 5, "messages": [ONE]}, "queue"),
        ({"queue": "", "messages": [ONE]}, "queue"),
        ({"queue": "orders!", "messages": [ONE]}, "queue"),
        ({"queue": "a/b/c/d", "messages": [ONE]}, "queue"),
        ({"queue": "../etc", "messages": [ONE]}, "queue"),
        ({"queue": "-a", "messages": [ONE]}, "queue"),
        ({"queue": "a\n", "messages": [ONE]}, "queue"),
        ({"queue": "x" * 65, "messages": [ONE]}, "queue"),
        ({"queue": "q", "messages": [{"payload": 1, "queue": ""}]}, "queue"),
        ({"queue": "q", "atomic": 1, "messages": [ONE]}, "atomic"),
        ({"queue": "q", "messages": [{}]}, "payload"),
        ({"queue": "q", "messages": [{"payload_b64": None}]}, "payload"),
        ({"queue": "q", "messages": [{"payload": 1, "payload_b64": "AA=="}]}, "payload"),
        ({"queue": "q", "messages": [{"payload_b64": "not base64"}]}, "payload_b64"),
        ({"queue": "q", "messages": [{"payload_b64": "AA"}]}, "payload_b64"),
        ({"queue": "q", "messages": [{"payload_b64": "ÄÄ=="}]}, "payload_b64"),
        ({"queue": "q", "messages": [{"payload_b64": 1}]}, "payload_b64"),
        ({"queue": "q", "messages": [{"payload": 1, "priority": 2**63}]}, "priority"),
        ({"queue": "q", "messages": [{"payload": 1, "priority": -(2**63) - 1}]}, "priority"),
        ({"queue": "q", "messages": [{"payload": 1, "priority": 10**400}]}, "priority"),
        ({"queue": "q", "messages": [{"payload": 1, "priority": 1.5}]}, "priority"),
        ({"queue": "q", "messages": [{"payload": 1, "priority": True}]}, "priority"),
        ({"queue": "q", "messages": [{"payload": 1, "priority": "1"}]}, "priority"),
        ({"queue": "q", "messages": [{"payload": 1, "delay_ms": -1}]}, "delay_ms"),
        ({"queue": "q", "messages": [{"payload": 1, "delay_ms": limits.DELAY_MS_MAX + 1}]}, "delay_ms"),
        ({"queue": "q", "messages": [{"payload": 1, "delay_ms": None}]}, "delay_ms"),
        ({"queue": "q", "messages": [{"payload": 1, "deliver_at_ms": limits.TIME_MS_MAX + 1}]}, "deliver_at_ms"),
        ({"queue": "q", "messages": [{"payload": 1, "deliver_at_ms": 1, "delay_ms": 1}]}, "deliver_at_ms"),
        ({"queue": "q", "messages": [{"payload": 1, "ttl_ms": 0}]}, "ttl_ms"),
        ({"queue": "q", "messages": [{"payload": 1, "max_retries": -1}]}, "max_retries"),
        ({"queue": "q", "messages": [{"payload": 1, "max_retries": limits.RETRIES_MAX + 1}]}, "max_retries"),
        ({"queue": "q", "messages": [{"payload": 1, "key": ""}]}, "key"),
        ({"queue": "q", "messages": [{"payload": 1, "key": "k" * 257}]}, "key"),
        ({"queue": "q", "messages": [{"payload": 1, "key": "é" * 129}]}, "key"),
        ({"queue": "q", "messages": [{"payload": 1, "id": "é" * 65}]}, "id"),
        ({"queue": "q", "messages": [{"payload": 1, "headers": {"h": 1}}]}, "headers"),
        ({"queue": "q", "messages": [{"payload": 1, "headers": []}]}, "headers"),
        ({"queue": "q", "messages": [{"payload": 1, "headers": {str(n): "" for n in range(65)}}]}, "headers"),
        ({"queue": "q", "messages": [{"payload": 1, "headers": {"h": "x" * limits.HEADERS_BYTES_MAX}}]}, "headers"),
        ({"queue": "q", "messages": [ONE], "producer": {"id": "p"}}, "epoch"),
        ({"queue": "q", "messages": [ONE], "producer": {"id": "", "epoch": 0, "seq": 0}}, "id"),
        ({"queue": "q", "messages": [ONE], "producer": {"id": "p", "epoch": -1, "seq": 0}}, "epoch"),
        ({"queue": "q", "messages": [ONE], "producer": {"id": "p", "epoch": 0, "seq": 2**63}}, "seq"),
        ({"queue": "q", "messages": [ONE] * (limits.BATCH_MESSAGES_MAX + 1)}, "messages"),
    ],
)
def test_bad_input_is_refused_with_the_field_and_changes_nothing(body, field):
    async def story(http):
        answer = await http.ask("POST", "/v1/publish", body)
        assert answer.status == 400, answer.body
        assert answer.error["code"] == "invalid_request"
        assert answer.error["retryable"] is False
        assert answer.error["details"].get("field") == field
        assert http.broker.calls == []

    run(story)


def test_a_name_as_long_as_the_body_is_not_sent_back():
    answer = ask("POST", "/v1/publish", {"x" * 1_000_000: 1})
    assert answer.status == 400 and len(answer.body) < 2_000


def test_the_error_names_the_message_that_is_wrong():
    answer = ask("POST", "/v1/publish", {"queue": "q", "messages": [ONE, ONE, {"payload": 1, "priority": "x"}]})
    assert answer.error["details"] == {"row": 2, "field": "priority"}
    answer = ask("POST", "/v1/publish", {"queue": "q", "messages": [ONE, {"payload": 1, "key": "é" * 200}]})
    assert answer.error["details"] == {"row": 1, "field": "key"}


@pytest.mark.parametrize(
    "payload", ["[" * 32 + "]" * 32, '{"s":"' + "[{" * 100 + '\\""}', "[" + "[1],{}," * 100 + "0]"]
)
def test_brackets_in_texts_and_side_by_side_are_not_nesting(payload):
    body = f'{{"queue": "q", "messages": [{{"payload": 1}}, {{"payload": {payload}}}]}}'.encode()
    assert ask("POST", "/v1/publish", body).status == 201


def test_brackets_in_texts_do_not_hide_nesting():
    hidden = '{"s":"' + "]}" * 50 + '","deep":' + DEEP + "}"
    answer = ask("POST", "/v1/publish", f'{{"queue": "q", "messages": [{{"payload": {hidden}}}]}}'.encode())
    assert (answer.status, answer.error["details"]) == (400, {"row": 0, "field": "payload"})


def test_what_is_twice_or_huge_does_no_harm():
    number = b"9" * 100_000
    body = b'{"queue": "x", "queue": "q", "messages": [{"payload": 1, "payload": {"a": 1, "a": %s}}]}' % number
    assert ask("POST", "/v1/publish", body).status == 201


def test_sizes():
    fits = {"queue": "q", "messages": [{"payload": "x" * (limits.PAYLOAD_BYTES_MAX - 2)}]}
    assert ask("POST", "/v1/publish", fits).status == 201
    large = {"queue": "q", "messages": [ONE, {"payload": "x" * (limits.PAYLOAD_BYTES_MAX - 1)}]}
    answer = ask("POST", "/v1/publish", large)
    assert (answer.status, answer.error["code"], answer.error["details"]["row"]) == (413, "too_large", 1)
    many = {"queue": "q", "messages": [{"payload": "x" * (limits.PAYLOAD_BYTES_MAX - 2)}] * 9}
    assert ask("POST", "/v1/publish", many).status == 413


# -- each on its own ----------------------------------------------------------------------------------------------


def test_without_atomic_good_messages_go_in_and_bad_ones_say_why():
    async def story(http):
        messages = [
            {"payload": 0}, {"payload": 1, "priority": "x"}, {"payload": 2, "queue": "other"}, {"unknown": 1}, {},
            {"payload": 5, "queue": "Bad Name"}, {"payload": 6}, 7,
        ]  # fmt: skip
        answer = await http.ask("POST", "/v1/publish", {"queue": "q", "atomic": False, "messages": messages})
        assert answer.status == 207
        results = answer.json["results"]
        assert [result["status"] for result in results] == [201, 400, 201, 400, 400, 400, 201, 400]
        assert [result["error"]["details"].get("field") for result in results if "error" in result] == [
            "priority", "unknown", "payload", "queue", None,
        ]  # fmt: skip
        assert (results[0]["offset"], results[6]["offset"], results[2]["queue"]) == (0, 1, "default/default/other")
        assert http.broker.stored["default/default/q"][0].payloads() == [b"0", b"6"]

    run(story)


def test_without_atomic_a_message_that_the_broker_refuses_fails_alone():
    class Picky(Http):
        def __init__(self):
            super().__init__()
            self.publish = self.broker.messages.publish
            self.broker.messages.publish = self.refuse_thirteen
            self.groups = 0

        async def refuse_thirteen(self, parts, producer=None):
            self.groups += 1
            if b"13" in parts[0].batch.payloads():
                raise TooLarge("thirteen")
            return await self.publish(parts, producer)

    async def story():
        http = Picky()
        body = {"queue": "q", "atomic": False, "messages": [{"payload": n} for n in range(100)]}
        answer = await http.ask("POST", "/v1/publish", body)
        assert [n for n, result in enumerate(answer.json["results"]) if result["status"] != 201] == [13]
        assert answer.json["results"][13]["error"]["code"] == "too_large"
        assert http.groups < 20

    asyncio.run(story())


def test_without_atomic_a_producers_numbers_skip_the_bad_ones():
    async def story(http):
        messages = [{"payload": 0}, {"payload": 1}, {}, {"payload": 3}]
        body = {"queue": "q", "atomic": False, "messages": messages, "producer": {"id": "p", "epoch": 1, "seq": 10}}
        answer = await http.ask("POST", "/v1/publish", body)
        assert [result["status"] for result in answer.json["results"]] == [201, 201, 400, 201]
        assert [(asked.seq, parts[0].batch.count) for _, (parts, asked) in http.broker.calls] == [(10, 2), (13, 1)]

    run(story)


# -- frames -------------------------------------------------------------------------------------------------------


def test_a_frame_is_stored_as_it_is_and_answered_by_runs():
    async def story(http):
        frame = build([b"1", b"not checked"])
        target = "/v1/publish?queue=orders&producer=p&epoch=2&seq=5"
        answer = await http.ask("POST", target, frame, headers=BATCH)
        assert answer.status == 201
        assert answer.json == {
            "runs": [
                {"queue": "default/default/orders", "partition": 0, "offset": 0, "count": 2, "id": ulid_text(FIRST_ID),
                 "duplicate": False, "rows": None}
            ],
            "durable": True,
        }  # fmt: skip
        assert http.broker.stored["default/default/orders"][0].frame == frame
        assert http.broker.calls[0][1][1] == ProducerSeq("p", 2, 5)

    run(story)


@pytest.mark.parametrize(
    ("target", "frame"),
    [
        ("/v1/publish?queue=q", b""),
        ("/v1/publish?queue=q", b"PB"),
        ("/v1/publish?queue=q", b'{"messages": []}'),
        ("/v1/publish?queue=q", build([b"1"])[:-1]),
        ("/v1/publish?queue=q", build([b"1"], checked=True)),
        ("/v1/publish?queue=q", build([b"1"], columns={layout.DELAY_MS: [-1]})),
        ("/v1/publish?queue=q", build([b"1"], columns={1 << 7: [1]})),
        ("/v1/publish", build([b"1"])),
        ("/v1/publish?queue=Q!", build([b"1"])),
        ("/v1/publish?queue=q&queue=q", build([b"1"])),
        ("/v1/publish?queue=q&producer=p", build([b"1"])),
        ("/v1/publish?queue=q&epoch=1&seq=1", build([b"1"])),
        ("/v1/publish?queue=q&producer=p&epoch=x&seq=1", build([b"1"])),
        ("/v1/publish?queue=q&more=1", build([b"1"])),
        ("/v1/publish?queue=%ff", build([b"1"])),
    ],
)
def test_a_bad_frame_is_refused_whole(target, frame):
    answer = ask("POST", target, frame, headers=BATCH)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


def test_a_query_beside_json_is_a_mistake_and_not_ignored():
    answer = ask("POST", "/v1/publish?queue=q", {"messages": [ONE]})
    assert (answer.status, answer.error["details"]) == (400, {"field": "queue"})


# -- what the broker says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "status", "retry_after"),
    [
        (QueueFull("full", retry_after_ms=2_500), 429, "3"),
        (Unavailable("overload"), 503, "1"),
        (DiskFull("no room"), 507, "1"),
    ],
)
def test_refusal_of_the_broker_has_retry_after(failure, status, retry_after):
    async def story(http):
        http.broker.fails = failure
        answer = await http.ask("POST", "/v1/publish", {"queue": "q", "messages": [ONE]})
        assert (answer.status, answer.headers["retry-after"]) == (status, retry_after)
        assert answer.error == {"code": failure.code, "message": failure.message, "retryable": True, "details": {}}

    run(story)
