"""Heads of requests that are recognised without the parser."""

from __future__ import annotations

from urllib.parse import unquote

import httptools

from penstock.transports.http.heads import Heads


class Parsed:
    """What the parser says about the first request of these bytes. Raises HttpParserError."""

    def __init__(self, data: bytes):
        self.url = self.body = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.whole = 0
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method().decode()
        self.version = parser.get_http_version()
        self.keep_alive = parser.should_keep_alive()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole:
            self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole += 1


def recognised(data: bytes) -> None:
    """Two requests, with a zero byte between them. If the second is recognised by the first, the parser agrees on
    every word of it."""
    first, _, second = data.partition(b"\0")
    known = Heads()
    try:
        parsed = Parsed(first)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return
    if parsed.version != "1.1" or not parsed.keep_alive or not parsed.whole:
        return
    known.learn(first, parsed.headers)
    found = known.find(second)
    if found is None:
        return
    said = Parsed(second)
    url = httptools.parse_url(said.url)
    assert said.whole == 1 and said.version == "1.1" and said.keep_alive
    assert (found.method, found.path, found.query) == (said.method, unquote(url.path.decode()), url.query or b"")
    assert found.fields.headers == [each for each in said.headers if each[0] != b"content-length"]
    assert second[found.body_at :] == said.body


_POST = b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\nabc"
_GET = b"GET /v1/stats?queue=q HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
SEEDS = [
    _POST + b"\0" + _POST.replace(b"3\r\n\r\nabc", b"4\r\n\r\nabcd"),
    _POST + b"\0" + _POST.replace(b"lease", b"publish?queue=a%2Fb&seq=7"),
    _POST + b"\0" + _POST.replace(b"3\r\n\r\nabc", b"\r\n\r\n"),
    _GET + b"\0" + _GET,
]
