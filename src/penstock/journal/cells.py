"""Small files that hold one number with its checksum: `term` and `durable`. docs/formats/journal.md."""

from __future__ import annotations

import struct

import google_crc32c

CELL = struct.Struct("<QI")


def cell(value: int) -> bytes:
    """A number with its checksum."""
    raw = value.to_bytes(8, "little")
    return raw + int(google_crc32c.value(raw)).to_bytes(4, "little")


def number_in(data: bytes) -> int | None:
    """The number in such a file; None if the file is short or its checksum is wrong."""
    if len(data) < CELL.size:
        return None
    value, crc = CELL.unpack_from(data)
    return int(value) if google_crc32c.value(data[:8]) == crc else None
