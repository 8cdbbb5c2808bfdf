"""Bytes under a right checksum that mean nothing: refused with the one error that says so, whatever they are."""

from __future__ import annotations

import google_crc32c
import pytest

from penstock.batch import BadBatch, layout
from penstock.core.state.stored_chunk import nothing_stored
from penstock.journal.blobs import SEGMENT_MAGIC, SNAPSHOT_MAGIC, decode_segment, decode_snapshot, seal_blob
from penstock.journal.codec import PREFIX, UnknownRecord, decode
from penstock.journal.port import Damaged
from penstock.runtime.recovery import load_snapshot
from penstock.wire.delivery import LeaseMeta, decode_delivery

DEEP = 100_000
NESTED = b"\x91" * DEEP + b"\x01"
"""MessagePack: an array in an array, and so on."""
SENSELESS = [b"", b"\x01", b"\xc1", b"\x81\xa1a", b"\x81\xa1\xff\x01", b"\xff" * 40, NESTED, b"\x81\xa1a" + NESTED]


@pytest.mark.parametrize("body", SENSELESS, ids=lambda body: repr(body[:8]))
@pytest.mark.parametrize(("magic", "read"), [(SNAPSHOT_MAGIC, decode_snapshot), (SEGMENT_MAGIC, decode_segment)])
def test_a_blob_is_damaged_by_name(magic, read, body):
    with pytest.raises(Damaged, match="blob-7"):
        read("blob-7", b"".join(seal_blob(magic, [body])))


@pytest.mark.parametrize(
    "body",
    [b"\x80", b"\x81\xa5state\x01", b"\x83\xa5index\x01\xa5chain\xc4\x01x\xa5state\x80", b"\x81\xa5state\x90"],
    ids=repr,
)
def test_a_snapshot_of_something_else_is_damaged_by_name(body):
    with pytest.raises(Damaged, match="blob-7"):
        load_snapshot("blob-7", b"".join(seal_blob(SNAPSHOT_MAGIC, [body])), nothing_stored)


def test_a_record_nested_without_end_is_not_known():
    meta = b"\x82\xa4type\xa5acked\xa1x" + NESTED
    with pytest.raises(UnknownRecord):
        list(decode(memoryview(PREFIX.pack(len(meta), 0, google_crc32c.value(meta)) + meta)))


def test_a_delivery_nested_without_end_is_not_one():
    meta = b'{"x":' + b"[" * DEEP + b"]" * DEEP + b',"runs":[]}'
    header = layout.DELIVERY_HEADER.pack(layout.DELIVERY_MAGIC, layout.DELIVERY_VERSION, 0, len(meta))
    with pytest.raises(BadBatch):
        decode_delivery(header + meta, LeaseMeta)
