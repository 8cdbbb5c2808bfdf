"""The batch frame: build, read and slice. Grammar: docs/formats/batch.md.

A `Batch` is a view of a buffer: opening it reads a header of sixteen bytes and records the start of each column.
`Batch.open` proves that the frame is well formed (every offset inside the frame, none decreasing), so later accesses
need no checks. `check.py` holds the further rules for frames of clients.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import sub
from typing import Literal, TypeAlias

from penstock import limits
from penstock.batch import layout
from penstock.errors import InvalidRequest

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEADER_BYTES = layout.HEADER.size
_read_header = layout.HEADER.unpack_from
_MAGIC, _VERSION = layout.MAGIC, layout.VERSION
_KIND_MASK, _KIND_MIXED, _PAYLOAD_KIND = layout.KIND_MASK, layout.KIND_MIXED, layout.PAYLOAD_KIND
_FLAGS = frozenset(flags for flags in range(2 * layout.FLAG_CHECKED) if flags & _KIND_MASK != _KIND_MASK)
_COUNT_MAX = limits.BATCH_MESSAGES_MAX
_FORMATS: dict[int, Literal["q", "i", "B"]] = {8: "q", 4: "i", 1: "B"}


@lru_cache(maxsize=256)
def _columns_of(columns: int) -> tuple[list[tuple[int, int]], list[int]]:
    """The columns before the payloads: (column, width) of each fixed one, and the variable ones."""
    fixed = [(1 << bit, layout.fixed_width(bit)) for bit in range(layout.VAR_SHIFT) if columns >> bit & 1]
    return fixed, [1 << bit for bit in range(layout.VAR_SHIFT, 32) if columns >> bit & 1]


class BadBatch(InvalidRequest):
    """The bytes are not a batch frame; the message names the broken rule."""


class Batch:
    """A frame, or a run of consecutive messages of one. Immutable.

    A run is a pair of row bounds on its frame. `frame` encodes a run as a separate frame on first use; access to single
    messages does not.
    """

    __slots__ = (
        "_bytes", "_first", "_frame", "_offsets", "_payload_base", "_payload_offsets", "_positions", "_total",
        "columns", "count", "flags",
    )  # fmt: skip

    count: int
    flags: int
    columns: int

    def __init__(
        self, whole: Buffer, total: int, flags: int, columns: int, positions: dict[int, int],
        offsets: memoryview, payload_base: int, first: int, count: int,
    ):  # fmt: skip
        self.count = count
        self.flags = flags
        self.columns = columns
        self._bytes = whole
        self._total = total
        self._first = first
        """Row of the frame at which this run begins."""
        self._positions = positions
        self._offsets = offsets
        """Offsets of all payloads of the frame."""
        self._payload_offsets = offsets if count == total else offsets[first : first + count + 1]
        self._payload_base = payload_base
        """Byte of the frame that payload offset 0 refers to."""
        self._frame = whole if count == total else None

    @property
    def frame(self) -> Buffer:
        """The encoded frame."""
        if self._frame is None:
            self._frame = self._cut_out()
        return self._frame

    @classmethod
    def open(cls, frame: Buffer, *, known: bool = False) -> Batch:
        """Check the structure and index the columns. Cost: the header, plus C-speed passes over the offsets.

        `known` skips the passes, for bytes that were checked before: sliced from a frame, built here, or stored with a
        checksum.
        """
        view = memoryview(frame)
        size = len(view)
        if size < _HEADER_BYTES:
            raise BadBatch(f"a batch frame has a header of {_HEADER_BYTES} bytes, this one ends after {size}")
        magic, version, flags, count, columns, length = _read_header(view)
        if (
            magic != _MAGIC
            or version != _VERSION
            or length != size
            or not 1 <= count <= _COUNT_MAX
            or flags not in _FLAGS
            or (flags & _KIND_MASK == _KIND_MIXED) != bool(columns & _PAYLOAD_KIND)
        ):
            raise _bad_header(magic, version, flags, count, length, size)
        if not known:
            _check_columns(view, count, columns)
        positions: dict[int, int] = {}
        at = _HEADER_BYTES
        try:
            if columns:
                fixed, variable = _columns_of(columns)
                for column, width in fixed:
                    positions[column] = at
                    at += width * count
                for column in variable:
                    positions[column] = at
                    offsets = view[at : at + 4 * (count + 1)].cast("I")
                    at += 4 * (count + 1) + offsets[count] - offsets[0]
            data = at + 4 * (count + 1)
            offsets = view[at:data].cast("I")
            base = data - offsets[0]
            if base + offsets[count] != size:
                raise BadBatch("the frame is longer or shorter than its columns")
        except (IndexError, TypeError):
            raise BadBatch("the frame ends inside a column's offsets") from None
        return cls(frame, count, flags, columns, positions, offsets, base, 0, count)

    # -- columns ------------------------------------------------------------------------------------------------------

    def has(self, column: int) -> bool:
        return bool(self.columns & column)

    def integers(self, column: int) -> memoryview:
        """A fixed column as a view of integers. The column must be present."""
        width = layout.fixed_width(column.bit_length() - 1)
        at = self._positions[column] + width * self._first
        return memoryview(self._bytes)[at : at + width * self.count].cast(_FORMATS[width])

    def strings(self, column: int) -> list[bytes]:
        """A variable column as bytes, one per message; empty means absent. The column must be present."""
        offsets, base = self._var(column)
        return _pieces(memoryview(self._bytes), offsets.tolist(), base)

    def string(self, column: int, row: int) -> bytes:
        """One value of a variable column, or empty if the column is absent."""
        if column not in self._positions:
            return b""
        offsets, base = self._var(column)
        return memoryview(self._bytes)[base + offsets[row] : base + offsets[row + 1]].tobytes()

    def _var(self, column: int) -> tuple[memoryview, int]:
        """The offsets of this run's rows, and the byte of the frame that offset 0 refers to."""
        at = self._positions[column]
        view = memoryview(self._bytes)
        base = at + 4 * (self._total + 1) - int.from_bytes(view[at : at + 4], "little")
        at += 4 * self._first
        return view[at : at + 4 * (self.count + 1)].cast("I"), base

    def raw(self, column: int) -> tuple[memoryview, memoryview]:
        """(offsets, data) of a variable column as stored in the frame, or of the payloads if `column` is 0.

        The offsets are relative: the data begins at the first one.
        """
        offsets, base = self._var(column) if column else (self._payload_offsets, self._payload_base)
        return offsets, memoryview(self._bytes)[base + offsets[0] : base + offsets[self.count]]

    def located(self, column: int) -> tuple[memoryview, int]:
        """(offsets, base) of a variable column, or of the payloads if `column` is 0: the value of a row is in the bytes
        `base + offsets[row]` to `base + offsets[row + 1]` of the frame. Not for a run, which has no frame yet."""
        assert self.count == self._total
        return self._var(column) if column else (self._payload_offsets, self._payload_base)

    # -- payloads -----------------------------------------------------------------------------------------------------

    @property
    def payload_offsets(self) -> memoryview:
        return self._payload_offsets

    def payload(self, row: int) -> bytes:
        offsets, base = self._payload_offsets, self._payload_base
        return bytes(memoryview(self._bytes)[base + offsets[row] : base + offsets[row + 1]])

    def payloads(self) -> list[bytes]:
        return _pieces(memoryview(self._bytes), self._payload_offsets.tolist(), self._payload_base)

    def payload_bytes(self, first: int = 0, stop: int | None = None) -> int:
        """Bytes of the payloads of rows `first` to `stop`."""
        offsets = self._payload_offsets
        return int(offsets[self.count if stop is None else stop] - offsets[first])

    def payload_bytes_max(self) -> int:
        offsets = self._payload_offsets.tolist()
        longest: int = max(map(sub, offsets[1:], offsets))
        return longest

    def is_json(self, row: int) -> bool:
        kind = self.flags & layout.KIND_MASK
        if kind == layout.KIND_MIXED:
            return bool(self.integers(layout.PAYLOAD_KIND)[row] == layout.KIND_JSON)
        return kind == layout.KIND_JSON

    def kinds(self) -> Sequence[int]:
        """0 (bytes) or 1 (JSON) per message, from the column or from the flags."""
        kind = self.flags & layout.KIND_MASK
        return self.integers(layout.PAYLOAD_KIND) if kind == layout.KIND_MIXED else bytes([kind]) * self.count

    @property
    def checked(self) -> bool:
        """True if the server has parsed every JSON payload."""
        return bool(self.flags & layout.FLAG_CHECKED)

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run(self, first: int, stop: int) -> Batch:
        """The run of messages `first` to `stop` (exclusive); the batch itself if it is all of them."""
        if first == 0 and stop == self.count:
            return self
        assert 0 <= first < stop <= self.count
        return self._rows(self._first + first, stop - first)

    def gap_to(self, later: Batch) -> tuple[int, int] | None:
        """The number of messages and of their payload bytes between this run and a later run of the same frame; None if
        `later` is not such a run."""
        end = self._first + self.count
        if later._bytes is not self._bytes or later._first < end:
            return None
        return later._first - end, self._offsets[later._first] - self._offsets[end]

    def up_to(self, later: Batch) -> Batch:
        """The run from the first message of this run to the last message of a later run of the same frame."""
        return self if later is self else self._rows(self._first, later._first + later.count - self._first)

    def _rows(self, first: int, count: int) -> Batch:
        """The run of these rows of the frame."""
        return Batch(
            self._bytes, self._total, self.flags, self.columns, self._positions, self._offsets, self._payload_base,
            first, count,
        )  # fmt: skip

    def with_integers(self, column: int, values: Sequence[int], *, without: int = 0) -> Batch:
        """The same messages in a separate frame with this fixed column, instead of their own if they have it, and
        without another one."""
        width = layout.fixed_width(column.bit_length() - 1)
        return Batch.open(self._cut_out({column: array(_FORMATS[width], values).tobytes()}, without), known=True)

    def _cut_out(self, replaced: Mapping[int, bytes] = {}, without: int = 0) -> bytes:
        """Encode the messages of this run as a separate frame, with these fixed columns instead of their own."""
        view = memoryview(self._bytes)
        parts: list[Buffer] = [b""]
        columns = 0
        for column in sorted({*self._positions, *replaced} - {without}):
            columns |= column
            if column in replaced:
                parts.append(replaced[column])
            elif column.bit_length() <= layout.VAR_SHIFT:
                parts.append(self.integers(column).cast("B"))
            else:
                offsets, base = self._var(column)
                parts += (offsets.cast("B"), view[base + offsets[0] : base + offsets[self.count]])
        offsets, base = self._payload_offsets, self._payload_base
        parts += (offsets.cast("B"), view[base + offsets[0] : base + offsets[self.count]])
        size = layout.HEADER.size + sum(map(len, parts))
        parts[0] = layout.HEADER.pack(layout.MAGIC, layout.VERSION, self.flags, self.count, columns, size)
        return b"".join(parts)

    def pick(self, rows: Sequence[int]) -> Batch:
        """Encode these rows, in this order, as a separate frame. Costs work per message."""
        flags = self.flags
        kinds = self.kinds() if flags & layout.KIND_MASK == layout.KIND_MIXED else None
        payloads = self.payloads()
        columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
        for column in self._positions:
            if column == layout.PAYLOAD_KIND:
                continue
            values = self.integers(column) if column < 1 << layout.VAR_SHIFT else self.strings(column)
            columns[column] = [values[row] for row in rows]  # type: ignore[assignment]
        frame = build(
            [payloads[row] for row in rows],
            kind=flags & layout.KIND_MASK,
            kinds=None if kinds is None else [kinds[row] for row in rows],
            columns=columns,
            checked=self.checked,
        )
        return Batch.open(frame, known=True)

    def split(self, parts: Sequence[Sequence[int]]) -> list[Batch]:
        """Encode the rows of each part, in their order, as a separate frame. Work per message is done once for all
        parts together."""
        ordered = self.pick([row for rows in parts for row in rows])
        if len(parts) == 1:
            return [ordered]
        batches, first = [], 0
        for rows in parts:
            part = ordered.run(first, first + len(rows))
            # A frame of its own: a run would keep the messages of the other parts in memory.
            batches.append(Batch.open(part.frame, known=True))
            first += len(rows)
        return batches


def build(
    payloads: Sequence[bytes],
    *,
    kind: int = layout.KIND_JSON,
    kinds: Sequence[int] | None = None,
    columns: dict[int, Sequence[int] | Sequence[bytes]] | None = None,
    checked: bool = False,
    offsets: Sequence[int] | None = None,
) -> bytes:
    """Build a frame of these payloads. `columns` maps a column's bit to one value per message.

    `kinds` (0 bytes, 1 JSON, per message) is for mixed batches; otherwise `kind` holds for all. `offsets`, if the
    caller has computed them, are the start of each payload, relative to the first, and the end of the last.
    """
    count = len(payloads)
    if not count:
        raise BadBatch("a batch has at least one message")
    assert offsets is None or len(offsets) == count + 1
    present = 0
    size = layout.HEADER.size
    parts: list[Buffer] = [b""]
    if kinds is not None:
        if len(set(kinds)) == 1:
            kind, kinds = kinds[0], None
        else:
            kind = layout.KIND_MIXED
            columns = {**(columns or {}), layout.PAYLOAD_KIND: kinds}
    if columns:
        for column in sorted(columns):
            values = columns[column]
            assert len(values) == count
            present |= column
            bit = column.bit_length() - 1
            if bit < layout.VAR_SHIFT:
                width = layout.fixed_width(bit)
                parts.append(array(_FORMATS[width], values).tobytes())  # type: ignore[arg-type]
                size += width * count
            else:
                size += _add_var(parts, values)  # type: ignore[arg-type]
    size += _add_var(parts, payloads, offsets)
    if size > limits.BATCH_BYTES_MAX:
        raise BadBatch(f"a batch of {size} bytes is over the limit of {limits.BATCH_BYTES_MAX}; send it in parts")
    flags = kind | (layout.FLAG_CHECKED if checked else 0)
    parts[0] = layout.HEADER.pack(layout.MAGIC, layout.VERSION, flags, count, present, size)
    return b"".join(parts)


def _add_var(parts: list[Buffer], values: Sequence[bytes], offsets: Sequence[int] | None = None) -> int:
    """Add a variable column; returns its size."""
    if offsets is None:
        offsets = offsets_of(values)
    try:
        parts.append(array("I", offsets).tobytes())
    except OverflowError:
        raise BadBatch(f"a batch is over the limit of {limits.BATCH_BYTES_MAX} bytes; send it in parts") from None
    parts.extend(values)
    return 4 * len(offsets) + offsets[-1]


def offsets_of(values: Iterable[bytes]) -> list[int]:
    """The start of each value in their concatenation, and the end of the last."""
    return list(accumulate(map(len, values), initial=0))


def _pieces(view: memoryview, offsets: list[int], base: int) -> list[bytes]:
    """The bytes between consecutive offsets; `base` is the position of offset 0."""
    begin = offsets[0]
    raw = view[base + begin : base + offsets[-1]].tobytes()
    if begin:
        return [raw[a - begin : b - begin] for a, b in pairwise(offsets)]
    return [raw[a:b] for a, b in pairwise(offsets)]


def _bad_header(magic: bytes, version: int, flags: int, count: int, length: int, size: int) -> BadBatch:
    """The error for an invalid header."""
    if magic != _MAGIC:
        return BadBatch("this is not a batch frame: it does not start with 'PB'")
    if version != _VERSION:
        return BadBatch(f"batch frame version {version} is not supported (supported: {_VERSION})")
    if length != size:
        return BadBatch(f"the header declares {length} bytes, but the frame has {size}")
    if not 1 <= count <= _COUNT_MAX:
        return BadBatch(f"a batch has 1 to {_COUNT_MAX} messages, not {count}")
    if flags not in _FLAGS:
        return BadBatch(f"unknown flags {flags:#x} in a batch frame")
    return BadBatch("column payload_kind must be present exactly if the flag for mixed kinds is set")


def _check_columns(view: memoryview, count: int, columns: int) -> None:
    """Refuse a frame that is shorter than its columns, and decreasing offsets."""
    fixed, variable = _columns_of(columns)
    at = _HEADER_BYTES + sum([width * count for _, width in fixed])
    for _ in (*variable, "payload"):
        at = _var_end(view, at, count)


def _var_end(view: memoryview, at: int, count: int) -> int:
    """The end of the variable column that starts at `at`; refuses offsets outside the frame and decreasing ones."""
    data = at + 4 * (count + 1)
    if data > len(view):
        raise BadBatch("the frame ends inside a column's offsets")
    offsets = view[at:data].cast("I").tolist()
    first, last = offsets[0], offsets[-1]
    # Sorting a sorted list is one pass of comparisons in C: the cheapest test for monotonicity.
    if sorted(offsets) != offsets:
        raise BadBatch("offsets of a column go backwards")
    end: int = data + last - first
    if end > len(view):
        raise BadBatch("the frame ends inside a column's data")
    return end
