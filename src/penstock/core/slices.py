"""Values that are too large to be turned into bytes between two commands: taken at once, encoded in slices.

A consistent copy of a million entries is a copy of memory and quick; walking over them is not. So a dump holds `Rows`
and `Later` in the place of large values, which have everything they need and share nothing that changes. `encoded`
writes the dump as one MessagePack value, part by part; the caller may do other work between two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import msgspec

ROWS = 1_000
"""Values of a list that are encoded at once."""
PART_BYTES = 32 * 1024
"""Small values are put together up to this size."""
_encode = msgspec.msgpack.Encoder().encode


class Rows:
    """A list of plain values that is made while it is written."""

    __slots__ = ("count", "values")

    def __init__(self, count: int, values: Iterable[Any]):
        self.count = count
        self.values = values


class Later:
    """A value that is made when it is written."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]):
        self.make = make


def encoded(value: Any) -> Iterator[bytes]:
    """The value as MessagePack, in parts that are each a bounded piece of work."""
    part = bytearray()
    for _ in _write([value], part):
        if len(part) >= PART_BYTES:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)


def encoded_whole(value: Any) -> bytes:
    """The same bytes at once, several times as fast: for callers that need not yield."""
    return _encode_whole(value)


def plain(value: Any) -> Any:
    """The same value with nothing left to be made."""
    if isinstance(value, Rows):
        return [plain(row) for row in value.values]
    if isinstance(value, Later):
        return plain(value.make())
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _write(values: Iterable[Any], out: bytearray) -> Iterator[None]:
    """One value after the other, with a stop behind each piece of work."""
    for value in values:
        if isinstance(value, dict):
            out += map_head(len(value))
            yield from _write(chain.from_iterable(value.items()), out)
            yield
        elif isinstance(value, Rows):
            out += list_head(value.count)
            rows = iter(value.values)
            while part := list(islice(rows, ROWS)):
                out += memoryview(_encode(part))[len(list_head(len(part))) :]
                yield
        elif isinstance(value, Later):
            yield from _write([value.make()], out)
        elif isinstance(value, list | tuple):
            out += list_head(len(value))
            yield from _write(value, out)
        else:
            out += _encode(value)
            if len(out) >= PART_BYTES:
                yield


def _made(value: Any) -> Any:
    """The encodable value for a placeholder of a large value."""
    if isinstance(value, Rows):
        return list(value.values)
    if isinstance(value, Later):
        return value.make()
    raise TypeError(f"{type(value).__name__} has no place in a snapshot")


_encode_whole = msgspec.msgpack.Encoder(enc_hook=_made).encode


def list_head(count: int) -> bytes:
    """The header of a MessagePack list."""
    return _head(count, 0x90, 0xDC)


def map_head(count: int) -> bytes:
    """The header of a MessagePack map."""
    return _head(count, 0x80, 0xDE)


def _head(count: int, small: int, large: int) -> bytes:
    if count < 16:
        return bytes((small | count,))
    if count < 1 << 16:
        return bytes((large,)) + count.to_bytes(2, "big")
    return bytes((large + 1,)) + count.to_bytes(4, "big")
