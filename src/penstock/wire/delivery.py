"""The binary reply of a lease or a read: runs of messages as stored frames. Format: docs/formats/batch.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, SupportsIndex, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Meta

from penstock.batch import BadBatch, Batch, Buffer, layout

_encoder = msgspec.json.Encoder()


class Run(msgspec.Struct, omit_defaults=True):
    """The fields that a run of messages shares; message *i* has offset `offset + i` and id `id + i`."""

    queue: str
    partition: int
    offset: int
    count: int
    id: str
    published_at_ms: int
    length: int
    attempt: int = 1
    receipt: str | None = None
    deadline_at_ms: int | None = None
    lease_ms: int | None = None


SettledStatus: TypeAlias = Annotated[
    str,
    # For the schema only: a client of an earlier version must be able to read a new one.
    Meta(
        extra_json_schema={
            "enum": ["acked", "retrying", "dead_lettered", "dropped", "released", "extended", "stale"],
        }
    ),
]


class Settled(msgspec.Struct, omit_defaults=True):
    """The outcome for one receipt, or for the part of a range of receipts with the same outcome."""

    receipt: str
    status: SettledStatus
    due_at_ms: int | None = None
    deadline_at_ms: int | None = None


class UniformResults(Sequence[Settled]):
    """One outcome for many receipts. Items are built on access; most callers only need the JSON of the whole list."""

    __slots__ = ("_outcome", "_receipts")

    def __init__(self, receipts: Sequence[str], status: str, due_at_ms: int | None, deadline_at_ms: int | None):
        """The receipts must not contain characters that JSON escapes."""
        self._receipts = receipts
        self._outcome = (status, due_at_ms, deadline_at_ms)

    def __len__(self) -> int:
        return len(self._receipts)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Settled: ...
    @overload
    def __getitem__(self, index: slice) -> list[Settled]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [Settled(receipt, *self._outcome) for receipt in self._receipts[index]]
        return Settled(self._receipts[index], *self._outcome)

    def json(self) -> bytes:
        """The same bytes as `results_json` of the equal list."""
        if not self._receipts:
            return b"[]"
        # The text between two receipts is constant, so one join writes the array.
        after = _encoder.encode(Settled("", *self._outcome)).decode().removeprefix('{"receipt":"')
        between = after + ',{"receipt":"'
        return f'[{{"receipt":"{between.join(self._receipts)}{after}]'.encode()


def results_json(results: Sequence[Settled]) -> bytes:
    return results.json() if isinstance(results, UniformResults) else _encoder.encode(results)


class LeaseMeta(msgspec.Struct, omit_defaults=True):
    runs: list[Run]
    results: list[Settled] | None = None
    generation: int | None = None
    """The generation of the group, if the lease was requested by a member."""


class ReadMeta(msgspec.Struct, omit_defaults=True):
    runs: list[Run]
    next_offset: int
    end_offset: int
    start_offset: int
    skipped: int = 0


M = TypeVar("M", LeaseMeta, ReadMeta)


def encode_delivery(meta: LeaseMeta | ReadMeta, frames: Sequence[Buffer]) -> bytes:
    """Encode a delivery; `frames[i]` is the frame of `meta.runs[i]`."""
    text = _encoder.encode(meta)
    header = layout.DELIVERY_HEADER.pack(layout.DELIVERY_MAGIC, layout.DELIVERY_VERSION, 0, len(text))
    return b"".join((header, text, *frames))


def decode_delivery(body: Buffer, kind: type[M], *, known: bool = False) -> tuple[M, list[Batch]]:
    """Decode the meta and one batch per run. Raises BadBatch if the bytes are not a delivery.

    `known` skips the checks inside the frames: a trusted server has checked them before.
    """
    view = memoryview(body)
    if len(view) < layout.DELIVERY_HEADER.size:
        raise BadBatch("a delivery starts with a header of 8 bytes")
    magic, version, zero, size = layout.DELIVERY_HEADER.unpack_from(view)
    if (magic, version, zero) != (layout.DELIVERY_MAGIC, layout.DELIVERY_VERSION, 0):
        raise BadBatch("this is not a delivery of a known version")
    at = layout.DELIVERY_HEADER.size + size
    try:
        meta = msgspec.json.decode(view[layout.DELIVERY_HEADER.size : at], type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatch(f"the metadata of the delivery is damaged: {error}") from None
    batches = []
    for run in meta.runs:
        if run.length < 0 or at + run.length > len(view):
            raise BadBatch("the delivery ends inside a frame")
        batches.append(Batch.open(view[at : at + run.length], known=known))
        if batches[-1].count != run.count:
            raise BadBatch("a run and its frame disagree on the number of messages")
        at += run.length
    if at != len(view):
        raise BadBatch("the delivery is longer than its frames")
    return meta, batches
