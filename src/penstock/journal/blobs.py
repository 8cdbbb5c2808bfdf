"""Encode snapshots, sealed segments, chunks of state and keyrings as blobs. Format: docs/formats/snapshot.md."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import google_crc32c
import msgspec

from penstock.batch import Buffer
from penstock.core.slices import encoded
from penstock.journal.port import Damaged

HEADER = struct.Struct("<8sIIQ")
SNAPSHOT_MAGIC = b"PENSTKSN"
SEGMENT_MAGIC = b"PENSTKSG"
AGENDA_MAGIC = b"PENSTKAG"
IDS_MAGIC = b"PENSTKID"
LETTERS_MAGIC = b"PENSTKDL"
KEYRING_MAGIC = b"PENSTKKR"
VERSION = 1
_LENGTH = struct.Struct("<I")
D = TypeVar("D")


class SegmentPart(msgspec.Struct, array_like=True):
    """Messages of one partition; a segment holds its parts in the order of these descriptions."""

    queue: str
    partition: int
    first: int
    stop: int
    messages: int


class SegmentDescription(msgspec.Struct, omit_defaults=True):
    parts: list[SegmentPart] = []
    queue: str = ""
    """Segments from before partitions shared one have these fields instead of parts."""
    partition: int = 0
    first: int = 0
    stop: int = 0
    messages: int = 0

    def __post_init__(self) -> None:
        if self.queue and not self.parts:
            self.parts = [SegmentPart(self.queue, self.partition, self.first, self.stop, self.messages)]


class AgendaPart(msgspec.Struct, array_like=True):
    """The owner of one chunk of agenda entries; a blob holds its chunks in the order of these descriptions."""

    queue: str
    partition: int
    agenda: Literal["schedule", "expiries"]
    entries: int


class AgendaDescription(msgspec.Struct):
    parts: list[AgendaPart]


class IdsPart(msgspec.Struct, array_like=True):
    """The owner of one chunk of client ids; a blob holds its chunks in the order of these descriptions."""

    queue: str
    ids: int


class IdsDescription(msgspec.Struct):
    parts: list[IdsPart]


class LettersPart(msgspec.Struct, array_like=True):
    """The owner of one chunk of dead letters; a blob holds its chunks in the order of these descriptions."""

    queue: str
    partition: int
    group: int
    letters: int


class LettersDescription(msgspec.Struct):
    parts: list[LettersPart]


class Seal:
    """Computes the checksum and the header of a blob from the parts of its body."""

    def __init__(self, magic: bytes, length: int):
        self._magic = magic
        self._length = length
        self.crc: int = google_crc32c.value(VERSION.to_bytes(4, "little") + length.to_bytes(8, "little"))

    def add(self, part: Buffer) -> None:
        self.crc = google_crc32c.extend(self.crc, part if isinstance(part, bytes) else bytes(part))

    def header(self) -> bytes:
        return HEADER.pack(self._magic, VERSION, self.crc, self._length)


def seal_blob(magic: bytes, parts: Sequence[Buffer]) -> list[Buffer]:
    """The parts of the blob, header first."""
    seal = Seal(magic, sum(map(len, parts)))
    for part in parts:
        seal.add(part)
    return [seal.header(), *parts]


def open_blob(name: str, data: bytes) -> tuple[bytes, memoryview]:
    """Check a blob; return (magic, body). Raises Damaged with the blob's name."""
    if len(data) < HEADER.size:
        raise Damaged(f"{name}, offset 0: the header ends after {len(data)} bytes")
    magic, version, crc, length = HEADER.unpack_from(data)
    if magic not in (SNAPSHOT_MAGIC, SEGMENT_MAGIC, AGENDA_MAGIC, IDS_MAGIC, LETTERS_MAGIC, KEYRING_MAGIC):
        raise Damaged(f"{name}, offset 0: the blob is no snapshot, no segment, no chunks of state and no keyring")
    if version != VERSION:
        raise Damaged(f"{name}, offset 8: version {version} is not supported (supported: {VERSION})")
    body = memoryview(data)[HEADER.size :]
    if len(body) != length:
        raise Damaged(f"{name}, offset {HEADER.size}: the body has {len(body)} bytes instead of {length}")
    seal = Seal(magic, length)
    seal.add(body)
    if seal.crc != crc:
        raise Damaged(f"{name}, offset {HEADER.size}: the checksum does not match")
    return magic, body


def encode_snapshot(values: dict[str, Any]) -> list[Buffer]:
    """Encode a snapshot in one step; `seal_blob` takes a body that was encoded in slices."""
    return seal_blob(SNAPSHOT_MAGIC, list(encoded(values)))


def decode_snapshot(name: str, data: bytes) -> dict[str, Any]:
    magic, body = open_blob(name, data)
    if magic != SNAPSHOT_MAGIC:
        raise Damaged(f"{name}, offset 0: the blob is not a snapshot")
    try:
        return msgspec.msgpack.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(
            f"{name}, offset {HEADER.size}: the checksum matches, but the body is not a snapshot: {error}"
        ) from None


def decode_keyring(name: str, data: bytes) -> memoryview:
    """The body of a keyring, which is still wrapped."""
    magic, body = open_blob(name, data)
    if magic != KEYRING_MAGIC:
        raise Damaged(f"{name}, offset 0: the blob is not a keyring")
    return body


def encode_description(
    description: SegmentDescription | AgendaDescription | IdsDescription | LettersDescription,
) -> bytes:
    """The encoded description that precedes the content of a segment, or chunks of state."""
    text = msgspec.msgpack.encode(description)
    return _LENGTH.pack(len(text)) + text


def decode_segment(name: str, data: bytes) -> tuple[SegmentDescription, memoryview]:
    """Decode the description and the records of a segment."""
    return _decode_described(name, data, SEGMENT_MAGIC, "sealed segment", SegmentDescription)


def decode_agenda(name: str, data: bytes) -> tuple[AgendaDescription, memoryview]:
    """Decode the description and the entries of a part of an agenda."""
    return _decode_described(name, data, AGENDA_MAGIC, "part of an agenda", AgendaDescription)


def decode_ids(name: str, data: bytes) -> tuple[IdsDescription, memoryview]:
    """Decode the description and the chunks of client ids."""
    return _decode_described(name, data, IDS_MAGIC, "blob of client ids", IdsDescription)


def decode_letters(name: str, data: bytes) -> tuple[LettersDescription, memoryview]:
    """Decode the description and the chunks of dead letters."""
    return _decode_described(name, data, LETTERS_MAGIC, "blob of dead letters", LettersDescription)


def _decode_described(name: str, data: bytes, expected: bytes, kind: str, shape: type[D]) -> tuple[D, memoryview]:
    magic, body = open_blob(name, data)
    if magic != expected:
        raise Damaged(f"{name}, offset 0: the blob is not a {kind}")
    try:
        (size,) = _LENGTH.unpack_from(body)
        description = msgspec.msgpack.decode(body[_LENGTH.size : _LENGTH.size + size], type=shape)
    except (struct.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(
            f"{name}, offset {HEADER.size}: the checksum matches, but the body is not a {kind}: {error}"
        ) from None
    return description, body[_LENGTH.size + size :]
