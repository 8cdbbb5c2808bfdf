"""Encode records: a MessagePack map each, with the batch as an attachment. Format: docs/formats/journal.md."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import google_crc32c
import msgspec

from penstock.batch import BadBatch, Batch, layout
from penstock.core import records
from penstock.core.records import Record

PREFIX = struct.Struct("<III")
"""Length of the map, length of the attachment, CRC32C of both."""


class UnknownRecord(Exception):
    """A record of a kind that this version does not know. Skipping it would corrupt the state, so the shard does not
    open."""


class PublishedMeta(records.Fact, frozen=True, tag="published"):
    """A published record without its batch, which is the attachment."""

    queue: int
    partition: int
    offset: int
    id: bytes
    producer: str = ""
    epoch: int = 0
    seqs: list[int] = []


class EncryptedMeta(PublishedMeta, frozen=True, tag="encrypted"):
    """The same of a record whose payloads and headers are encrypted."""

    path: str = ""
    seal: bytes = b""


_KINDS: Any = PublishedMeta | EncryptedMeta
for _kind in records.KINDS:
    if not issubclass(_kind, records.Published):
        _KINDS = _KINDS | _kind
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_KINDS).decode


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The encoded record with its prefix, and the attachment."""
    if isinstance(record, records.Published):
        batch = record.batch
        values = (
            record.at, record.queue, record.partition, record.offset, record.id.to_bytes(16, "big"), record.producer,
            record.epoch, record.seqs,
        )  # fmt: skip
        if type(record) is records.EncryptedPublished:
            meta = _encode(EncryptedMeta(*values, record.path, record.seal))
        else:
            meta = _encode(PublishedMeta(*values))
        frame = bytes(batch.frame)  # the same object, if it is bytes
        crc = google_crc32c.extend(google_crc32c.value(meta), frame)
        return PREFIX.pack(len(meta), len(frame), crc) + meta, frame
    meta = _encode(record)
    return PREFIX.pack(len(meta), 0, google_crc32c.value(meta)) + meta, None


def decode(body: memoryview) -> Iterator[tuple[int, Record]]:
    """Yield (position, record) for each record of a frame's body."""
    at, size = 0, len(body)
    while at < size:
        record, after = decode_at(body, at)
        yield at, record
        at = after


class PublishedHead(NamedTuple):
    """The fields of a published record that identify its messages."""

    at: int
    queue: int
    partition: int
    offset: int
    id: int
    messages: int
    frame: memoryview
    """The encoded batch."""
    encrypted: bool


def decode_heads(body: memoryview) -> Iterator[Record | PublishedHead]:
    """Decode the records of a checked frame without opening their batches: for searching a journal."""
    at, size = 0, len(body)
    while at < size:
        try:
            meta_length, attached, _ = PREFIX.unpack_from(body, at)
            middle = at + PREFIX.size + meta_length
            meta = _decode(body[at + PREFIX.size : middle])
            at = middle + attached
            if not isinstance(meta, PublishedMeta):
                yield meta
                continue
            frame = body[middle:at]
            count = layout.HEADER.unpack_from(frame)[3]
        except (struct.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnknownRecord(f"unknown kind of record at {at}: {error}") from None
        yield PublishedHead(
            meta.at, meta.queue, meta.partition, meta.offset, int.from_bytes(meta.id, "big"), count, frame,
            type(meta) is EncryptedMeta,
        )  # fmt: skip


class Stripped(NamedTuple):
    """The stored bytes of a record, without its messages."""

    meta: memoryview
    about: bytes
    """For a published record: the header of its batch and the columns with delivery times; otherwise empty."""


def strip(body: memoryview) -> Iterator[Stripped]:
    """The undecoded records of a checked frame: for bulk replies of events."""
    at, size = 0, len(body)
    while at < size:
        meta_length, attached, _ = PREFIX.unpack_from(body, at)
        middle = at + PREFIX.size + meta_length
        meta = body[at + PREFIX.size : middle]
        at = middle + attached
        if attached and _is_encrypted(meta):
            meta = _as_published(meta)
        yield Stripped(meta, _about(body[middle:at]) if attached else b"")


_PUBLISHED = _encode(PublishedMeta(0, 0, 0, 0, b"")).partition(b"published")[0][1:] + b"published"


def may_have_plaintext(data: bytes) -> bool:
    """False if these bytes, which are damaged, have no part of a record of messages that is not encrypted."""
    return _PUBLISHED in data


_ENCRYPTED = _encode(EncryptedMeta(0, 0, 0, 0, b"")).partition(b"encrypted")[0] + b"encrypted"


def _is_encrypted(meta: memoryview) -> bool:
    # The type is the first entry of the map; the first byte of the map is the number of its entries.
    return bytes(meta[1 : len(_ENCRYPTED)]) == _ENCRYPTED[1:]


def _as_published(meta: memoryview) -> memoryview:
    """Events are the same for encrypted queues: they have no payloads, and no use for a seal."""
    found = decode_meta(meta)
    assert isinstance(found, EncryptedMeta)
    values = (getattr(found, name) for name in PublishedMeta.__struct_fields__)
    return memoryview(_encode(PublishedMeta(*values)))


def _about(frame: memoryview) -> bytes:
    about = bytes(frame[: layout.HEADER.size])
    if layout.HEADER.unpack(about)[4] & (layout.DELAY_MS | layout.DELIVER_AT_MS):
        batch = Batch.open(frame, known=True)
        for column in (layout.DELAY_MS, layout.DELIVER_AT_MS):
            if batch.has(column):
                about += batch.integers(column).tobytes()
    return about


def decode_meta(meta: memoryview) -> Record | PublishedMeta:
    """Decode the bytes of a `Stripped` record."""
    try:
        return _decode(meta)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnknownRecord(f"unknown kind of record: {error}") from None


def decode_at(body: bytes | memoryview, at: int) -> tuple[Record, int]:
    """Decode the record at this position; return it with the position of the next one."""
    try:
        meta_length, attached, crc = PREFIX.unpack_from(body, at)
        start = at + PREFIX.size
        middle = start + meta_length
        after = middle + attached
        if after > len(body):
            raise UnknownRecord(f"the record at {at} is longer than its frame")
        if google_crc32c.value(bytes(body[start:after])) != crc:
            raise UnknownRecord(f"the checksum of the record at {at} does not match")
        meta = _decode(body[start:middle])
        if isinstance(meta, PublishedMeta):
            values = (
                meta.at, meta.queue, meta.partition, meta.offset, int.from_bytes(meta.id, "big"),
                Batch.open(memoryview(body)[middle:after], known=True), meta.producer, meta.epoch, meta.seqs,
            )  # fmt: skip
            if type(meta) is EncryptedMeta:
                return records.EncryptedPublished(*values, meta.path, meta.seal), after
            return records.Published(*values), after
    except (struct.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadBatch) as error:
        raise UnknownRecord(f"unknown kind of record at {at}: {error}") from None
    return meta, after
