"""The framing of HTTP/1.1 (RFC 9112), without I/O: bytes of one connection to requests.

The parser is llhttp, through `httptools`. This module adds the rules that llhttp does not enforce:

- An offered `Upgrade` that is not taken is ignored (RFC 9110, 7.8). llhttp skips the body of every request that offers
  one, and would read that body as the next request; so the head is read again without the offer, and the body with it.
- Bounds on the size of heads, trailers and bodies, however they are cut into segments.
- A transfer coding other than `chunked` is refused: the body would be stored in encoded form.
- After an error, a handshake, or a request that closes the connection, nothing more is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeAlias
from urllib.parse import unquote

import httptools

from penstock import limits
from penstock.errors import HeadersTooLarge, InvalidRequest, PenstockError, TooLarge, Unimplemented
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request
from penstock.transports.memory_budget import SMALL_BYTES, MemoryBudget

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ ")


class Refusal(NamedTuple):
    """The input is not a request that can be handled. Its answer closes the connection."""

    error: PenstockError


class Handshake(NamedTuple):
    """A request to open a WebSocket, and the bytes after it, which belong to the WebSocket."""

    request: Request
    rest: bytes


class Continue:
    """The client waits for `100 Continue` before it sends the body of its next request."""

    __slots__ = ()


Received: TypeAlias = Request | Refusal | Handshake | Continue


class _Stop(Exception):
    """Raised inside a callback of the parser, to make it stop."""


class RequestReader:
    """One per connection."""

    __slots__ = (
        "_body", "_budget", "_discarding", "_fields", "_head_bytes", "_headers", "_is_upgrade", "_opens_websocket",
        "_parser", "_progressed", "_received", "_size", "_stopped_by", "_unproductive", "_url", "_version",
        "body_bytes", "ended", "heads", "held_bytes", "in_body", "in_head", "units",
    )  # fmt: skip

    def __init__(self, opens_websocket: Callable[[str], bool], budget: MemoryBudget | None = None):
        """`opens_websocket`: whether a WebSocket can be opened at a path."""
        self._opens_websocket = opens_websocket
        self._budget = budget or MemoryBudget()
        self._body: bytes | bytearray = b""
        self._parser = httptools.HttpRequestParser(self)
        self._received: list[Received] = []
        self._stopped_by: PenstockError | None = None
        self.ended = False
        """True: nothing more is read from this connection as HTTP."""
        self.in_head = self.in_body = False
        """True while a part of the head, or of the body, of a request is still to come."""
        self.heads = 0
        """Number of heads received."""
        self.body_bytes = 0
        """Bytes of all bodies received."""
        self.held_bytes = 0
        """Bytes of an incomplete body."""
        self.units = 0
        """Number of parts of bodies and of requests received: a measure of the time that parsing takes."""
        self._progressed = False
        self._unproductive = 0
        """Bytes received since the last callback of the parser."""

    def feed(self, data: bytes) -> list[Received]:
        """The requests that are complete with `data`, in the order of their arrival."""
        if self.ended:
            return []
        at_start = not self.in_head and not self.in_body
        self._progressed = False
        rest: bytes | memoryview = data
        while rest and not self.ended:
            try:
                self._parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]
                self._take_upgrade(rest)
            except httptools.HttpParserError as error:
                self._end(error, data if at_start else b"")
        if self._progressed:
            self._unproductive = 0
        else:
            self._bound(len(data))
        received, self._received = self._received, []
        return received

    # -- the parser's callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._progressed = self.in_head = True
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # otherwise it is a trailer, which has no meaning here
            self._headers.append((name.lower(), value.rstrip(b" \t")))
            self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        self._progressed = True
        self.in_head = False
        self.heads += 1
        self._version = self._parser.get_http_version()
        self._is_upgrade = self._parser.should_upgrade()
        if self._head_bytes > limits.HEADER_BYTES_MAX:
            self._stop(_head_too_large())
        if self._version not in ("1.1", "1.0"):
            self._stop(InvalidRequest("this server supports HTTP/1.1"))
        if self._is_upgrade:
            if self._parser.get_method() == b"CONNECT":
                self._stop(Unimplemented("CONNECT is not implemented: this server is no proxy"))
            return  # `feed` decides about it, when the parser has raised HttpParserUpgrade
        fields = self._fields = Fields(self._headers)
        if fields.transfer_coding:
            self._check_coding(fields.transfer_coding)
        self._body = b""
        self._size = 0
        self.in_body = True
        if fields.content_length > SMALL_BYTES and self._budget.is_full:
            self._stop(self._budget.refusal())
        self._discarding = fields.content_length > limits.REQUEST_BYTES_MAX
        if self._discarding:
            if fields.content_length > limits.DISCARD_BYTES_MAX or fields.expects_continue:
                self._stop(_too_large())
        elif fields.expects_continue and self._version == "1.1" and (fields.content_length or fields.transfer_coding):
            self._received.append(Continue())

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        self.units += 1
        self._size += len(body)
        self.body_bytes += len(body)
        if not self._discarding and self._size <= limits.REQUEST_BYTES_MAX:
            if self._size > SMALL_BYTES and self._budget.is_full:
                self._stop(self._budget.refusal())
            if not self._body:
                self._body = body  # most bodies come in one part, which is not copied
            elif isinstance(self._body, bytes):
                self._body = bytearray(self._body) + body
            else:
                self._body += body
            self.held_bytes = self._size
            return
        self._discarding = True
        self._body, self.held_bytes = b"", 0
        if self._size > limits.DISCARD_BYTES_MAX:
            self._stop(_too_large())

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._progressed = True
        self.units += 1
        self.in_body = False
        if self._discarding:
            self._stop(_too_large())
        body, self._body, self.held_bytes = self._body, b"", 0
        request = self._request(self._fields, bytes(body))
        self._received.append(request)
        if self._version == "1.0" or not self._parser.should_keep_alive():
            request.must_close = True
            self._stop(None)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _take_upgrade(self, rest: memoryview) -> None:
        """Makes a handshake of a request that offers an upgrade; or ignores the offer, and reads the head again.

        `rest` is the input after the head: part of the handshake, or the next input of the parser.
        """
        fields = Fields(self._headers)
        if (
            self._parser.get_method() == b"GET"
            and self._version == "1.1"
            and not fields.content_length
            and not fields.transfer_coding
            and any(name == b"upgrade" and _names_websocket(value) for name, value in self._headers)
        ):
            try:
                request = self._request(fields, b"")
            except _Stop:
                self._end(None)
                return
            if self._opens_websocket(request.path):
                self._received.append(Handshake(request, bytes(rest)))
                self.ended = True
                return
        head = [b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, self._version.encode())]
        head += [b"%b: %b\r\n" % field for field in self._headers if field[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(b"".join(head) + b"\r\n")
        except httptools.HttpParserError as error:
            self._end(error)

    def _request(self, fields: Fields, body: bytes) -> Request:
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            self._stop(InvalidRequest("the target of the request is not a URL", details={"field": "target"}))
        if url.host is not None and len(fields.hosts) == 1:
            fields.hosts = [_authority(url.host, url.port)]  # RFC 9112, 3.2.2: then the Host header does not count
        path = (url.path or b"/").decode("ascii")
        method = self._parser.get_method().decode("ascii")
        return Request(method, unquote(path) if "%" in path else path, url.query or b"", fields, body)

    def _check_coding(self, coding: bytes) -> None:
        if self._version == "1.0":
            self._stop(InvalidRequest("HTTP/1.0 has no transfer codings", details={"field": "transfer-encoding"}))
        if coding.lower() != b"chunked":
            shown = coding[:100].decode("latin-1")
            self._stop(
                Unimplemented(f"transfer coding {shown!r} is not implemented, send chunked or a Content-Length",
                              details={"field": "transfer-encoding"})
            )  # fmt: skip

    def _stop(self, error: PenstockError | None) -> NoReturn:
        self._stopped_by = error
        self.ended = True
        raise _Stop

    def _end(self, error: httptools.HttpParserError | None, opening: bytes = b"") -> None:
        """The parser has stopped. `opening` is the input from the start of a request on, if that is known."""
        stopped = self.ended
        self.ended, self.in_head, self.in_body = True, False, False
        refused = self._stopped_by
        if not stopped:
            refused = InvalidRequest(f"this is not HTTP/1.1: {error}")
            unknown = isinstance(error, httptools.HttpParserInvalidMethodError) and not self._received
            if unknown and (method := _METHOD.match(opening)):
                refused = Unimplemented(f"method {method[0].decode()[:20].rstrip()} is not implemented here")
        if refused is not None:
            self._received.append(Refusal(refused))

    def _bound(self, size: int) -> None:
        """Bound the bytes of a head, a chunk size or a trailer: the parser has no callback for an incomplete one."""
        self._unproductive += size
        if self._unproductive > limits.HEADER_BYTES_MAX and not self.ended:
            self.ended, self.in_head, self.in_body = True, False, False
            self._received.append(Refusal(_head_too_large()))


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"request line and headers of more than {limits.HEADER_BYTES_MAX} bytes are not taken")


def _too_large() -> TooLarge:
    return TooLarge(f"a body of more than {limits.REQUEST_BYTES_MAX} bytes is not taken here; send it in parts")


def _names_websocket(upgrade: bytes) -> bool:
    return any(each.strip() == b"websocket" for each in upgrade.lower().split(b","))


def _authority(host: bytes, port: int | None) -> bytes:
    name = b"[%b]" % host if b":" in host else host
    return name if port is None else b"%b:%d" % (name, port)
