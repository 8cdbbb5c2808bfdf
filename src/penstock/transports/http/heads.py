"""Heads of requests that were read before.

A client says the same over and over: what differs from one request to the next is a number in the query and the length
of the body. The parser takes every head apart anew, with a call for each header. So what a block of headers means is
remembered under its bytes, and a request that comes whole is recognised by them.

Nothing is understood here that the parser has not understood before. A request line has to be of the plainest form, and
the block has to be known byte for byte, but for the digits of its `Content-Length`; everything else is the parser's.
ADR 0031 has the measurements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from penstock.transports.http.fields import Fields

KNOWN_MAX = 256
"""Blocks that are remembered. Beyond that the oldest goes: it is learned again if it is still in use."""
LINE_BYTES_MAX = BLOCK_BYTES_MAX = 2048
STRANGE_MAX = 32
"""Blocks in a row that were new, after which it is not worth looking any further on a connection: there is something in
them that is never the same."""

# Neither `//` in front, which would be a host, nor anything that a parser might want to have a say in.
_LINE = re.compile(
    rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/(?!/)[A-Za-z0-9/._~%:@!$&'()*+,;=-]*)"
    rb"(?:\?([A-Za-z0-9/._~%:@!$&'()*+,;=?-]*))? HTTP/1\.1\r\n"
)
_LENGTH = re.compile(rb"^content-length: ([0-9]{1,9})(?=\r|\Z)", re.IGNORECASE | re.MULTILINE)


class Head(NamedTuple):
    method: str
    path: str
    query: bytes
    fields: Fields
    body_at: int


class _Parts(NamedTuple):
    line: re.Match[bytes]
    block: bytes
    """Without the digits of its length."""
    length: bytes
    """Those digits; empty: there were none."""
    body_at: int

    @property
    def known_as(self) -> tuple[bytes, bool]:
        """A block that never had digits is not one that they were taken from, even if it looks the same now."""
        return self.block, bool(self.length)


class Heads:
    """What one server remembers."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bool], Fields] = {}

    def find(self, data: bytes) -> Head | None:
        """The head of the one request that `data` is, from its first byte to its last. None: ask the parser."""
        parts = _parts(data)
        if parts is None:
            return None
        fields = self._known.get(parts.known_as)
        if fields is None or len(data) - parts.body_at != int(parts.length or b"0"):
            return None
        method, path, query = parts.line.groups(b"")
        text = path.decode("ascii")
        return Head(method.decode("ascii"), unquote(text) if "%" in text else text, query, fields, parts.body_at)

    def learn(self, data: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """`data` begins with a head that has these headers, says the parser, and nothing about it is special.

        True if that was new.
        """
        parts = _parts(data)
        if parts is None or parts.known_as in self._known or not _is_plain(parts, headers):
            return False
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[parts.known_as] = Fields([each for each in headers if each[0] != b"content-length"])
        return True


def _parts(data: bytes) -> _Parts | None:
    line = _LINE.match(data, 0, LINE_BYTES_MAX)
    if line is None:
        return None
    begin = line.end()
    end = data.find(b"\r\n\r\n", begin, begin + BLOCK_BYTES_MAX)
    if end < 0:
        return None
    block = data[begin:end]
    length = _LENGTH.search(block)
    if length is None:
        return _Parts(line, block, b"", end + 4)
    first, stop = length.span(1)
    return _Parts(line, block[:first] + block[stop:], length[1], end + 4)


def _is_plain(parts: _Parts, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """One header to a line, the length said once or not at all, and the body has no other measure."""
    block = parts.block
    breaks = block.count(b"\r\n")
    lengths = [value for name, value in headers if name == b"content-length"]
    return (
        len(headers) == breaks + 1
        and block.count(b"\n") == block.count(b"\r") == breaks
        and lengths == ([parts.length] if parts.length else [])
        and all(name != b"transfer-encoding" for name, _ in headers)
    )
