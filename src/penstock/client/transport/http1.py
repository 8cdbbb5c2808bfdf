"""HTTP/1.1 without I/O: a request becomes bytes, bytes become responses. Both pools use the same two pieces.

A connection carries one request at a time, unless the caller asks for another one behind it: a slow answer then delays
no other request, and a connection that breaks leaves exactly one request in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import httptools

from penstock import limits
from penstock._version import __version__
from penstock.client.calls.call import Response
from penstock.errors import InvalidRequest

RESPONSE_BYTES_MAX = 16 * limits.MIB
"""A larger answer is refused while it arrives, so that no server can make a client hold more than this."""
DIRECT_BYTES_MIN = 1 * limits.MIB
"""A body of this size is read into the buffer in which it stays."""
READ_BYTES = 256 * limits.KIB
"""Buffer of a connection. Most answers then arrive in one read; untouched pages of it cost nothing."""
JOIN_BELOW_BYTES = 16 * limits.KIB
"""A head and a body smaller than this are cheaper to join than to send as two."""

assert RESPONSE_BYTES_MAX > limits.LEASE_REPLY_BYTES_MAX + limits.PAYLOAD_BYTES_MAX


class BadResponse(Exception):
    """The answer is not HTTP that this client can read; the connection is of no further use."""

    before: Sequence[Response] = ()
    """The responses that were complete before it."""


class Origin(NamedTuple):
    """Where a server is, taken apart once per client."""

    url: str
    host: str
    port: int
    tls: bool
    prefix: str
    """Path in front of every target, for servers behind a reverse proxy; empty or `/like/this`."""

    @classmethod
    def parse(cls, url: str, scheme: str = "http", port_default: int = 80) -> Origin:
        """Of a URL with this scheme, or with an `s` at its end for TLS. Raises InvalidRequest."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _bad_url(url, str(error)) from None
        if parts.scheme not in (scheme, f"{scheme}s") or not parts.hostname:
            raise _bad_url(url, f"it must look like {scheme}://host:port or {scheme}s://host")
        if parts.username is not None or parts.query or parts.fragment:
            raise _bad_url(url, "it may have neither user, query nor fragment; pass a credential as token=…")
        tls = parts.scheme != scheme
        return cls(_shown(parts), parts.hostname, port or (443 if tls else port_default), tls, parts.path.rstrip("/"))

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def constant_headers(origin: Origin, token: str | None) -> bytes:
    """The header lines that every request of a client has in common."""
    lines = f"Host: {origin.host_header}\r\nUser-Agent: penstock-python/{__version__}\r\n"
    if token is not None:
        if not token.isascii() or not token.isprintable():
            raise InvalidRequest("a token is printable ASCII without line breaks", details={"field": "token"})
        lines += f"Authorization: Bearer {token}\r\n"
    return lines.encode("ascii")


def encode_request(
    method: str, target: str, constant: bytes, *, content_type: str, accept: str, body: bytes
) -> tuple[bytes, bytes]:
    """(head, body) of one request. They stay apart so that a large body is never copied just to prefix it."""
    typed = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if method != "GET" else ""
    return b"%b%b%b" % (
        f"{method} {target} HTTP/1.1\r\n".encode("ascii"),
        constant,
        f"{typed}Accept: {accept}\r\n\r\n".encode("ascii"),
    ), body


class ResponseReader:
    """Bytes of one connection in, responses out. After a BadResponse it must not be used."""

    __slots__ = ("_body", "_complete", "_due", "_header_bytes", "_headers", "_parser", "_size", "_whole", "received")

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._header_bytes = 0
        self._complete: list[Response] = []
        self._due = 1
        self._whole: bytearray | None = None
        self.received = 0
        """Bytes of the current answer so far: tells an answer that broke off from one that never began."""

    def feed(self, data: bytes | memoryview, due: int = 1) -> list[Response]:
        """The responses that are whole now, of so many that are `due`; keeps nothing of `data` itself.

        Raises BadResponse for bytes that answer no request or cannot be read.
        """
        self.received += len(data)
        self._due = due
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise self._bad(str(error.__context__ or error)) from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise self._bad(f"the answer is not HTTP/1.1: {error}") from None
        if not self._complete:
            return []
        responses, self._complete = self._complete, []
        self.received = 0
        return responses

    def _bad(self, why: str) -> BadResponse:
        bad = BadResponse(why)
        bad.before = self._complete
        return bad

    def take_body(self) -> memoryview | None:
        """The buffer for the rest of a large body of known length, instead of feeding it; then call `body_taken`.

        None for other bodies. This saves two copies.
        """
        length = self._headers.get(b"content-length", b"")
        if self._complete or not self._size or not length.isdigit() or int(length) < DIRECT_BYTES_MIN:
            return None
        if int(length) > RESPONSE_BYTES_MAX:
            raise BadResponse(f"the answer is larger than {RESPONSE_BYTES_MAX} bytes")
        whole = bytearray(int(length))
        whole[: self._size] = b"".join(self._body)
        self._body, self._whole = [], whole
        return memoryview(whole)[self._size :]

    def body_taken(self) -> Response:
        """All of it has arrived."""
        assert self._whole is not None
        status, keep_alive = self._parser.get_status_code(), self._parser.should_keep_alive()
        response = Response(status, self._headers, self._whole, keep_alive)
        # The parser would wait for this body for ever.
        self._parser = httptools.HttpResponseParser(self)
        self._whole, self._size, self.received = None, 0, 0
        return response

    # -- called by the parser ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if len(self._complete) == self._due:
            raise BadResponse("the server sent two answers to one request")
        self._headers = {}
        self._body = []
        self._size = self._header_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > limits.HEADER_BYTES_MAX:
            raise BadResponse(f"the answer has more than {limits.HEADER_BYTES_MAX} bytes of headers")
        self._headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > RESPONSE_BYTES_MAX:
            raise BadResponse(f"the answer is larger than {RESPONSE_BYTES_MAX} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # an interim answer; the real one follows
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._complete.append(Response(status, self._headers, body, self._parser.should_keep_alive()))
        self._body = []


def _shown(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _bad_url(url: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{url!r} is not a server address: {reason}", details={"field": "url"})
