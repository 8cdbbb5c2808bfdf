"""Snapshots and sealed segments as bytes: whole, of a known kind and version, or Damaged with the name."""

from __future__ import annotations

import pytest

from penstock.journal.blobs import (
    HEADER,
    SEGMENT_MAGIC,
    SegmentDescription,
    SegmentPart,
    decode_segment,
    decode_snapshot,
    encode_description,
    encode_snapshot,
    open_blob,
    seal_blob,
)
from penstock.journal.port import Damaged

VALUES = {"index": 7, "chain": b"x" * 16, "state": {"queues": [1, 2, {"a": None}]}}
ABOUT = SegmentDescription([SegmentPart("a/b/c", 3, 10, 20, 8), SegmentPart("a/b/d", 0, 0, 1, 1)])
SNAPSHOT = b"".join(encode_snapshot(VALUES))
SEGMENT = b"".join(seal_blob(SEGMENT_MAGIC, [encode_description(ABOUT), memoryview(b"records")]))


def test_what_was_sealed_is_read_back():
    assert decode_snapshot("s", SNAPSHOT) == VALUES
    about, records = decode_segment("g", SEGMENT)
    assert (about, bytes(records)) == (ABOUT, b"records")


@pytest.mark.parametrize("data", [SNAPSHOT, SEGMENT], ids=["snapshot", "segment"])
def test_every_single_bit_is_covered_and_the_name_is_in_the_message(data):
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged, match="blob-17, offset"):
            open_blob("blob-17", bytes(damaged))


@pytest.mark.parametrize("data", [SNAPSHOT, SEGMENT], ids=["snapshot", "segment"])
def test_every_cut_is_noticed(data):
    for size in range(len(data)):
        with pytest.raises(Damaged, match="blob-17"):
            open_blob("blob-17", data[:size])


def test_one_is_not_taken_for_the_other():
    with pytest.raises(Damaged, match="not a snapshot"):
        decode_snapshot("x", SEGMENT)
    with pytest.raises(Damaged, match="not a sealed segment"):
        decode_segment("x", SNAPSHOT)


def test_a_version_from_the_future_is_refused_by_name():
    magic, _, crc, length = HEADER.unpack_from(SNAPSHOT)
    with pytest.raises(Damaged, match="snapshot-9, offset 8: version 2 is not supported"):
        decode_snapshot("snapshot-9", HEADER.pack(magic, 2, crc, length) + SNAPSHOT[HEADER.size :])
