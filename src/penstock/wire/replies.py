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
    messages: list[LeasedMessage]
    results: list[Settled] | UnsetType = UNSET


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


class DeadLettersReply(msgspec.Struct):
    messages: list[DeadLetter]
    total: int
    page: int
    limit: int


class ReadReply(msgspec.Struct):
    messages: list[Message]
    next_offset: int
    end_offset: int
    start_offset: int


class SettleReply(msgspec.Struct):
    results: list[Settled]


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
