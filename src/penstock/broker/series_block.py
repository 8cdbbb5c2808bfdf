"""A block of minute series: the values of many keys over one stretch of time. Format: docs/formats/series.md.

A key is a queue, a group of a queue, or the whole server. The values of a key are one array, row by row; a row has the
value of each column of one step of time. Rows that were never written are unknown, not zero.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

MAGIC = b"PSR1"
_HEADER = struct.Struct("<4sII")
"""Magic, length of the index, CRC-32 of the index."""
SUMS = ("published", "delivered", "acked", "dead_lettered")
GAUGES = ("depth", "ready", "leased", "scheduled", "dead")
COLUMNS = (*SUMS, *GAUGES)
"""Sums count messages within a step; gauges are the state at its end, or the largest of the steps that were merged."""
WIDTH = len(COLUMNS)
UNKNOWN = -1


class BadBlock(Exception):
    """The bytes are not a block of a known version."""


class _Index(msgspec.Struct, array_like=True):
    start: int
    step: int
    count: int
    keys: dict[str, tuple[int, int]]
    """Key -> offset and length of its values, behind the index."""


class SeriesRow(NamedTuple):
    minute: int
    values: list[int]


class Block:
    """`count` steps of `step` minutes each, from the minute `start` on."""

    def __init__(self, start: int, step: int, count: int):
        self.start = start
        self.step = step
        self.count = count
        self.keys: dict[str, array[int]] = {}

    def put(self, key: str, minute: int, values: tuple[int, ...]) -> None:
        """Set a row. A value of the same step is added to a sum; of a gauge the larger one stays."""
        rows = self.keys.get(key)
        if rows is None:
            rows = self.keys[key] = array("q", [UNKNOWN]) * (self.count * WIDTH)
        first = (minute - self.start) // self.step * WIDTH
        if rows[first] == UNKNOWN:
            rows[first : first + WIDTH] = array("q", values)
            return
        for column, value in enumerate(values):
            now = rows[first + column]
            rows[first + column] = now + value if column < len(SUMS) else max(now, value)

    def rows(self, key: str) -> Iterator[SeriesRow]:
        """The known rows of a key, in the order of time."""
        found = self.keys.get(key)
        if found is not None:
            yield from _known(found, self.start, self.step)

    def encode(self) -> bytes:
        parts, places, at = [], {}, 0
        for key, rows in self.keys.items():
            packed = zlib.compress(_columns(rows), 6)
            parts.append(packed)
            places[key] = at, len(packed)
            at += len(packed)
        index = msgspec.msgpack.encode(_Index(self.start, self.step, self.count, places))
        return b"".join((_HEADER.pack(MAGIC, len(index), zlib.crc32(index)), index, *parts))


class StoredBlock:
    """An encoded block. Values are decoded one key at a time."""

    def __init__(self, data: bytes):
        """Raises BadBlock."""
        if len(data) < _HEADER.size:
            raise BadBlock("it is shorter than its header")
        magic, size, checksum = _HEADER.unpack_from(data)
        index = data[_HEADER.size : _HEADER.size + size]
        if magic != MAGIC or zlib.crc32(index) != checksum:
            raise BadBlock("its header or its index is damaged")
        try:
            self._index = msgspec.msgpack.decode(index, type=_Index)
        except msgspec.DecodeError as error:
            raise BadBlock(str(error)) from None
        self._values = memoryview(data)[_HEADER.size + size :]

    def rows(self, key: str) -> Iterator[SeriesRow]:
        """Raises BadBlock."""
        place = self._index.keys.get(key)
        if place is not None:
            yield from _known(self._decode(*place), self._index.start, self._index.step)

    def open(self) -> Block:
        """The block with all its values, to be continued. Raises BadBlock."""
        block = Block(self._index.start, self._index.step, self._index.count)
        block.keys = {key: self._decode(*place) for key, place in self._index.keys.items()}
        return block

    def _decode(self, offset: int, size: int) -> array[int]:
        try:
            columns = msgspec.msgpack.decode(zlib.decompress(self._values[offset : offset + size]), type=list[int])
        except (zlib.error, msgspec.DecodeError) as error:
            raise BadBlock(f"the values are damaged: {error}") from None
        count = self._index.count
        if len(columns) != count * WIDTH:
            raise BadBlock("the values are incomplete")
        rows = array("q", bytes(8 * count * WIDTH))
        for column in range(WIDTH):
            value = 0
            for row in range(count):
                value += columns[column * count + row]
                rows[row * WIDTH + column] = value
        return rows


def _columns(rows: array[int]) -> bytes:
    """Column by column, each value as the difference to the one before: what changes little compresses well."""
    differences: list[int] = []
    for column in range(WIDTH):
        before = 0
        for value in rows[column::WIDTH]:
            differences.append(value - before)
            before = value
    return msgspec.msgpack.encode(differences)


def _known(rows: array[int], start: int, step: int) -> Iterator[SeriesRow]:
    for at in range(0, len(rows), WIDTH):
        if rows[at] != UNKNOWN:
            yield SeriesRow(start + at // WIDTH * step, rows[at : at + WIDTH].tolist())
