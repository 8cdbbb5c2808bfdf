"""Blocks of HTTP headers that came before, and what they mean.

Both sides of a connection say the same over and over: what differs from one message to the next is its first line and
the length of its body. A parser takes every head apart anew, with a call for each header. So what a block of headers
means is remembered under its bytes, and a message that comes whole is recognised by them.

Nothing is understood here that a parser has not understood before: a block has to be known byte for byte, but for the
digits of its `Content-Length`. ADR 0031 has the measurements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

KNOWN_MAX = 256
"""Blocks that are remembered. Beyond that the oldest goes: it is learned again if it is still in use."""
BLOCK_BYTES_MAX = 2048
STRANGE_MAX = 32
"""Messages in a row that were not recognised, after which it is not worth looking any further on a connection: there is
something in their headers that is never the same."""

_LENGTH = re.compile(rb"^content-length: ([0-9]{1,9})(?=\r|\Z)", re.IGNORECASE | re.MULTILINE)


class Found(NamedTuple, Generic[T]):
    meaning: T
    body_at: int


class HeadBlocks(Generic[T]):
    """What one server remembers, or one connection of a client."""

    __slots__ = ("_known", "_known_max")

    def __init__(self, known_max: int = KNOWN_MAX) -> None:
        self._known: dict[bytes, T] = {}
        self._known_max = known_max

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes, begin: int = 0) -> Found[T] | None:
        """Of the one message that `data` is, to its last byte, with the block at `begin`. None: ask the parser."""
        end = data.find(b"\r\n\r\n", begin, begin + BLOCK_BYTES_MAX)
        if end < 0:
            return None
        block, length = _without_length(data[begin:end])
        meaning = self._known.get(block)
        if meaning is None or len(data) - end - 4 != int(length or b"0"):
            return None
        return Found(meaning, end + 4)

    def learn(self, data: bytes, begin: int, names: Iterable[bytes], meaning: T) -> None:
        """At `begin` is a block with headers of these names, says the parser, each in lower case, and this is what it
        means, whatever the length of the body. Keeps it only if there is no other way to read it."""
        end = data.find(b"\r\n\r\n", begin, begin + BLOCK_BYTES_MAX)
        block, length = _without_length(data[begin:end]) if end >= 0 else (b"", b"")
        if not _is_plain(block, length, list(names)):
            return
        if len(self._known) >= self._known_max:
            del self._known[next(iter(self._known))]
        self._known[block] = meaning


def _without_length(block: bytes) -> tuple[bytes, bytes]:
    """The block without the digits of its length, and those; empty: there is no such header."""
    length = _LENGTH.search(block)
    if length is None:
        return block, b""
    first, stop = length.span(1)
    return block[:first] + block[stop:], length[1]


def _is_plain(block: bytes, length: bytes, names: list[bytes]) -> bool:
    """One header to a line, the length said once or not at all, and the body has no other measure."""
    lines = [line.partition(b":")[0].lower() for line in block.split(b"\r\n")]
    return (
        lines == names
        and block.count(b"\n") == block.count(b"\r") == len(lines) - 1
        and names.count(b"content-length") == bool(length)
        and b"transfer-encoding" not in names
    )
