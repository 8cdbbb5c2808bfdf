"""What is answered, as shapes. The server writes most of these answers by template, for speed; here they are spelled
out for `/openapi.json`, which tests hold against what really leaves the server.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.wire.delivery import Settled


class ErrorBody(msgspec.Struct):
    """`code` is for programs and never changes its meaning; `message` is for people and may."""

    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class ErrorReply(msgspec.Struct):
    error: ErrorBody


class PublishedMessage(msgspec.Struct):
    """Where a message went. Of a duplicate: where the first one is."""

    id: str
    queue: str
    partition: int
    offset: int
    duplicate: bool


class PublishReply(msgspec.Struct):
    messages: list[PublishedMessage]
    durable: bool


class PublishedRun(msgspec.Struct):
    """Messages of a published frame that lie together: the ids and offsets count up from the first."""

    queue: str
    partition: int
    offset: int
    count: int
    id: str
    duplicate: bool
    rows: Annotated[list[int] | None, Meta(description="Places in the frame, or null for the next `count` of them.")]


class PublishRunsReply(msgspec.Struct):
    runs: list[PublishedRun]
    durable: bool


class PublishResult(msgspec.Struct):
    """Of a publish that is not atomic, what became of one message: 201 and its place, or the error's status."""

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


class Message(msgspec.Struct):
    """A message as it is read: `payload` if it was published as JSON, otherwise `payload_b64`."""

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
    """Only where messages published together have one."""


class LeasedMessage(Message, kw_only=True):
    """A message under a lease. No receipt and no deadline where the queue delivers at most once."""

    receipt: str | None
    deadline_at_ms: int | None


class LeaseReply(msgspec.Struct):
    """`generation` is the group's, if a member asked: if it is newer than the member's, a heartbeat tells why."""

    messages: list[LeasedMessage]
    results: list[Settled] | UnsetType = UNSET
    generation: int | UnsetType = UNSET


class MessagesReply(msgspec.Struct):
    messages: list[Message]


class DeadLetter(Message, kw_only=True):
    """A message that was given up: after which attempt, by whom and why."""

    group: str
    reason: str
    error: str
    consumer: str
    first_at_ms: int
    last_at_ms: int
    dead_at_ms: int
    redriven: Annotated[int, Meta(description="How often it was redriven before.")]


class DeadLettersReply(msgspec.Struct):
    messages: list[DeadLetter]
    total: Annotated[int | None, Meta(description="Null where counting would take looking at too many.")]
    page: int
    limit: int
    next: Annotated[str | None, Meta(description="For `after`; null at the end.")]


class RedriveStatus(msgspec.Struct):
    """A redrive under its id: `running`, `finished`, `stopped` or `failed`, and what it has moved so far."""

    redrive_id: str
    queue: str
    status: str
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
    """Of a dry run the count and a sample, of a real one its status so far."""

    redrive_id: str
    queue: str
    dry_run: bool
    count: int | UnsetType = UNSET
    sample: list[DeadLetter] | UnsetType = UNSET
    status: str | UnsetType = UNSET
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
    skipped: Annotated[int, Meta(description="Offsets that were asked for and that retention has removed.")]


class SettleReply(msgspec.Struct):
    results: list[Settled]


class ShareReply(msgspec.Struct):
    """The partitions of a member: what it shall have, what of that others still hold, what it is to let go of."""

    member: str
    generation: int
    assigned: list[int]
    awaited: list[int]
    giving_up: list[int]
    session_ms: int
    heartbeat_ms: Annotated[int, Meta(description="How often to send a heartbeat.")]


class LeftReply(msgspec.Struct):
    left: Annotated[bool, Meta(description="False if it was not a member.")]


class MemberEntry(msgspec.Struct):
    member: str
    generation: Annotated[int, Meta(description="The last change of its partitions that it has confirmed.")]
    partitions: list[int]
    awaited: list[int]
    giving_up: list[int]
    session_ms: int
    drain_ms: int
    heard_at_ms: int


class GroupPartition(msgspec.Struct):
    """How far a group is: everything below `floor` is done, and of what is above it the first `acked_ranges`."""

    partition: int
    owner: str | None
    lag: int
    next_offset: int
    floor: int
    acked_ranges: list[tuple[int, int]]


class GroupEntry(msgspec.Struct):
    group: str
    kind: Annotated[str, Meta(description="`plain`, or `assigned` as long as it has members.")]
    generation: int
    members: list[MemberEntry]
    lag: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    partitions: list[GroupPartition]


class GroupsReply(msgspec.Struct):
    queue: str
    groups: list[GroupEntry]


class TransactReply(msgspec.Struct):
    """All of it happened; now, or when the same request came before: then the messages are duplicates."""

    acked: Annotated[list[str], Meta(description="The receipts.")]
    messages: list[PublishedMessage]
    durable: bool


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
    """A queue with all its settings, also those that were never set."""

    queue: str
    uuid: Annotated[str, Meta(description="Another one if the queue is deleted and created again.")]
    config: dict[str, Any]
    depth: int


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


class FrontPage(msgspec.Struct):
    name: str
    version: str
    openapi: str
    metrics: str
