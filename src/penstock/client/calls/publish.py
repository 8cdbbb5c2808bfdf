"""Publish a frame."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from penstock.client.calls.call import BATCH, Call, Response
from penstock.ids import QueuePath
from penstock.wire.replies import PublishRunsReply

_quoted = lru_cache(maxsize=64)(quote)
"""For the names of producers: all frames of a client have the same."""
_decode = msgspec.json.Decoder(PublishRunsReply).decode


class ProducerSeq(NamedTuple):
    """The producer of a frame, and the number of its first message; the server stores each number once."""

    producer: str
    epoch: int
    seq: int


def publish(queue: QueuePath, frame: bytes, sequence: ProducerSeq) -> Call[PublishRunsReply]:
    producer = _quoted(sequence.producer)
    target = f"/v1/publish?queue={queue}&producer={producer}&epoch={sequence.epoch}&seq={sequence.seq}"
    return Call("POST", target, _read, frame, BATCH)


def _read(response: Response) -> PublishRunsReply:
    return _decode(response.body)
