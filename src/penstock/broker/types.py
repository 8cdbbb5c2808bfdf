"""What the facade takes and gives. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from penstock.batch import Batch
from penstock.ids import QueuePath
from penstock.wire.delivery import Settled


class PublishPart(NamedTuple):
    queue: QueuePath
    batch: Batch


class ProducerSeq(NamedTuple):
    """Idempotence: `seq` is the number of the first message of the first part, the others count up."""

    id: str
    epoch: int
    seq: int


class PublishedRun(msgspec.Struct, frozen=True):
    part: int
    queue: str
    partition: int
    offset: int
    count: int
    id: int
    duplicate: bool
    rows: list[int] | None
    """Positions in the part's batch; None for the whole part."""


class PublishReply(NamedTuple):
    runs: list[PublishedRun]
    durable: bool


class DeliveredRun(msgspec.Struct, frozen=True):
    """Messages `offset` to `offset + count` of a partition, with ids that count up in the same way."""

    queue: str
    partition: int
    offset: int
    count: int
    id: int
    published_at_ms: int
    batch: Batch
    attempt: int = 1
    receipt: str | None = None
    """Prefix: the receipt of message *i* is `f"{receipt}{offset + i}"`. None where there is nothing to settle."""
    deadline_at_ms: int | None = None


class LeaseReply(NamedTuple):
    runs: list[DeliveredRun]
    results: Sequence[Settled]


class ReadReply(NamedTuple):
    runs: list[DeliveredRun]
    next_offset: int
    end_offset: int
    start_offset: int


class Touched(NamedTuple):
    """Outcome of a cancel or reschedule for one message."""

    id: str
    status: str
