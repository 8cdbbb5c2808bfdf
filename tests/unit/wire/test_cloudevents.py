"""Conversion between CloudEvents and messages, and refused events."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.transports.webhooks.envelope import WebhookMessage, envelope_of
from penstock.wire import cloudevents
from penstock.wire.cloudevents import as_message, attributes_of, dedup_id, from_headers, from_json, from_json_batch

NEEDED = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid"}
HEADERS = [(f"ce-{name}".encode(), value.encode()) for name, value in NEEDED.items()]


def structured(**members: object) -> bytes:
    return msgspec.json.encode({**NEEDED, **members})


@pytest.mark.parametrize(
    ("members", "data", "is_json"),
    [
        ({"data": {"a": 1}}, b'{"a":1}', True),
        ({"data": "text"}, b'"text"', True),
        ({"data": None}, b"null", True),
        ({"data": "text", "datacontenttype": "application/json"}, b'"text"', True),
        ({"data": {"a": 1}, "datacontenttype": "application/vnd.x+json; charset=utf-8"}, b'{"a":1}', True),
        ({"data": "<a/>", "datacontenttype": "text/xml"}, b"<a/>", False),
        ({"data": {"a": 1}, "datacontenttype": "text/xml"}, b'{"a":1}', True),
        ({"data_base64": "AP8="}, b"\x00\xff", False),
        ({"data_base64": "AP8=", "datacontenttype": "application/json"}, b"\x00\xff", False),
        ({}, b"", False),
    ],
)
def test_data_of_a_structured_event(members, data, is_json):
    event = from_json(structured(**members))
    assert (event.data, event.is_json) == (data, is_json)


def test_attributes_become_text():
    event = from_json(structured(count=7, flag=True, off=False, nothing=None, time="2026-01-31T12:00:00.5+01:00"))
    assert event.attributes == {
        **NEEDED, "count": "7", "flag": "true", "off": "false", "time": "2026-01-31T12:00:00.5+01:00",
    }  # fmt: skip


@pytest.mark.parametrize(
    "members",
    [
        {"id": ""}, {"id": None}, {"source": ""}, {"type": None}, {"specversion": "0.3"}, {"specversion": 1.0},
        {"Subject": "x"}, {"my-attribute": "x"}, {"my_attribute": "x"}, {"ä": "x"}, {"nested": {}}, {"listed": []},
        {"half": 1.5}, {"time": "yesterday"}, {"time": "2026-01-31"}, {"subject": "a\nb"}, {"subject": "\x7f"},
        {"data": 1, "data_base64": "AA=="}, {"data_base64": "?"}, {"data_base64": 1}, {"partitionkey": ""},
        {"partitionkey": "k" * 300}, {f"a{number}": "x" for number in range(64)}, {"a" * 65: "x"},
    ],
)  # fmt: skip
def test_invalid_event_is_refused_with_its_attribute(members):
    with pytest.raises(InvalidRequest) as refused:
        from_json(structured(**members))
    assert refused.value.details["field"]
    with pytest.raises(InvalidRequest) as refused:
        from_json_batch(b"[%b,%b]" % (structured(), structured(**members)))
    assert refused.value.details["row"] == 1


def test_empty_batch_has_no_events():
    assert from_json_batch(b"[]") == []


@pytest.mark.parametrize("body", [b"", b"[1]", b"null", b"1", b"{", b'"x"', b"\xff", b"[" * 10_000])
def test_event_that_is_not_an_object_is_refused(body):
    with pytest.raises(InvalidRequest):
        from_json(body)
    with pytest.raises(InvalidRequest):
        from_json_batch(body)


@pytest.mark.parametrize(
    "value",
    [b"[" * 5_000 + b"]" * 5_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"1e999", b'"\\ud800"', b'"\\x"', b"-"],
)
def test_any_attribute_value_is_accepted_or_refused(value):
    for name in (b"subject", b"datacontenttype"):
        with pytest.raises(InvalidRequest):
            from_json(structured()[:-1] + b',"%b":%b}' % (name, value))


@pytest.mark.parametrize("value", [b'"\\ud800"', b'"\\x"'])
def test_invalid_text_is_refused_as_data(value):
    with pytest.raises(InvalidRequest):
        from_json(structured(datacontenttype="text/plain")[:-1] + b',"data":%b}' % value)


def test_batch_size_is_bounded():
    with pytest.raises(InvalidRequest):
        from_json_batch(b"[" + b",".join([structured()] * (limits.BATCH_MESSAGES_MAX + 1)) + b"]")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        (b'"quoted \\" text"', 'quoted " text'),
        (b'"a%22b"', 'a"b'),
        (b"100%25", "100%"),
        (b"%2525", "%25"),
        (b"plain", "plain"),
        (b" padded ", "padded"),
    ],
)
def test_header_is_decoded_once(value, text):
    assert from_headers([*HEADERS, (b"ce-subject", value)], "text/plain", b"").attributes["subject"] == text


@pytest.mark.parametrize(
    ("headers", "kind", "body"),
    [
        (HEADERS[1:], "text/plain", b""), ([*HEADERS, HEADERS[0]], "text/plain", b""),
        ([*HEADERS, (b"ce-subject", b"%ff")], "", b""), ([*HEADERS, (b"ce-subject", b"\xe4")], "", b""),
        ([*HEADERS, (b"ce-datacontenttype", b"text/plain")], "", b""), ([*HEADERS, (b"ce-", b"x")], "", b""),
        ([*HEADERS, (b"ce-a-b", b"x")], "", b""), (HEADERS, "application/json", b"{"),
        (HEADERS, "application/json", b""), (HEADERS, "text/plain\x01", b""),
    ],
)  # fmt: skip
def test_invalid_binary_headers_are_refused(headers, kind, body):
    with pytest.raises(InvalidRequest):
        from_headers(headers, kind, body)


def test_attributes_are_headers_of_the_message():
    message = as_message(from_json(structured(data={"n": 1}, partitionkey="user-42")), dedup=True)
    assert message.headers == {f"ce-{name}": value for name, value in {**NEEDED, "partitionkey": "user-42"}.items()}
    assert (message.key, bytes(message.payload), message.id) == ("user-42", b'{"n":1}', dedup_id("/shop", "1"))
    assert as_message(from_json(structured()), dedup=False).id is None


def test_dedup_id_separates_source_and_id():
    pairs = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a", "b\0c"), ("ä", "bc")]
    assert len({dedup_id(*pair) for pair in pairs}) == len(pairs)
    assert all(len(dedup_id(*pair)) <= limits.CLIENT_ID_BYTES_MAX for pair in pairs)


text = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1)


@given(st.dictionaries(st.from_regex(r"x[a-z0-9]{0,18}", fullmatch=True), text, max_size=8), st.binary(max_size=64))
def test_event_round_trips_in_both_modes(extensions, data):
    attributes = {**NEEDED, "datacontenttype": "application/octet-stream", **extensions}
    headers = cloudevents.to_headers(attributes)
    kind = headers.pop("content-type")
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    binary = from_headers([(name.encode(), value.encode()) for name, value in headers.items()], kind, data)
    whole = from_json(cloudevents.to_json(attributes, data, is_json=False))
    assert binary.attributes == whole.attributes == attributes
    assert binary.data == whole.data == data


def test_plain_message_is_delivered_as_event():
    attributes = attributes_of({"h": "v"}, id="01JP", queue="a/b/c", at_ms=1_760_000_000_000, is_json=True)
    assert attributes == {
        "specversion": "1.0", "id": "01JP", "source": "penstock:a/b/c", "type": "penstock.message",
        "time": "2025-10-09T08:53:20.000Z", "datacontenttype": "application/json",
    }  # fmt: skip


def message(
    payload: bytes = b'{"n":1}', is_json: bool = True, key: str | None = None, **headers: str
) -> WebhookMessage:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return WebhookMessage("01JP", "a/b/c", payload, is_json, named, key, 2, 1_760_000_000_000, "r")


def test_plain_format_sends_the_payload():
    headers, body = envelope_of(message(content_type="text/csv", authorization="x", host="y"), "plain")
    assert body == b'{"n":1}'
    assert headers == {"penstock-queue": "a/b/c", "penstock-attempt": "2", "content-type": "text/csv"}
    assert envelope_of(message(content_type="a\r\nb"), "plain").headers["content-type"] == "application/json"
    assert envelope_of(message(b"\0", False), "plain").headers["content-type"] == "application/octet-stream"
    assert "traceparent" not in envelope_of(message(traceparent="a\r\nx: y"), "plain").headers


def test_published_event_is_delivered_unchanged():
    given = {f"ce_{name}": value for name, value in NEEDED.items()}
    headers, body = envelope_of(message(key="k", **given, ce_datacontenttype="text/x\n"), "cloudevents-binary")
    assert headers["ce-id"] == "1" and headers["ce-partitionkey"] == "k" and body == b'{"n":1}'
    assert headers["content-type"] == "application/json"
    headers, body = envelope_of(message(key="k", **given), "cloudevents-structured")
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert msgspec.json.decode(body) == {**NEEDED, "partitionkey": "k", "data": {"n": 1}}
    body = envelope_of(message(b"\0", False), "cloudevents-structured").body
    assert msgspec.json.decode(body)["data_base64"] == "AA=="
