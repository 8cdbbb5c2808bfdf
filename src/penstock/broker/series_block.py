"""A block of minute series: the values of many keys over one stretch of time. Format: docs/formats/series.md.

A key is a queue, a group of a queue, or the whole server. A key has one array per column, and none for a column without
values. Steps that were never written are unknown, not zero.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from penstock.runtime.latencies import NONE
from penstock.wire import series as wire

MAGIC = b"PSR2"
MAGIC_V1 = b"PSR1"
_HEADER = struct.Struct("<4sII")
"""Magic, length of the index, CRC-32 of the index."""
SUMS = ("published", "delivered", "acked", "dead_lettered")
GAUGES = ("depth", "ready", "leased", "scheduled", "dead")
LATENCIES = (
    "delivery_p50_ms", "delivery_p95_ms", "delivery_p99_ms", "ack_p50_ms", "ack_p95_ms", "ack_p99_ms",
)  # fmt: skip
COLUMNS = (*SUMS, *GAUGES, *LATENCIES)
assert wire.COLUMNS == COLUMNS
"""Sums count messages within a step; gauges are the state at its end; latencies are percentiles of the step, unknown if
nothing was delivered or acked in it. Of steps that were merged, gauges and latencies are the largest."""
WIDTH = len(COLUMNS)
_V1_COLUMNS = (*SUMS, *GAUGES)
UNKNOWN = -1
_EMPTY = [*(0 for _ in (*SUMS, *GAUGES)), *(UNKNOWN for _ in LATENCIES)]
"""The value of each column that has no array."""
NO_LATENCIES = NONE + NONE


class BadBlock(Exception):
    """The bytes are not a block of a known version."""


class _Index(msgspec.Struct, array_like=True):
    start: int
    step: int
    count: int
    keys: dict[str, tuple[int, int]]
    """Key -> offset and length of its values, behind the index."""
    columns: tuple[str, ...] = _V1_COLUMNS


class SeriesRow(NamedTuple):
    minute: int
    values: list[int]


class KeyRows:
    """The rows of one key."""

    __slots__ = ("_count", "columns", "known")

    def __init__(self, count: int):
        self._count = count
        self.known = 0
        """Bit `n` is set if step `n` was recorded."""
        self.columns: list[array[int] | None] = [None] * WIDTH

    def put(self, at: int, values: Sequence[int]) -> None:
        """Set the row of a step. A value of the same step is added to a sum; of the others the larger one stays."""
        is_new = not self.known >> at & 1
        self.known |= 1 << at
        for column, value in enumerate(values):
            cells = self.columns[column]
            if cells is None:
                if value == _EMPTY[column]:
                    continue
                # Four bytes a value are enough for most columns.
                cells = self.columns[column] = array("i", [_EMPTY[column]]) * self._count
            if not is_new:
                value = cells[at] + value if column < len(SUMS) else max(cells[at], value)
            try:
                cells[at] = value
            except OverflowError:
                self.columns[column] = cells = array("q", cells)
                cells[at] = value

    def cell(self, column: int, at: int) -> int:
        cells = self.columns[column]
        return _EMPTY[column] if cells is None else cells[at]

    def steps(self) -> Iterator[int]:
        """The steps that were recorded, in the order of time."""
        return (at for at in range(self._count) if self.known >> at & 1)


class SeriesBlock:
    """`count` steps of `step` minutes each, from the minute `start` on."""

    def __init__(self, start: int, step: int, count: int):
        self.start = start
        self.step = step
        self.count = count
        self.keys: dict[str, KeyRows] = {}

    def put(self, key: str, minute: int, values: Sequence[int]) -> None:
        rows = self.keys.get(key)
        if rows is None:
            rows = self.keys[key] = KeyRows(self.count)
        rows.put((minute - self.start) // self.step, values)

    def rows(self, key: str) -> Iterator[SeriesRow]:
        """The known rows of a key, in the order of time."""
        rows = self.keys.get(key)
        for at in () if rows is None else rows.steps():
            yield SeriesRow(self.start + at * self.step, [rows.cell(column, at) for column in range(WIDTH)])  # type: ignore[union-attr]

    def column(self, key: str, column: int) -> Iterator[tuple[int, int]]:
        """(minute, value) of the known rows of a key."""
        rows = self.keys.get(key)
        for at in () if rows is None else rows.steps():
            yield self.start + at * self.step, rows.cell(column, at)  # type: ignore[union-attr]

    def encode(self) -> bytes:
        parts, places, at = [], {}, 0
        for key, rows in self.keys.items():
            packed = zlib.compress(_packed(rows, self.count), 6)
            parts.append(packed)
            places[key] = at, len(packed)
            at += len(packed)
        index = msgspec.msgpack.encode(_Index(self.start, self.step, self.count, places, COLUMNS))
        return b"".join((_HEADER.pack(MAGIC, len(index), zlib.crc32(index)), index, *parts))


class StoredBlock:
    """An encoded block. Values are decoded one key at a time."""

    def __init__(self, data: bytes):
        """Raises BadBlock."""
        if len(data) < _HEADER.size:
            raise BadBlock("it is shorter than its header")
        magic, size, checksum = _HEADER.unpack_from(data)
        index = data[_HEADER.size : _HEADER.size + size]
        if magic not in (MAGIC, MAGIC_V1) or zlib.crc32(index) != checksum:
            raise BadBlock("its header or its index is damaged")
        try:
            self._index = msgspec.msgpack.decode(index, type=_Index)
        except msgspec.DecodeError as error:
            raise BadBlock(str(error)) from None
        self._values = memoryview(data)[_HEADER.size + size :]
        self._unpack = _unpacked_v1 if magic == MAGIC_V1 else _unpacked

    def rows(self, key: str) -> Iterator[SeriesRow]:
        """Raises BadBlock."""
        place = self._index.keys.get(key)
        if place is not None:
            block = SeriesBlock(self._index.start, self._index.step, self._index.count)
            block.keys[key] = self._decode(*place)
            yield from block.rows(key)

    def open(self) -> SeriesBlock:
        """The block with all its values, to be continued. Raises BadBlock."""
        block = SeriesBlock(self._index.start, self._index.step, self._index.count)
        block.keys = {key: self._decode(*place) for key, place in self._index.keys.items()}
        return block

    def _decode(self, offset: int, size: int) -> KeyRows:
        try:
            content = msgspec.msgpack.decode(zlib.decompress(self._values[offset : offset + size]))
            return self._unpack(content, self._index)
        except (zlib.error, msgspec.DecodeError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise BadBlock(f"the values are damaged: {error}") from None


def _packed(rows: KeyRows, count: int) -> bytes:
    """The known steps as bits, and each column that has values as differences: what changes little compresses well."""
    columns = {
        column: [now - before for before, now in zip((0, *cells), cells, strict=False)]
        for column, cells in enumerate(rows.columns)
        if cells is not None
    }
    return msgspec.msgpack.encode((rows.known.to_bytes(-(-count // 8), "little"), columns))


def _unpacked(content: Any, index: _Index) -> KeyRows:
    known, columns = content
    rows = KeyRows(index.count)
    rows.known = int.from_bytes(known, "little")
    for number, differences in columns.items():
        name = index.columns[number]
        if name in COLUMNS:  # a later version may have more
            rows.columns[COLUMNS.index(name)] = _cells([*accumulate(differences)], index.count)
    return rows


def _unpacked_v1(content: Any, index: _Index) -> KeyRows:
    """All columns behind each other; a step that was not recorded has -1 in all of them."""
    rows, count = KeyRows(index.count), index.count
    if len(content) != count * len(_V1_COLUMNS):
        raise ValueError("the values are incomplete")
    values = [[*accumulate(content[at : at + count])] for at in range(0, len(content), count)]
    for at in range(count):
        if values[0][at] != UNKNOWN:
            rows.put(at, [*(column[at] for column in values), *NO_LATENCIES])
    return rows


def _cells(values: list[int], count: int) -> array[int]:
    if len(values) != count:
        raise ValueError("the values are incomplete")
    try:
        return array("i", values)
    except OverflowError:
        return array("q", values)
