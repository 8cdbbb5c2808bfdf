"""The hand-written piece of the encoding is what the library writes, for every length of a length."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.v1 import broker_pb2 as pb
from penstock.wire.protobuf import bytes_field, varint


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_a_field_behind_an_encoded_message_is_part_of_it(size):
    data = bytes(range(256)) * (size // 256 + 1)
    whole = pb.Run(queue="q", offset=7, batch=data[:size])
    head = pb.Run(queue="q", offset=7).SerializeToString()
    assert b"".join((head, *bytes_field(pb.Run.BATCH_FIELD_NUMBER, data[:size]))) == whole.SerializeToString()


def test_the_data_is_not_copied():
    data = b"x" * 1_000
    assert bytes_field(3, data)[1] is data


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\0"), (1, b"\1"), (300, b"\xac\x02"), (2**32, b"\x80\x80\x80\x80\x10")]
)
def test_varints(value, encoded):
    assert varint(value) == encoded


def test_missing_protobuf_is_reported():
    program = "import sys; sys.modules['google.protobuf'] = None; import penstock.v1"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith('ModuleNotFoundError: penstock.v1 needs gRPC: pip install "penstock[grpc]"\n')
