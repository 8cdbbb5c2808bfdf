"""Queries and replies of the tables that pages show."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock.wire.messages import Page, PageLimit, QueueName, Request

SortKey: TypeAlias = Literal[
    "name",
    "depth",
    "ready",
    "leased",
    "scheduled",
    "dead",
    "oldest_age_ms",
    "published_per_s",
    "delivered_per_s",
    "acked_per_s",
]


class QueueTableQuery(Request):
    search: Annotated[str, Meta(max_length=200, description="A part of the path; upper and lower case are equal.")] = ""
    names: Annotated[str, Meta(max_length=4_000, description="Full paths of queues, separated by commas.")] = ""
    message: Annotated[str, Meta(max_length=512, description="Only queues that store a message with this id.")] = ""
    sort: Annotated[SortKey, Meta(description="By name ascending, by a number descending.")] = "name"
    page: Page = 1
    limit: PageLimit = 50


class LetterGroupsQuery(Request):
    queue: QueueName
    max: Annotated[int, Meta(ge=1, le=10_000, description="Approximate number of dead letters to look at.")] = 2_000


class MetricsQuery(Request):
    aliases: Annotated[bool, Meta(description="Also under the names of other systems.")] = False


class ConnectionsQuery(Request):
    limit: PageLimit = 100


class QueueEntry(msgspec.Struct):
    queue: str
    order: str
    queue_priority: int
    depth: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    dead: int
    oldest_age_ms: Annotated[int | None, Meta(description="Age of the oldest unfinished message, approximately.")]
    rates: Annotated[dict[str, float], Meta(description="Messages per second over the last minute.")]
    totals: Annotated[dict[str, int], Meta(description="Messages since the server started, by kind of event.")]
    recent: Annotated[list[int], Meta(description="Messages published in each minute of the last hour.")]


class QueueSums(msgspec.Struct):
    """Sums over all queues, found or not; the age is the largest."""

    depth: int
    ready: int
    leased: int
    scheduled: int
    dead: int
    oldest_age_ms: int | None
    rates: dict[str, float]


class QueueTableReply(msgspec.Struct):
    queues: list[QueueEntry]
    total: int
    page: int
    limit: int
    sum: QueueSums


class LetterGroup(msgspec.Struct):
    """Dead letters whose errors differ only in numbers, ids, paths and quoted words."""

    fingerprint: str
    reason: str
    pattern: str
    error: Annotated[str, Meta(description="The error of the first letter.")]
    count: int
    first_at_ms: int
    last_at_ms: int
    filter: Annotated[str, Meta(description="A filter that finds the letters of the group.")]


class LetterGroupsReply(msgspec.Struct):
    queue: str
    reasons: list[LetterGroup]
    looked: int
    complete: Annotated[bool, Meta(description="False if there are more dead letters than were looked at.")]


class StorageReply(msgspec.Struct):
    """The files of the server and the speed of its commits. Bytes are up to ten seconds old."""

    store: str
    fsync: str
    journal_bytes: Annotated[int, Meta(description="Journal files, with those that are kept for reuse.")]
    segment_bytes: Annotated[int, Meta(description="Messages that were copied out of the journal.")]
    snapshot_bytes: int
    disk_free_bytes: Annotated[int | None, Meta(description="Null if the server has no data directory.")]
    disk_total_bytes: int | None
    commits_per_s: Annotated[float | None, Meta(description="Over the last minutes; null without commits.")]
    commit_p50_ms: float | None
    commit_p99_ms: float | None


class ConnectionEntry(msgspec.Struct):
    peer: str
    transport: str
    since_at_ms: int
    seen_at_ms: int
    holds: Annotated[str, Meta(description="The request that it waits for, or the events that it gets.")]


class ConnectionsReply(msgspec.Struct):
    connections: list[ConnectionEntry]
    total: int
    grpc: Annotated[int, Meta(description="gRPC connections, which are counted and not listed.")]
