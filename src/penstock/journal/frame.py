"""Frames: encode and validate one group commit. Format: docs/formats/journal.md.

This module does no I/O. `FrameWriter` links each frame to the previous one by a chained checksum; `read_frame` checks
one frame and reports the first violation.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import google_crc32c
import msgspec

from penstock import limits
from penstock.batch import Buffer

HEADER = struct.Struct("<2sBBIIIQQQ16s16s")
MAGIC = b"PJ"
VERSION = 1
CHAIN_START = bytes(16)
BODY_BYTES_MAX = 2 * limits.COMMIT_BYTES_MAX
"""A commit is closed after it passes its limit, so its last command may exceed the limit, up to this size."""

FRAME_BYTES_MAX = HEADER.size + BODY_BYTES_MAX
PAGE_BYTES = 4 * limits.KIB
"""In a reused file, the page in which a frame ends is filled with zeros."""

_CHAINED = slice(8, 56)
_TAIL = struct.Struct("<IIQQQ16s")
_START = struct.Struct("<2sBBI")
_START_OF_ANY = MAGIC + bytes([VERSION, 0])


class BadFrame(Exception):
    """The bytes are not a complete, valid frame."""


class UnsupportedFrame(BadFrame):
    """A complete header of another version: written by a newer program, and never a torn one."""


class Frame(msgspec.Struct, frozen=True):
    index: int
    term: int
    at_ms: int
    node: bytes
    chain: bytes
    body: memoryview

    @property
    def size(self) -> int:
        return HEADER.size + len(self.body)


class FrameWriter:
    """Assigns each commit its index, its checksums and its link to the previous frame."""

    def __init__(self, node: bytes, term: int, next_index: int = 1, chain: bytes = CHAIN_START):
        self._node = node
        self.term = term
        self.next_index = next_index
        self.chain = chain

    def continue_after(self, index: int, chain: bytes, term: int) -> None:
        """Link the next frame to the frame `index`, in this term."""
        self.next_index, self.chain, self.term = index + 1, chain, term

    def seal(self, at_ms: int, parts: Sequence[Buffer]) -> bytes:
        """The header for the body made of these parts. The body is not copied."""
        crc, length = 0, 0
        for part in parts:
            crc = google_crc32c.extend(crc, part if isinstance(part, bytes) else bytes(part))
            length += len(part)
        assert length <= BODY_BYTES_MAX, "the commit must be bounded before it is sealed"
        linked = _TAIL.pack(crc, length, self.next_index, self.term, at_ms, self._node)
        self.chain = blake2b(linked, digest_size=16, key=self.chain).digest()
        self.next_index += 1
        covered = linked + self.chain
        return _START.pack(MAGIC, VERSION, 0, google_crc32c.value(covered)) + covered


def read_frame(view: memoryview, at: int, expected: tuple[int, bytes] | None = None) -> Frame:
    """Read and check the frame at `at`. `expected` (index, previous chain) also checks that it continues the
    journal."""
    header = bytes(view[at : at + HEADER.size])
    if len(header) < HEADER.size:
        raise BadFrame(f"the header ends after {len(header)} of {HEADER.size} bytes")
    magic, version, flags, header_crc, body_crc, length, index, term, at_ms, node, chain = HEADER.unpack(header)
    if magic != MAGIC:
        raise BadFrame("no frame begins here")
    if google_crc32c.value(header[8:]) != header_crc:
        raise BadFrame("the header's checksum does not match")
    if version != VERSION or flags:
        raise UnsupportedFrame(f"frame version {version}, flags {flags:#x} are not supported: a newer version wrote it")
    if length > BODY_BYTES_MAX:
        raise BadFrame(f"a body of {length} bytes is over the limit")
    if len(view) - at - HEADER.size < length:
        raise BadFrame(f"the body ends after {len(view) - at - HEADER.size} of {length} bytes")
    body = view[at + HEADER.size : at + HEADER.size + length]
    if google_crc32c.value(bytes(body)) != body_crc:
        raise BadFrame("the body's checksum does not match")
    if expected is not None:
        expected_index, previous = expected
        if index != expected_index:
            raise BadFrame(f"found frame {index} where frame {expected_index} is expected")
        if blake2b(header[_CHAINED], digest_size=16, key=previous).digest() != chain:
            raise BadFrame(f"frame {index} does not continue the frame before it: the chain is broken")
    return Frame(index, term, at_ms, node, chain, body)


def frames_at_end(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(index, chain) of the frame that the bytes end with. Bodies are not checked, and payloads that look like a frame
    are among them: the caller has to know the chain."""
    at = data.rfind(_START_OF_ANY)
    while at >= 0:
        header = data[at : at + HEADER.size]
        if len(header) == HEADER.size:
            _, _, _, crc, _, length, index, _, _, _, chain = HEADER.unpack(header)
            if at + HEADER.size + length == len(data) and google_crc32c.value(header[8:]) == crc:
                yield index, chain
        at = data.rfind(_START_OF_ANY, 0, at)


def time_of(header: bytes) -> int:
    """The unchecked time of a frame, as the start of a search."""
    return int(HEADER.unpack(header)[8])


def newer_frame(view: memoryview, index: int, node: bytes = b"") -> int | None:
    """The position of a complete frame newer than `index` after the expected next frame at position 0, or None."""
    begin = 1
    try:
        first = read_frame(view, 0)
        if first.index <= index:
            begin = first.size
    except BadFrame:
        pass
    return find_frame(view, begin, newer_than=index, node=node)


def find_frame(view: memoryview, after: int, *, newer_than: int, node: bytes = b"") -> int | None:
    """The position of the next complete frame with a higher index at or after `after`, or None; of `node` if given.

    The result distinguishes a torn tail from damage. The search skips complete frames with a lower index, which are
    left over from an earlier use of the file, and frames with an index further ahead than frames fit in between.
    Payloads may contain the bytes of frames; they must neither be mistaken for frames nor make the search slow.
    """
    data = bytes(view[after:])
    begin = re.compile(re.escape(_START_OF_ANY) + (b"(?s:.{36})" + re.escape(node) if node else b""))
    found = begin.search(data)
    while found is not None:
        at = found.start()
        index = int.from_bytes(data[at + 16 : at + 24], "little")
        size = 1
        if index <= newer_than + (after + at) // HEADER.size + 1:
            try:
                frame = read_frame(view, after + at)
            except BadFrame:
                pass
            else:
                if index > newer_than:
                    return after + at
                size = frame.size
        found = begin.search(data, at + size)
    return None


assert HEADER.size == 72 and _START.size + _TAIL.size + 16 == HEADER.size
