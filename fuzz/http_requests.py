"""The HTTP parser of a connection."""

from __future__ import annotations

from penstock.transports.http.framing import Handshake, Received, Refusal, RequestReader
from penstock.transports.http.request import Request


def http_requests(data: bytes) -> None:
    """Invariant: any bytes are requests and at most one refusal, at the end; the same in one piece and byte by byte."""
    whole, rest = _received(data, len(data))
    assert (whole, rest) == _received(data, 1)
    assert "refused" not in whole[:-1]


def _received(data: bytes, step: int) -> tuple[list[object], bytes]:
    """The received requests, and the bytes that belong to a WebSocket."""
    reader = RequestReader(lambda path: path == "/v1/ws")
    found: list[object] = []
    rest = b""
    for at in range(0, len(data), max(1, step)):
        if any(isinstance(each, tuple) and each[0] == "handshake" for each in found):
            rest += data[at : at + step]  # the WebSocket's
        for each in reader.feed(data[at : at + step]):
            found.append(_shown(each))
            if isinstance(each, Handshake):
                rest = each.rest
    return found, rest


def _shown(received: Received) -> object:
    if isinstance(received, Refusal):
        return "refused"
    if isinstance(received, Handshake):
        return "handshake", received.request.path
    if isinstance(received, Request):
        must_close, headers = received.must_close, received.fields.headers
        return received.method, received.path, received.query, list(headers), received._body, must_close
    return "continue"


_HEAD = b"POST /v1/publish?a=b HTTP/1.1\r\nHost: localhost\r\n"
SEEDS = [
    _HEAD
    + b"Content-Length: 3\r\n\r\nabc"
    + _HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: v\r\n\r\n",
    _HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    _HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
    b"GET /v1/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x80abcd",
]
