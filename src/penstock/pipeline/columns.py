"""Frames as Arrow: the columns of a frame are already Arrow buffers, so no code runs per message.

Only headers, and payloads with a schema, are parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.batch import Batch, layout
from penstock.ids import ulid_value
from penstock.pipeline.schema import VALUE
from penstock.pipeline.ulids import ulid_column
from penstock.wire.delivery import Run

_decode_headers = msgspec.json.Decoder(list[dict[str, str]]).decode
_decode_json = msgspec.json.Decoder().decode
PAYLOAD = 0


def messages(runs: Sequence[Run], batches: Sequence[Batch], schema: pa.Schema, uuid: str = "") -> pa.RecordBatch:
    """The messages of these runs; of the columns, those that the schema asks for. `uuid` is the queue's."""
    found = _Runs(runs, batches, uuid)
    return pa.RecordBatch.from_arrays([_COLUMNS[field.name](found, field.type) for field in schema], schema=schema)


def hole(partition: int, first: int, stop: int, schema: pa.Schema) -> pa.RecordBatch:
    """A row for a hole: the messages at offsets `first` to `stop` (exclusive) have expired or were cancelled.

    Its id is null, and its key is `stop`. The archive uses it to tell holes from missing rows.
    """
    row = {"partition": partition, "offset": first, "key": str(stop)}
    return pa.RecordBatch.from_arrays([pa.array([row.get(field.name)], field.type) for field in schema], schema=schema)


class _Runs:
    def __init__(self, runs: Sequence[Run], batches: Sequence[Batch], uuid: str):
        self.uuid = uuid
        self.runs = runs
        self.batches = batches
        self.counts = np.array([batch.count for batch in batches], dtype=np.int64)
        self.total = int(self.counts.sum())

    def repeated(self, values: Sequence[int], kind: Any) -> Any:
        return np.repeat(np.array(values, dtype=kind), self.counts)

    def offsets(self) -> Any:
        begins = np.cumsum(self.counts) - self.counts
        return self.repeated([run.offset for run in self.runs], np.int64) + (
            np.arange(self.total) - np.repeat(begins, self.counts)
        )

    def variable(self, column: int) -> tuple[Any, bytes | memoryview]:
        """(offsets from 0, data) of a variable column over all runs; a run that has no such column has empty values."""
        if len(self.batches) == 1 and (column == PAYLOAD or self.batches[0].has(column)):
            raw, data = self.batches[0].raw(column)
            offsets = np.frombuffer(raw, dtype=np.uint32)
            return (offsets - offsets[0]).astype(np.int32), data
        lengths, parts = [], []
        for batch in self.batches:
            if column == PAYLOAD or batch.has(column):
                raw, data = batch.raw(column)
                lengths.append(np.diff(np.frombuffer(raw, dtype=np.uint32)))
                parts.append(data)
            else:
                lengths.append(np.zeros(batch.count, dtype=np.uint32))
        offsets = np.zeros(self.total + 1, dtype=np.int32)
        np.cumsum(np.concatenate(lengths), out=offsets[1:])
        return offsets, b"".join(parts)

    def payloads(self) -> list[bytes]:
        return [payload for batch in self.batches for payload in batch.payloads()]


def _queue(found: _Runs, kind: pa.DataType) -> pa.Array:
    return _repeated(found.runs[0].queue, found.total, kind)


def _queue_uuid(found: _Runs, kind: pa.DataType) -> pa.Array:
    return _repeated(found.uuid, found.total, kind) if found.uuid else pa.nulls(found.total, kind)


def _repeated(value: str, total: int, kind: pa.DataType) -> pa.Array:
    # Not `pa.repeat`: its first call in a process takes 0.4 s.
    text = value.encode()
    offsets = np.arange(0, len(text) * total + 1, len(text), dtype=np.int32)
    return pa.Array.from_buffers(kind, total, [None, pa.py_buffer(offsets), pa.py_buffer(text * total)])


def _partition(found: _Runs, kind: pa.DataType) -> pa.Array:
    return fixed(np.full(found.total, found.runs[0].partition, dtype=np.int32), kind)


def _offset(found: _Runs, kind: pa.DataType) -> pa.Array:
    return fixed(found.offsets(), kind)


def _id(found: _Runs, kind: pa.DataType) -> pa.Array:  # noqa: ARG001
    return ulid_column([ulid_value(run.id) for run in found.runs], found.counts)


def _key(found: _Runs, kind: pa.DataType) -> pa.Array:
    return _text(found, kind, layout.KEY)


def _tenant(found: _Runs, kind: pa.DataType) -> pa.Array:
    return _text(found, kind, layout.TENANT)


def _text(found: _Runs, kind: pa.DataType, column: int) -> pa.Array:
    """A column of text; null for messages without a value."""
    if not any(batch.has(column) for batch in found.batches):
        return pa.nulls(found.total, kind)
    offsets, data = found.variable(column)
    present = np.diff(offsets) > 0
    bits = np.packbits(present, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, found.total, buffers)


def _priority(found: _Runs, kind: pa.DataType) -> pa.Array:
    if not any(batch.has(layout.PRIORITY) for batch in found.batches):
        return fixed(np.zeros(found.total, dtype=np.int64), kind)
    parts = [
        np.frombuffer(batch.integers(layout.PRIORITY), dtype=np.int64)
        if batch.has(layout.PRIORITY)
        else np.zeros(batch.count, dtype=np.int64)
        for batch in found.batches
    ]
    return fixed(np.concatenate(parts), kind)


def _headers(found: _Runs, kind: pa.DataType) -> pa.Array:
    if not any(batch.has(layout.HEADERS) for batch in found.batches):
        return map_array([], kind, found.total)
    texts = [
        text or b"{}"
        for batch in found.batches
        for text in (batch.strings(layout.HEADERS) if batch.has(layout.HEADERS) else [b""] * batch.count)
    ]
    return map_array(_decode_headers(b"[%b]" % b",".join(texts)), kind, found.total)


def _payload(found: _Runs, kind: pa.DataType) -> pa.Array:
    offsets, data = found.variable(PAYLOAD)
    return pa.Array.from_buffers(kind, found.total, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _published_at(found: _Runs, kind: pa.DataType) -> pa.Array:
    return fixed(found.repeated([run.published_at_ms * 1000 for run in found.runs], np.int64), kind)


def _is_json(found: _Runs, kind: pa.DataType) -> pa.Array:
    kinds = b"".join(bytes(batch.kinds()) for batch in found.batches)
    bits = np.packbits(np.frombuffer(kinds, dtype=np.uint8) == layout.KIND_JSON, bitorder="little")
    return pa.Array.from_buffers(kind, found.total, [None, pa.py_buffer(bits)])


def _value(found: _Runs, kind: pa.DataType) -> pa.Array:
    """The parsed JSON payloads; null for a payload of another shape."""
    return parsed(found.payloads(), kind)


_COLUMNS: dict[str, Callable[[_Runs, pa.DataType], pa.Array]] = {
    "queue": _queue,
    "partition": _partition,
    "offset": _offset,
    "id": _id,
    "key": _key,
    "priority": _priority,
    "headers": _headers,
    "payload": _payload,
    "published_at": _published_at,
    "tenant": _tenant,
    "is_json": _is_json,
    "queue_uuid": _queue_uuid,
    VALUE: _value,
}


def fixed(values: Any, kind: pa.DataType) -> pa.Array:
    """A column of fixed width over an array of integers, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


_NO_TEXTS = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(bytes(4)), pa.py_buffer(b"")])


def map_array(values: list[dict[str, str]], kind: pa.MapType, total: int) -> pa.Array:
    """One map per value; empty maps, `total` of them, if there are no values."""
    offsets = np.zeros(total + 1, dtype=np.int32)
    keys = items = _NO_TEXTS
    if values:
        np.cumsum([len(each) for each in values], out=offsets[1:])
        keys = pa.array([key for each in values for key in each], pa.string())
        items = pa.array([item for each in values for item in each.values()], pa.string())
    return pa.MapArray.from_arrays(fixed(offsets, pa.int32()), keys, items, type=kind)


def parsed(payloads: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    values = [_json_or_none(payload) for payload in payloads]
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        # A value of another shape becomes null, as with Spark's from_json.
        return pa.array([value if _fits(value, kind) else None for value in values], kind)


def _json_or_none(payload: bytes) -> Any:
    try:
        value = _decode_json(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        return False
    return True
