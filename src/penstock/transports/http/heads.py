"""Heads of requests, recognised by those that came before (`wire/head_blocks.py`).

A request line has to be of the plainest form, and its headers have to be known; everything else is the parser's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from penstock.transports.http.fields import Fields
from penstock.wire.head_blocks import HeadBlocks

# Neither `//` in front, which would be a host, nor anything that a parser might want to have a say in.
_LINE = re.compile(
    rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/(?!/)[A-Za-z0-9/._~%:@!$&'()*+,;=-]*)"
    rb"(?:\?([A-Za-z0-9/._~%:@!$&'()*+,;=?-]*))? HTTP/1\.1\r\n"
)


class Head(NamedTuple):
    method: str
    path: str
    query: bytes
    fields: Fields
    body_at: int


class Heads:
    """What one server remembers."""

    def __init__(self) -> None:
        self.blocks: HeadBlocks[Fields] = HeadBlocks()

    def find(self, data: bytes) -> Head | None:
        """The head of the one request that `data` is, from its first byte to its last. None: ask the parser."""
        line = _LINE.match(data)
        if line is None:
            return None
        found = self.blocks.find(data, line.end())
        if found is None:
            return None
        method, path, query = line.groups(b"")
        text = path.decode("ascii")
        return Head(
            method.decode("ascii"), unquote(text) if "%" in text else text, query, found.meaning, found.body_at
        )  # fmt: skip

    def learn(self, data: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """`data` begins with a head that has these headers, says the parser, and nothing about it is special."""
        line = _LINE.match(data)
        if line is not None:
            names = [name for name, _ in headers]
            fields = Fields([each for each in headers if each[0] != b"content-length"])
            self.blocks.learn(data, line.end(), names, fields)
