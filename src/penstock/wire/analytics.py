"""Requests and replies of `/v1/analytics`: aggregates of past events, and the current state of queues."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock.wire.messages import Page, PageLimit, QueueName, Request

FromMs: TypeAlias = Annotated[int, Meta(ge=0, le=2**53, description="First minute; a day before `to_ms` if left out.")]
ToMs: TypeAlias = Annotated[int, Meta(ge=0, le=2**53, description="End of the range, exclusive; now if left out.")]
StepMs: TypeAlias = Annotated[
    int,
    Meta(
        ge=60_000,
        le=2**40,
        description="Length of a step, into which minutes are merged; chosen by the server if left out.",
    ),
]
Segment: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]


class AnalyticsQueuesQuery(Request):
    prefix: Annotated[str, Meta(max_length=200)] = ""
    from_ms: FromMs | None = None
    to_ms: ToMs | None = None
    page: Page = 1
    limit: PageLimit = 50


class AnalyticsQueueQuery(Request):
    queue: QueueName
    from_ms: FromMs | None = None
    to_ms: ToMs | None = None
    step_ms: StepMs | None = None


class AnalyticsNamespaceQuery(Request):
    namespace: Segment
    from_ms: FromMs | None = None
    to_ms: ToMs | None = None
    step_ms: StepMs | None = None


class AnalyticsTaskQuery(Request):
    namespace: Segment
    task: Segment
    from_ms: FromMs | None = None
    to_ms: ToMs | None = None
    step_ms: StepMs | None = None


class AnalyticsSeriesQuery(Request):
    """A time series of one queue, or of all queues."""

    queue: QueueName | None = None
    from_ms: FromMs | None = None
    to_ms: ToMs | None = None
    step_ms: StepMs | None = None


class Timing(msgspec.Struct):
    """A distribution of durations. Exact below 128 ms, within 0.8 % above."""

    count: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class Counts(msgspec.Struct):
    """The number of messages per kind of event."""

    published: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    retried: int = 0
    lease_expired: int = 0
    released: int = 0
    dead_lettered: int = 0
    redriven: int = 0
    removed: int = 0
    expired: int = 0
    cancelled: int = 0
    trimmed: int = 0
    purged: int = 0
    deleted: int = 0


class AnalyticsPoint(msgspec.Struct):
    at_ms: int
    counts: Counts
    wait: Timing
    processing: Timing
    end_to_end: Timing
    depth: Annotated[int | None, Meta(description="At the end of the step; of the group with the largest backlog.")] = (
        None
    )
    dead: int | None = None


class AnalyticsGroup(msgspec.Struct):
    queue: str
    group: str
    counts: Counts
    wait: Timing
    processing: Timing
    end_to_end: Timing
    depth: int | None = None
    dead: int | None = None


class AnalyticsConsumer(msgspec.Struct):
    queue: str
    group: str
    consumer: str
    delivered: int
    acked: int
    failed: int
    lost: Annotated[int, Meta(description="Deliveries with an expired lease.")]
    per_s: Annotated[float, Meta(description="Messages acked per second, over the minutes with at least one ack.")]
    error_rate: Annotated[float, Meta(description="Fraction of its deliveries that it did not ack.")]
    mean_processing_ms: float | None = None


class AnalyticsFailure(msgspec.Struct):
    """Dead letters whose errors are the same but for numbers, ids, paths and quoted words."""

    queue: str
    group: str
    fingerprint: str
    pattern: str
    reason: str
    messages: int
    error: Annotated[str, Meta(description="The error of one of them.")]
    partition: int
    offset: int


class AnalyticsNow(msgspec.Struct):
    """The current state of a queue, from the broker itself; rates are those of the last minute."""

    queue: str
    depth: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    dead: int
    published_per_s: float
    delivered_per_s: float
    acked_per_s: float


class AnalyticsQueue(msgspec.Struct):
    queue: str
    counts: Counts
    wait: Timing
    processing: Timing
    end_to_end: Timing
    depth: int | None = None
    dead: int | None = None
    now: Annotated[AnalyticsNow | None, Meta(description="Null if the queue was deleted.")] = None


class AnalyticsQueuesReply(msgspec.Struct):
    from_ms: int
    to_ms: int
    analysed_until_ms: Annotated[int, Meta(description="The end of the newest minute that was counted.")]
    queues: list[AnalyticsQueue]
    total: int
    page: int
    limit: int


class AnalyticsReply(msgspec.Struct):
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    counts: Counts
    wait: Timing
    processing: Timing
    end_to_end: Timing
    points: list[AnalyticsPoint]
    groups: list[AnalyticsGroup]
    consumers: list[AnalyticsConsumer]
    failures: list[AnalyticsFailure]
    now: list[AnalyticsNow]
    depth: int | None = None
    dead: int | None = None


class DepthPoint(msgspec.Struct):
    at_ms: int
    depth: int | None = None
    dead: int | None = None


class DepthsReply(msgspec.Struct):
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    points: list[DepthPoint]
    now: list[AnalyticsNow]


class ThroughputPoint(msgspec.Struct):
    at_ms: int
    published_per_s: float
    delivered_per_s: float
    acked_per_s: float
    retried_per_s: float
    dead_lettered_per_s: float


class ThroughputReply(msgspec.Struct):
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    points: list[ThroughputPoint]
    now: list[AnalyticsNow]


class LatencyPoint(msgspec.Struct):
    at_ms: int
    wait: Timing
    processing: Timing
    end_to_end: Timing


class LatencyReply(msgspec.Struct):
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    points: list[LatencyPoint]
