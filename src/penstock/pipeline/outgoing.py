"""Rows of Arrow as batch frames: columns are copied as buffers; only JSON payloads and headers are handled per row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import limits
from penstock.batch import Batch, layout
from penstock.batch.check import check_client_frame, check_payload_sizes
from penstock.errors import PenstockError
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline.options import PipelineError

FRAME_BYTES = 4 * limits.MIB
"""Half of the broker's limit: a frame of this size and one more message still fits."""

_is_json = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


class Outgoing(NamedTuple):
    queue: QueuePath
    rows: int
    frame: bytes


def frames(batches: Iterator[pa.RecordBatch], queue: QueuePath | None) -> Iterator[Outgoing]:
    """The rows as frames, in order, one queue after the other within each of Spark's batches."""
    for batch in batches:
        if batch.num_rows:
            for target, rows in _by_queue(batch, queue):
                for part in _parts(rows):
                    yield from _outgoing(target, part)


def _outgoing(queue: QueuePath, rows: pa.RecordBatch) -> Iterator[Outgoing]:
    frame = _frame(rows)
    if len(frame) > limits.BATCH_BYTES_MAX and rows.num_rows > 1:
        # Large keys and headers count too.
        half = rows.num_rows // 2
        yield from _outgoing(queue, rows.slice(0, half))
        yield from _outgoing(queue, rows.slice(half))
        return
    try:
        check_payload_sizes(check_client_frame(Batch.open(frame, known=True)), limits.PAYLOAD_BYTES_MAX)
    except PenstockError as error:
        # Rows that the broker would refuse must fail here: a commit cannot be rolled back.
        raise PipelineError(f"the rows cannot be published: {error.message}") from None
    yield Outgoing(queue, rows.num_rows, frame)


def _by_queue(batch: pa.RecordBatch, queue: QueuePath | None) -> Iterator[tuple[QueuePath, pa.RecordBatch]]:
    if "queue" not in batch.schema.names:
        assert queue is not None, "checked when the writer was made"
        yield queue, batch
        return
    names = batch.column("queue")
    for name in names.unique():
        text = name.as_py()
        if text is None and queue is None:
            raise PipelineError("a row has no queue, and there is no option `queue` for those that have none")
        try:
            target = queue if text is None else parse_queue(text)
        except PenstockError as error:
            raise PipelineError(error.message) from None
        mask = names.is_null() if text is None else pc.equal(names, name)
        assert target is not None
        yield target, batch.filter(mask)


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, cut into parts that fit into a frame."""
    payloads = rows.column("payload")
    if payloads.null_count:
        raise PipelineError("a row has no payload (null): every message has one; filter such rows, or coalesce them")
    ends = np.cumsum(pc.binary_length(payloads).to_numpy(zero_copy_only=False), dtype=np.int64)
    first, count = 0, rows.num_rows
    while first < count:
        before = ends[first - 1] if first else 0
        fits = int(np.searchsorted(ends, before + FRAME_BYTES, side="right"))
        stop = max(first + 1, min(fits, first + limits.BATCH_MESSAGES_MAX, count))
        yield rows.slice(first, stop - first)
        first = stop


def _frame(rows: pa.RecordBatch) -> bytes:
    count, names = rows.num_rows, rows.schema.names
    payload = rows.column("payload")
    columns, parts = 0, []
    kind = layout.KIND_BYTES
    for name, column in (("priority", layout.PRIORITY), ("delay_ms", layout.DELAY_MS)):
        if name in names and rows.column(name).null_count < count:
            columns |= column
            parts.append(_fixed(rows.column(name)))
    is_text = pa.types.is_string(payload.type) or pa.types.is_large_string(payload.type)
    if is_text or "is_json" in names:
        texts = payload.cast(pa.binary()).to_pylist()
        wanted = rows.column("is_json").to_pylist() if "is_json" in names else [None] * count
        kinds = bytes(map(_kind, texts, wanted))
        if len(set(kinds)) > 1:
            kind, columns = layout.KIND_MIXED, columns | layout.PAYLOAD_KIND
            parts.append(kinds)
        else:
            kind = kinds[0]
    if columns & layout.PRIORITY and rows.column("priority").null_count:
        columns |= layout.HAS_PRIORITY
        parts.append(np.asarray(rows.column("priority").is_valid(), dtype=np.uint8).tobytes())
    if "key" in names and rows.column("key").null_count < count:
        columns |= layout.KEY
        parts += _variable(rows.column("key").fill_null(""))
    if "headers" in names and rows.column("headers").null_count < count:
        columns |= layout.HEADERS
        texts = [_encode(dict(each)) if each else b"" for each in rows.column("headers").to_pylist()]
        parts += _variable(pa.array(texts, pa.binary()))
    if "tenant" in names and rows.column("tenant").null_count < count:
        columns |= layout.TENANT
        parts += _variable(rows.column("tenant").fill_null(""))
    parts += _variable(payload)
    size = layout.HEADER.size + sum(map(len, parts))
    return b"".join((layout.HEADER.pack(layout.MAGIC, layout.VERSION, kind, count, columns, size), *parts))


def _fixed(column: pa.Array) -> bytes:
    values: Any = column.cast(pa.int64()).fill_null(0).to_numpy()
    return values.tobytes()  # type: ignore[no-any-return]


def _variable(column: pa.Array) -> list[bytes]:
    """(offsets, data) of a column of text or bytes, from its Arrow buffers."""
    plain = column.cast(pa.binary())
    _, offsets, data = plain.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[plain.offset : plain.offset + len(plain) + 1]
    first, last = int(ends[0]), int(ends[-1])
    return [ends.tobytes(), memoryview(data)[first:last].tobytes() if data is not None else b""]


def _kind(payload: bytes, wanted: bool | None) -> int:
    """JSON payloads are published as JSON unless `wanted` is False, all others as bytes.

    Raises PipelineError if `wanted` is True and the payload is not JSON.
    """
    if wanted is False:
        return layout.KIND_BYTES
    try:
        _is_json(payload)
    except msgspec.DecodeError as error:
        if wanted:
            raise PipelineError(f"a row says is_json, and its payload is not JSON: {error}") from None
        return layout.KIND_BYTES
    return layout.KIND_JSON
