"""HTTP/1.1 without I/O: what is sent, what is understood, and what is refused."""

from __future__ import annotations

import pytest

from penstock import limits
from penstock.client.transport.http1 import (
    RESPONSE_BYTES_MAX,
    BadResponse,
    Origin,
    ResponseReader,
    constant_headers,
    encode_request,
)
from penstock.errors import InvalidRequest

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nRetry-After: 2\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status", "body", "keep_alive"),
    [
        (PLAIN, 200, b"hello", True),
        (CHUNKED, 503, b"hello", False),
        (EMPTY, 204, b"", True),
        (INTERIM + PLAIN, 200, b"hello", True),
    ],
)
def test_a_response_reads_the_same_whole_and_byte_by_byte(data, status, body, keep_alive):
    (whole,) = ResponseReader().feed(data)
    reader = ResponseReader()
    pieces = [reader.feed(data[at : at + 1]) for at in range(len(data))]
    assert pieces[-1] == [whole] and not any(pieces[:-1])
    assert (whole.status, whole.body, whole.keep_alive) == (status, body, keep_alive)


def test_responses_follow_each_other_on_one_connection():
    reader = ResponseReader()
    (first,), (second,), (third,) = reader.feed(PLAIN), reader.feed(EMPTY), reader.feed(PLAIN)
    assert (first.body, second.status, third.headers[b"retry-after"]) == (b"hello", 204, b"2")
    assert reader.received == 0


def test_as_many_responses_as_are_due_may_come_at_once():
    reader = ResponseReader()
    first, second = reader.feed(PLAIN + EMPTY + PLAIN[:20], 3)
    assert (first.body, second.status) == (b"hello", 204)
    (third,) = reader.feed(PLAIN[20:], 1)
    assert third == first
    with pytest.raises(BadResponse, match="two answers") as bad:
        reader.feed(PLAIN + EMPTY + PLAIN, 2)
    assert [each.status for each in bad.value.before] == [200, 204], "those before it are as good as ever"


def test_an_answer_that_broke_off_is_told_from_one_that_never_began():
    reader = ResponseReader()
    assert reader.received == 0
    assert reader.feed(PLAIN[:30]) == [] and reader.received == 30


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        PLAIN + PLAIN,
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: %b\r\n" % (b"a" * limits.HEADER_BYTES_MAX) + b"\r\n",
    ],
    ids=["http2", "tls", "two answers", "bad length", "endless headers"],
)
def test_what_no_client_can_take_is_refused(data):
    with pytest.raises(BadResponse):
        ResponseReader().feed(data)


def test_a_body_is_refused_as_soon_as_it_is_too_large():
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (RESPONSE_BYTES_MAX * 2))
    chunk = b"x" * limits.MIB
    with pytest.raises(BadResponse, match="larger than"):
        for _ in range(RESPONSE_BYTES_MAX // limits.MIB + 1):
            reader.feed(chunk)


@pytest.mark.parametrize(
    ("url", "expected", "host_header"),
    [
        ("http://127.0.0.1:7400", ("http://127.0.0.1:7400", "127.0.0.1", 7400, False, ""), "127.0.0.1:7400"),
        ("https://broker.example/", ("https://broker.example", "broker.example", 443, True, ""), "broker.example"),
        ("http://h/a/b/", ("http://h/a/b", "h", 80, False, "/a/b"), "h"),
        ("http://[::1]:7400", ("http://[::1]:7400", "::1", 7400, False, ""), "[::1]:7400"),
    ],
)
def test_an_address_is_taken_apart(url, expected, host_header):
    origin = Origin.parse(url)
    assert tuple(origin) == expected and origin.host_header == host_header


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:7400", "ftp://h", "http://", "http://h:99999", "http://u:p@h", "http://h/?q=1"]
)
def test_what_is_not_an_address_is_refused(url):
    with pytest.raises(InvalidRequest, match="not a server address"):
        Origin.parse(url)


def test_a_request_is_a_head_and_a_body_that_stay_apart():
    constant = constant_headers(Origin.parse("http://h:1"), "secret")
    head, body = encode_request("POST", "/v1/ack", constant, content_type="a/b", accept="c/d", body=b"xyz")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/ack HTTP/1.1" and lines[-2:] == ["", ""] and body == b"xyz"
    assert {
        "Host: h:1",
        "Authorization: Bearer secret",
        "Content-Type: a/b",
        "Content-Length: 3",
        "Accept: c/d",
    } <= set(lines)


def test_a_get_has_no_body_headers():
    head, _ = encode_request("GET", "/", b"", content_type="a/b", accept="c/d", body=b"")
    assert b"Content" not in head


@pytest.mark.parametrize("token", ["a\r\nX: y", "ä", "a\nb"])
def test_a_token_cannot_smuggle_headers(token):
    with pytest.raises(InvalidRequest):
        constant_headers(Origin.parse("http://h"), token)


def test_a_large_body_is_read_to_where_it_stays():
    reader = ResponseReader()
    body = bytes(range(256)) * 8192
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    for first in (1, 5000):
        assert reader.feed(head + body[:first]) == []
        rest = reader.take_body()
        assert rest is not None and len(rest) == len(body) - first
        rest[:] = body[first:]
        response = reader.body_taken()
        assert (response.status, response.body, response.keep_alive) == (200, body, True)
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na") == []
    assert reader.take_body() is None, "a small one is fed as always"
    (small,) = reader.feed(b"b")
    assert small.body == b"ab"


def test_a_body_that_is_too_large_is_refused_before_it_comes():
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\na")
    with pytest.raises(BadResponse, match="larger than"):
        reader.take_body()
