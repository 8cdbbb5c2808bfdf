"""Parameters and replies of the facade. Values only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NewType, TypeAlias

import msgspec

from penstock.batch import Batch
from penstock.core.commands import Command
from penstock.core.state.letter_chunks import DeadLetter
from penstock.ids import QueuePath
from penstock.pending import PendingReply
from penstock.wire.delivery import Settled

Submit: TypeAlias = Callable[[Command], PendingReply[Any]]
"""`ShardLoop.submit`: decides a command now; the reply is sent when it is durable."""
Entropy: TypeAlias = Callable[[int], int]
"""Number of bits -> that many random bits."""


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
    ignored: tuple[str, ...] = ()
    """Options that have no effect in the queue: `priority` if its order is fifo."""


class TransactReply(NamedTuple):
    acked: list[str]
    """The receipts, as they were shown."""
    runs: list[PublishedRun]
    durable: bool
    ignored: tuple[str, ...] = ()


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
    lease_ms: int | None = None
    """The length of the lease that ends at `deadline_at_ms`, for consumers whose clock differs from the broker's."""


class LeaseReply(NamedTuple):
    runs: list[DeliveredRun]
    results: Sequence[Settled]
    generation: int | None = None
    """Of the group, where a member asked: if it is newer than the member's, a heartbeat tells what has changed."""


class ShareReply(NamedTuple):
    """The partitions of one member of a group."""

    member: str
    generation: int
    assigned: list[int]
    """Partitions that the member owns."""
    awaited: list[int]
    """Owned partitions whose former owner still holds leases."""
    giving_up: list[int]
    """Partitions that the member lost and still holds leases of."""
    session_ms: int
    heartbeat_ms: int
    """How often it should be heard."""


class ReadReply(NamedTuple):
    runs: list[DeliveredRun]
    next_offset: int
    end_offset: int
    start_offset: int
    skipped: int = 0
    """Offsets that were asked for and are below the start: retention has removed them."""


class QueueRow(NamedTuple):
    """A queue in a list of many."""

    queue: str
    order: str
    priority: int
    depth: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    dead: int
    totals: dict[str, int]
    """Since the process started."""
    rates: dict[str, float]
    oldest_age_ms: int | None = None
    """Of the oldest unfinished message."""


class FoundLetter(NamedTuple):
    """A dead letter: the message, the group that gave it up, and why."""

    run: DeliveredRun
    group: str
    letter: DeadLetter


LetterPage = NewType("LetterPage", dict[str, Any])
"""A page of dead letters, oldest first: `dead_letters` (FoundLetter), `total`, `page`, `limit`, `next`.

`total` is None if the count would take looking at too many; `next` is the letter to go on after, None at the end.
"""
RedriveReply = NewType("RedriveReply", dict[str, Any])
"""The state of a redrive. The entries of `sample`, which a dry run has, are `FoundLetter`."""


class CancelResult(NamedTuple):
    """Outcome of a cancel or reschedule for one message."""

    id: str
    status: str
