"""A head that is recognised means what the parser said of it."""

from __future__ import annotations

from urllib.parse import unquote

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.http_heads import Parsed
from penstock.transports.http import heads
from penstock.transports.http.heads import BLOCK_BYTES_MAX, KNOWN_MAX, LINE_BYTES_MAX, Heads

LEASE = (
    b"POST /v1/lease HTTP/1.1\r\nHost: localhost:7400\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
)
BODY = b'{"queue":"q"}'


def learned(*requests: bytes) -> Heads:
    found = Heads()
    for request in requests:
        found.learn(request, Parsed(request).headers)
    return found


def test_the_same_head_is_recognised_with_another_query_and_another_length():
    known = learned(LEASE + BODY)
    assert known.find(LEASE + BODY) is not None
    head = known.find(LEASE.replace(b"lease", b"publish?seq=7&queue=a/b").replace(b"13", b"4") + b"body")
    assert head is not None
    assert (head.method, head.path, head.query) == ("POST", "/v1/publish", b"seq=7&queue=a/b")
    assert (head.fields.content_type, head.fields.hosts) == (b"application/json", [b"localhost:7400"])
    assert head.fields.headers == [(b"host", b"localhost:7400"), (b"content-type", b"application/json")]


def test_a_path_is_told_without_its_escapes():
    head = learned(LEASE + BODY).find(LEASE.replace(b"/v1/lease", b"/v1/queues/a%2Fb") + BODY)
    assert head is not None and head.path == "/v1/queues/a/b"


def test_without_a_body_there_is_no_length():
    get = b"GET /v1/stats?queue=q HTTP/1.1\r\nHost: localhost\r\n\r\n"
    known = learned(get)
    head = known.find(get.replace(b"=q", b"=other"))
    assert head is not None and head.query == b"queue=other" and head.body_at == len(get) + 4
    assert known.find(get + b"GET /") is None


@pytest.mark.parametrize(
    "data",
    [
        LEASE[:-4],
        LEASE,
        LEASE + BODY[:-1],
        LEASE + BODY + b"P",
        LEASE.replace(b"localhost", b"elsewhere") + BODY,
        LEASE.replace(b"Host:", b"host:") + BODY,
        LEASE.replace(b"Host", b"Connection: close\r\nHost") + BODY,
        LEASE.replace(b"Host", b"Content-Length: 13\r\nHost") + BODY,
        LEASE.replace(b"13", b""),
        LEASE.replace(b"13", b"\0"),
        LEASE.replace(b"13", b"\0") + BODY,
        LEASE.replace(b"lease", b"lease?" + b"q" * LINE_BYTES_MAX) + BODY,
        LEASE.replace(b"13", b"+13") + BODY,
        LEASE.replace(b"13", b"1_3") + BODY,
        LEASE.replace(b"13", b"13 ") + BODY,
        LEASE.replace(b"HTTP/1.1", b"HTTP/1.0") + BODY,
        LEASE.replace(b"POST", b"post") + BODY,
        LEASE.replace(b"POST", b"CONNECT") + BODY,
        LEASE.replace(b"/v1", b"//v1") + BODY,
        LEASE.replace(b"/v1", b"http://localhost/v1") + BODY,
        LEASE.replace(b"lease", b"lease#a") + BODY,
        LEASE.replace(b"lease", b"le ase") + BODY,
        LEASE.replace(b"lease", b"le\xffse") + BODY,
        b"\r\n" + LEASE + BODY,
        b"",
    ],
)
def test_anything_else_is_the_parser_s(data):
    assert learned(LEASE + BODY).find(data) is None


@pytest.mark.parametrize(
    "request_",
    [
        LEASE.replace(b"Content-Length: 13", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
        LEASE.replace(b"Content-Length: 13", b"Content-Length:13") + BODY,
        LEASE.replace(b"Content-Length: 13", b"Content-Length:  13") + BODY,
        LEASE.replace(b"Host", b"X-Long: " + b"x" * BLOCK_BYTES_MAX + b"\r\nHost") + BODY,
        LEASE.replace(b"/v1", b"//v1") + BODY,
    ],
)
def test_what_is_not_plain_is_not_remembered(request_):
    known = Heads()
    known.learn(request_, Parsed(request_).headers)
    assert not known._known


def test_what_the_parser_reads_otherwise_is_not_remembered():
    known = Heads()
    headers = Parsed(LEASE + BODY).headers
    known.learn(LEASE + BODY, headers[:-1])
    known.learn(LEASE + BODY, [*headers, (b"transfer-encoding", b"chunked")])
    known.learn(LEASE + BODY, [*headers[:-1], (b"content-length", b"14")])
    assert not known._known


def test_strangers_do_not_fill_the_memory():
    known = learned(LEASE + BODY)
    for number in range(3 * KNOWN_MAX):
        request = LEASE.replace(b"Host", b"X-Number: %d\r\nHost" % number) + BODY
        known.learn(request, Parsed(request).headers)
    assert len(known._known) == KNOWN_MAX
    assert known.find(LEASE + BODY) is None
    assert known.learn(LEASE + BODY, Parsed(LEASE + BODY).headers), "it is new again"
    assert known.find(LEASE + BODY) is not None
    assert not known.learn(LEASE + BODY, Parsed(LEASE + BODY).headers)


NAMES = st.sampled_from(["Host", "content-length", "Content-Length", "Accept", "Transfer-Encoding", "X", "Connection"])
VALUES = st.sampled_from(
    ["localhost", "0", "3", "03", "chunked", "a, b", "close", " 3", "3 ", "3\t", "", "x\r\n y", "3\n"]
)
LINES = st.sampled_from(
    ["GET /a?b=c HTTP/1.1", "POST /v1/x HTTP/1.1", "POST /%41 HTTP/1.1", "PUT /?? HTTP/1.1", "POST * HTTP/1.1"]
)
BODIES = st.sampled_from([b"", b"abc", b"ab", b"abcd", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"0\r\n\r\n"])
REQUESTS = st.builds(
    lambda line, headers, body: "\r\n".join([line, *(f"{n}: {v}" for n, v in headers), "", ""]).encode() + body,
    LINES, st.lists(st.tuples(NAMES, VALUES), max_size=4), BODIES,
)  # fmt: skip


@given(REQUESTS, LINES, st.sampled_from([b"", b"0", b"2", b"3", b"4", b"27", b"\0"]), BODIES)
def test_what_is_recognised_is_what_the_parser_would_have_said(first, line, length, body):
    """Requests that resemble what was learned, but for the line, the length and the body."""
    known = Heads()
    try:
        known.learn(first, Parsed(first).headers)
    except httptools.HttpParserError:
        return
    head, _, _ = first.partition(b"\r\n\r\n")
    block = head.partition(b"\r\n")[2]
    second = line.encode() + b"\r\n" + heads._LENGTH.sub(b"Content-Length: " + length, block) + b"\r\n\r\n" + body
    for data in (first, second):
        found = known.find(data)
        if found is None:
            continue
        parsed = Parsed(data)
        url = httptools.parse_url(parsed.url)
        assert parsed.whole == 1 and parsed.version == "1.1"
        assert (found.method, found.path, found.query) == (parsed.method, unquote(url.path.decode()), url.query or b"")
        assert data[found.body_at :] == parsed.body
        assert found.fields.headers == [each for each in parsed.headers if each[0] != b"content-length"]
        assert parsed.keep_alive == Parsed(first).keep_alive
