"""Schemas of the replies for `/openapi.json`. The server writes most replies from templates; tests compare both."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.wire.delivery import Settled
from penstock.wire.settings import QueueSettings
from penstock.wire.status import STATUS


class ErrorBody(msgspec.Struct):
    """`code` is part of the interface; the text of `message` may change."""

    code: Annotated[str, Meta(description="One of: " + ", ".join(STATUS) + ".", examples=["queue_not_found"])]
    message: str
    retryable: bool
    details: dict[str, Any]


class ErrorReply(msgspec.Struct):
    error: ErrorBody


class PublishedMessage(msgspec.Struct):
    """The position of a message; for a duplicate, the position of the first message."""

    id: str
    queue: str
    partition: int
    offset: int
    duplicate: bool


Ignored: TypeAlias = Annotated[
    list[str],
    Meta(description="Options that have no effect in the queue: `priority`, if the order of the queue is fifo."),
]


class PublishReply(msgspec.Struct):
    messages: list[PublishedMessage]
    durable: bool
    ignored: Ignored | UnsetType = UNSET


class PublishedRun(msgspec.Struct):
    """Contiguous messages of a published frame: ids and offsets count up from the first."""

    queue: str
    partition: int
    offset: int
    count: int
    id: str
    duplicate: bool
    rows: Annotated[list[int] | None, Meta(description="Rows of the frame, or null for the next `count` rows.")]


class PublishRunsReply(msgspec.Struct):
    runs: list[PublishedRun]
    durable: bool
    ignored: Ignored | UnsetType = UNSET


class PublishResult(msgspec.Struct):
    """The result for one message of a publish that is not atomic: 201 and its position, or the status of the error."""

    status: int
    id: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


class PublishResultsReply(msgspec.Struct):
    results: list[PublishResult]
    durable: bool
    ignored: Ignored | UnsetType = UNSET


class Message(msgspec.Struct):
    """A message of a reply: `payload` if it was published as JSON, otherwise `payload_b64`."""

    id: str
    queue: str
    partition: int
    offset: int
    key: str | None
    priority: int
    headers: dict[str, str]
    attempt: int
    published_at_ms: int
    payload: Any | UnsetType = UNSET
    payload_b64: str | UnsetType = UNSET
    tenant: str | UnsetType | None = UNSET
    """Set only if messages of one batch have it."""


class LeasedMessage(Message, kw_only=True):
    """A leased message. Without receipt and deadline if the queue delivers at most once."""

    receipt: str | None
    deadline_at_ms: int | None


class LeaseReply(msgspec.Struct):
    """`generation` is that of the group, for a lease of a member. If it is newer than the member's, a heartbeat returns
    the new assignment."""

    messages: list[LeasedMessage]
    results: list[Settled] | UnsetType = UNSET
    generation: int | UnsetType = UNSET


class MessagesReply(msgspec.Struct):
    messages: list[Message]


class DeadLetter(Message, kw_only=True):
    """A dead-lettered message with its last attempt, its last consumer and the reason."""

    group: str
    reason: Annotated[str, Meta(extra_json_schema={"enum": ["max_retries", "rejected", "damaged"]})]
    error: str
    consumer: str
    first_at_ms: int
    last_at_ms: int
    dead_at_ms: int
    redriven: Annotated[int, Meta(description="Number of earlier redrives.")]


class DeadLettersReply(msgspec.Struct):
    messages: list[DeadLetter]
    total: Annotated[int | None, Meta(description="Null if counting would scan too many dead letters.")]
    page: int
    limit: int
    next: Annotated[str | None, Meta(description="Value of `after` for the next page; null at the end.")]


RedriveState: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": ["running", "finished", "stopped", "failed"]})]


class RedriveStatus(msgspec.Struct):
    """The status of a redrive, and the number of moved messages."""

    redrive_id: str
    queue: str
    status: RedriveState
    redriven: int
    skipped: int
    error: str
    group: str | None
    filter: str | None
    target: str | None
    delay_ms: int
    priority: int | None
    rate_per_s: int
    started_at_ms: int
    ended_at_ms: int | None


class RedriveReply(msgspec.Struct):
    """The count and a sample for a dry run, or else the status of the redrive."""

    redrive_id: str
    queue: str
    dry_run: bool
    count: int | UnsetType = UNSET
    sample: list[DeadLetter] | UnsetType = UNSET
    status: RedriveState | UnsetType = UNSET
    redriven: int | UnsetType = UNSET
    skipped: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    group: str | UnsetType | None = UNSET
    filter: str | UnsetType | None = UNSET
    target: str | UnsetType | None = UNSET
    delay_ms: int | UnsetType = UNSET
    priority: int | UnsetType | None = UNSET
    rate_per_s: int | UnsetType = UNSET
    started_at_ms: int | UnsetType = UNSET
    ended_at_ms: int | UnsetType | None = UNSET


class RedrivesReply(msgspec.Struct):
    redrives: list[RedriveStatus]


class DeletedDeadLettersReply(msgspec.Struct):
    queue: str
    deleted: int


class ReadReply(msgspec.Struct):
    messages: list[Message]
    next_offset: int
    end_offset: int
    start_offset: int
    skipped: Annotated[int, Meta(description="Requested offsets that retention has removed.")]


class SettleReply(msgspec.Struct):
    results: list[Settled]


class ShareReply(msgspec.Struct):
    """The partitions of a member: assigned, assigned but still held by another member, and to be released."""

    member: str
    generation: int
    assigned: list[int]
    awaited: list[int]
    giving_up: list[int]
    session_ms: int
    heartbeat_ms: Annotated[int, Meta(description="Interval between heartbeats.")]


class LeftReply(msgspec.Struct):
    left: Annotated[bool, Meta(description="False if there was no such member.")]


class TransactReply(msgspec.Struct):
    """The transaction is committed, now or by an earlier equal request; then the messages are duplicates."""

    acked: Annotated[list[str], Meta(description="The receipts.")]
    messages: list[PublishedMessage]
    durable: bool
    ignored: Ignored | UnsetType = UNSET


class ItemResult(msgspec.Struct):
    id: str
    status: str


class CancelReply(msgspec.Struct):
    cancelled: int
    results: list[ItemResult]


class RescheduleReply(msgspec.Struct):
    rescheduled: int
    results: list[ItemResult]


class QueueReply(msgspec.Struct):
    """A queue with all its settings, including defaults."""

    queue: str
    uuid: Annotated[str, Meta(description="Changes if the queue is deleted and created again.")]
    config: QueueSettings
    depth: int
    ready: Annotated[int, Meta(description="Messages that the first group could lease now.")]
    scheduled: int
    leased: int
    dead: int
    rates: Annotated[dict[str, float], Meta(description="Messages per second over the last minute.")]


class QueuesReply(msgspec.Struct):
    queues: list[QueueReply]
    total: int
    page: int
    limit: int


class DestroyedReply(msgspec.Struct):
    queue: str
    lost: dict[str, int]
    deleted: bool | UnsetType = UNSET
    purged: bool | UnsetType = UNSET


class StatusReply(msgspec.Struct):
    status: str


class ReadinessReply(StatusReply, omit_defaults=True):
    damaged_messages: int = 0
    """Messages that became dead letters since the start because they cannot be read."""
    read_errors: int = 0
    """Reads of stored messages that the disk refused since the start."""


class FrontPage(msgspec.Struct):
    name: str
    version: str
    openapi: str
    metrics: str
