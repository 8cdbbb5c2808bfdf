"""Where a request ends and the next one begins, and in which order the answers leave."""

from __future__ import annotations

import asyncio
import json

import pytest
from http_talk import request, talk

from penstock import limits
from penstock.transports.http.framing import Refusal, RequestReader
from penstock.transports.http.request import Request
from penstock.wire.status import STATUS

ACK = {"receipts": ["a"]}
HIDDEN = request("POST", "/v1/ack", {"receipts": ["hidden"]})
KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
OFFERS = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    "unknown": ("Connection: upgrade", "Upgrade: foo/2"),
    "list": ("Connection: keep-alive, Upgrade", "Upgrade: h2c, foo"),
    "twice": ("Connection: Upgrade", "Upgrade: h2c", "Upgrade: foo"),
    "tls": ("Connection: Upgrade", "Upgrade: TLS/1.2"),
    "empty": ("Connection: Upgrade", "Upgrade:"),
    "websocket": ("Connection: Upgrade", "Upgrade: websocket"),
    "websocket-wrong-version": ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 8", KEY),
    "websocket-handshake": ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", KEY),
}


def receipts(it) -> list[str]:
    return [receipt for name, what in it.broker.calls if name == "ack" for receipt in what[0]]


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("path", ["/v1/ack", "/v1/ws"])
def test_offered_upgrade_that_is_not_taken_is_ignored_and_the_body_read(offer, path):
    async def story(it):
        body = b"xx" + HIDDEN if path == "/v1/ws" else b" " * 10_000 + json.dumps(ACK).encode()
        it.send("POST", path, body, *OFFERS[offer])
        it.send("POST", "/v1/ack", {"receipts": ["next"]})
        assert (await it.answer())[0] == (200 if path == "/v1/ack" else 404)
        status, _, answer = await it.answer()
        assert (status, json.loads(answer)["results"][0]["receipt"]) == (200, "next")
        assert receipts(it) == (["a", "next"] if path == "/v1/ack" else ["next"])

    talk(story)


@pytest.mark.parametrize("rest", [b"X", b"\0", b"\x16\x03\x01", b"BREW / HTTP/1.1\r\n\r\n", b"GET / HTTP/9\r\n\r\n"])
def test_parser_error_is_answered_behind_the_answers_of_requests_before_it(rest):
    async def story(it):
        publish = {"queue": "q", "messages": [{"payload": 1}]}
        it.writer.write(request("POST", "/v1/publish", publish) + request("POST", "/v1/ack", ACK) + rest)
        assert [(await it.answer())[0] for _ in range(2)] == [201, 200]
        status, headers, body = await it.answer()
        assert (status, headers["connection"], headers["content-type"]) == (400, "close", "application/json")
        assert json.loads(body)["error"]["code"] == "invalid_request"
        assert await it.reader.read() == b""

    talk(story)


def test_parser_error_is_answered_behind_a_long_poll():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}) + HIDDEN + b"\0")
        await it.broker.parked.wait()
        it.broker.arrived.set()
        assert [(await it.answer())[0] for _ in range(3)] == [200, 200, 400]
        assert await it.reader.read() == b""

    talk(story)


# -- the reader, without sockets ----------------------------------------------------------------------------------


class Read:
    """The outcome of feeding a reader: requests as (method, path, body), refusals as statuses."""

    def __init__(self, data: bytes, step: int | None = None, path: str = "/v1/ws"):
        self.reader = RequestReader(lambda asked: asked == path)
        self.received: list = []
        for at in range(0, len(data), step or max(1, len(data))):
            self.received += self.reader.feed(data[at : at + (step or len(data))])

    @property
    def seen(self) -> list:
        return [_seen(each) for each in self.received]


def _seen(received):
    if isinstance(received, Refusal):
        return STATUS[received.error.code].http
    if isinstance(received, Request):
        return received.method, received.path, received._body
    return type(received).__name__


POST = b"POST /p HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /g HTTP/1.1\r\nHost: localhost\r\n\r\n"
OPEN = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
LENGTH, CHUNKED = b"Content-Length: 3\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"
H2C = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
ABC, NEXT = ("POST", "/p", b"abc"), ("GET", "/g", b"")


@pytest.mark.parametrize("step", [None, 1, 2, 3, 7])
@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (GET * 3, [NEXT] * 3),
        (b"\r\n\r\n" + GET, [NEXT]),
        (POST + LENGTH + b"abc" + GET, [ABC, NEXT]),
        (POST + CHUNKED + b"2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n" + GET, [ABC, NEXT]),
        (POST + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n" + GET, [("POST", "/p", b""), NEXT]),
        (POST + H2C + LENGTH + b"abc" + GET, [ABC, NEXT]),
        (POST + H2C + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n" + GET, [ABC, NEXT]),
        (OPEN + b"\r\n" + GET, ["Handshake"]),
        (OPEN + b"Content-Length: 3\r\n\r\nabc" + GET, [("GET", "/v1/ws", b"abc"), NEXT]),
        (OPEN.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + GET, [("GET", "/v1/ws", b"")]),
        (OPEN.replace(b"GET", b"POST") + b"\r\n" + GET, [("POST", "/v1/ws", b""), NEXT]),
        (OPEN.replace(b"/v1/ws", b"/other") + b"\r\n" + GET, [("GET", "/other", b""), NEXT]),
        (OPEN.replace(b"websocket\r", b"websocket, h2c\r") + b"\r\n", ["Handshake"]),
        (POST + b"Expect: 100-continue\r\n" + LENGTH + b"abc" + GET, ["Continue", ABC, NEXT]),
        (POST + b"Expect: 100-continue\r\n\r\n" + GET, [("POST", "/p", b""), NEXT]),
        (POST + b"Connection: close\r\n\r\n" + GET, [("POST", "/p", b"")]),
        (GET.replace(b"1.1", b"1.0") + GET, [NEXT]),
        (GET.replace(b"1.1\r\n", b"1.0\r\nConnection: keep-alive\r\n") + GET, [NEXT]),
        (GET.replace(b"1.1", b"2.0") + GET, [400]),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n" + GET, [501]),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + GET, [501]),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n" + GET, [501]),
        (POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
        (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET, [400]),
        (POST + H2C + b"Content-Length: 1\r\n" + CHUNKED + b"0\r\n\r\n", [400]),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET, [400]),
        (OPEN.replace(b"/v1/ws", b"?x") + b"\r\n", [400]),
        (GET + b"\0" + GET, [NEXT, 400]),
    ],
)  # fmt: skip
def test_requests_are_the_same_however_they_are_cut(data, seen, step):
    assert Read(data, step).seen == seen


def test_unknown_method_is_not_implemented_and_garbage_is_invalid():
    assert Read(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n").seen == [501]
    assert Read(b"\x16\x03\x01\x02\x00\x01").seen == [400]
    assert Read(b"nonsense\r\n\r\n").seen == [400]


def test_bytes_behind_a_handshake_belong_to_the_websocket():
    (handshake,) = Read(OPEN + b"\r\n\x81\x80abcd").received
    assert handshake.rest == b"\x81\x80abcd"


def test_host_of_an_absolute_target_counts():
    (request,) = Read(b"GET http://evil.example:80/g HTTP/1.1\r\nHost: localhost\r\n\r\n").received
    assert (request.path, request.fields.hosts) == ("/g", [b"evil.example:80"])
    (request,) = Read(b"GET http://[::1]/g HTTP/1.1\r\nHost: localhost\r\n\r\n").received
    assert request.fields.hosts == [b"[::1]"]


@pytest.mark.parametrize("step", [None, 1000, 65_536])
def test_heads_are_bounded_however_they_are_cut(step):
    room = limits.HEADER_BYTES_MAX - 1000
    assert Read(b"GET /g HTTP/1.1\r\nHost: a\r\nX: " + b"x" * room + b"\r\n\r\n", step).seen == [NEXT]
    for head in (b"GET /g HTTP/1.1\r\nX: " + b"x" * limits.HEADER_BYTES_MAX, b"GET /" + b"x" * limits.HEADER_BYTES_MAX):
        assert Read(head + b" HTTP/1.1\r\nHost: a\r\n\r\n" + GET, step).seen[0] == 431
        assert not Read(head, 10_000).seen, "the bound is that of the head, not of the segments"
        assert Read(head + b"x" * limits.HEADER_BYTES_MAX, 10_000).seen == [431]
    many = b"GET /g HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * (limits.HEADER_BYTES_MAX // 5) + b"\r\n"
    assert Read(many, step).seen == [431]


def test_head_behind_a_large_body_is_not_taken_for_a_large_head():
    body = b"x" * (4 * limits.HEADER_BYTES_MAX)
    data = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + GET
    reader = Read(data[:-10])
    assert reader.seen == [("POST", "/p", body)]
    assert [_seen(each) for each in reader.reader.feed(data[-10:])] == [NEXT]


@pytest.mark.parametrize("part", [b"0\r\nT: ", b"1;x=", b"0"])
def test_trailers_and_chunk_extensions_are_bounded(part):
    data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + part + b"0" * (3 * limits.HEADER_BYTES_MAX)
    assert Read(data, 1000).seen == [431]


def test_body_that_is_announced_too_large_is_refused():
    large = limits.REQUEST_BYTES_MAX + 1
    assert Read(POST + b"Content-Length: %d\r\n\r\n" % large).seen == [], "the client gets to send it"
    assert Read(POST + b"Content-Length: %d\r\n\r\n" % large + b"x" * large, 1 << 20).seen == [413]
    assert Read(POST + b"Content-Length: %d\r\n\r\n" % (limits.DISCARD_BYTES_MAX + 1)).seen == [413]
    assert Read(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % large).seen == [413]


def test_body_that_grows_too_large_is_refused_and_not_kept():
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert Read(head + chunk * 12 + b"0\r\n\r\n", 1 << 20).received[0].size == limits.REQUEST_BYTES_MAX
    reading = Read(head + chunk * 20, 1 << 20)
    assert reading.seen == [] and not reading.reader._body
    assert Read(head + chunk * 20 + b"0\r\n\r\n", 1 << 20).seen == [413]
    assert Read(head + chunk * 100, 1 << 20).seen == [413]


# -- in order -----------------------------------------------------------------------------------------------------


def test_100_continue_is_sent_in_its_turn():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        head, _, body = request("POST", "/v1/ack", ACK, "Expect: 100-continue").partition(b"\r\n\r\n")
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}) + head + b"\r\n\r\n")
        await it.broker.parked.wait()
        it.broker.arrived.set()
        assert [(await it.answer())[0] for _ in range(2)] == [200, 100]
        it.writer.write(body)
        assert (await it.answer())[0] == 200

    talk(story)


def test_client_that_waits_for_100_continue_behind_a_long_poll_has_not_stalled(monkeypatch):
    monkeypatch.setattr(limits, "BODY_STALL_MS", 20)

    async def story(it):
        it.broker.stored["default/default/q"] = []
        head, _, body = request("POST", "/v1/ack", ACK, "Expect: 100-continue").partition(b"\r\n\r\n")
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}) + head + b"\r\n\r\n")
        await it.broker.parked.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.reader.read(1), 0.1)
        monkeypatch.setattr(limits, "BODY_STALL_MS", 20_000)
        it.broker.arrived.set()
        assert [(await it.answer())[0] for _ in range(2)] == [200, 100]
        it.writer.write(body)
        assert (await it.answer())[0] == 200

    talk(story)
