"""Snapshots and sealed segments as bytes. Format: docs/formats/snapshot.md."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import google_crc32c
import msgspec

from penstock.batch import Buffer
from penstock.journal.port import Damaged

HEADER = struct.Struct("<8sIIQ")
SNAPSHOT_MAGIC = b"PENSTKSN"
SEGMENT_MAGIC = b"PENSTKSG"
VERSION = 1
_LENGTH = struct.Struct("<I")


class SegmentDescription(msgspec.Struct):
    queue: str
    partition: int
    first: int
    stop: int
    messages: int


def seal_blob(magic: bytes, parts: Sequence[Buffer]) -> list[Buffer]:
    """The blob as parts, header first."""
    length = sum(map(len, parts))
    crc = _crc(length, parts)
    return [HEADER.pack(magic, VERSION, crc, length), *parts]


def open_blob(name: str, data: bytes) -> tuple[bytes, memoryview]:
    """(magic, body); raises Damaged with the blob's name."""
    if len(data) < HEADER.size:
        raise Damaged(f"{name}, offset 0: the header ends after {len(data)} bytes")
    magic, version, crc, length = HEADER.unpack_from(data)
    if magic not in (SNAPSHOT_MAGIC, SEGMENT_MAGIC):
        raise Damaged(f"{name}, offset 0: this is neither a snapshot nor a segment")
    if version != VERSION:
        raise Damaged(f"{name}, offset 8: version {version} is not known here (known: {VERSION})")
    body = memoryview(data)[HEADER.size :]
    if len(body) != length:
        raise Damaged(f"{name}, offset {HEADER.size}: the body has {len(body)} bytes instead of {length}")
    if _crc(length, [body]) != crc:
        raise Damaged(f"{name}, offset {HEADER.size}: the checksum does not match")
    return magic, body


def encode_snapshot(values: dict[str, Any]) -> list[Buffer]:
    return seal_blob(SNAPSHOT_MAGIC, [msgspec.msgpack.encode(values)])


def decode_snapshot(name: str, data: bytes) -> dict[str, Any]:
    magic, body = open_blob(name, data)
    if magic != SNAPSHOT_MAGIC:
        raise Damaged(f"{name}, offset 0: this is not a snapshot")
    try:
        return msgspec.msgpack.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(
            f"{name}, offset {HEADER.size}: what is under the right checksum is no snapshot: {error}"
        ) from None


def segment_prefix(description: SegmentDescription) -> bytes:
    """What stands before the records of a segment's body."""
    text = msgspec.msgpack.encode(description)
    return _LENGTH.pack(len(text)) + text


def decode_segment(name: str, data: bytes) -> tuple[SegmentDescription, memoryview]:
    """The description and the records of a segment."""
    magic, body = open_blob(name, data)
    if magic != SEGMENT_MAGIC:
        raise Damaged(f"{name}, offset 0: this is not a sealed segment")
    try:
        (size,) = _LENGTH.unpack_from(body)
        description = msgspec.msgpack.decode(body[_LENGTH.size : _LENGTH.size + size], type=SegmentDescription)
    except (struct.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(
            f"{name}, offset {HEADER.size}: what is under the right checksum is no segment: {error}"
        ) from None
    return description, body[_LENGTH.size + size :]


def _crc(length: int, parts: Sequence[Buffer]) -> int:
    crc: int = google_crc32c.value(VERSION.to_bytes(4, "little") + length.to_bytes(8, "little"))
    for part in parts:
        crc = google_crc32c.extend(crc, part if isinstance(part, bytes) else bytes(part))
    return crc
