"""The first bytes of a journal file. docs/formats/journal.md."""

from __future__ import annotations

import struct

import google_crc32c

FILE_HEADER = struct.Struct("<8sIIQ16s20sI")
FILE_MAGIC = b"PENSTKJ1"
FILE_HEADER_BYTES = 64


def file_header(shard: int, first: int, chain: bytes) -> bytes:
    """Of a file that begins with frame `first`, behind a frame with this chain."""
    header = FILE_HEADER.pack(FILE_MAGIC, shard, 0, first, chain, bytes(20), 0)[:-4]
    return header + int(google_crc32c.value(header)).to_bytes(4, "little")


def header_problem(header: bytes, shard: int, first: int) -> str | None:
    """The problem with the header of the file of this shard and first index; None if the header is valid."""
    if len(header) < FILE_HEADER_BYTES:
        return f"the file ends after {len(header)} of {FILE_HEADER_BYTES} header bytes"
    magic, found, _, index, _, _, crc = FILE_HEADER.unpack(header)
    if google_crc32c.value(header[:-4]) != crc or magic != FILE_MAGIC:
        return "this is not the header of a journal file, or it is damaged"
    if (found, index) != (shard, first):
        return f"the header is that of shard {found}, frame {index}"
    return None


def chain_before(header: bytes) -> bytes:
    """The chain of the frame before the first one of the file."""
    chain: bytes = FILE_HEADER.unpack(header)[4]
    return chain


assert FILE_HEADER.size == FILE_HEADER_BYTES
