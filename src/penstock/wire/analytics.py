"""Shapes of `/v1/analytics`: what was counted of the past, and what is there now."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock.wire.messages import Page, PageLimit, QueueName, Request

FromMs: TypeAlias = Annotated[
    int, Meta(ge=0, le=2**53, description="Minutes from this one on; a day before `to_ms` if left out.")
]
ToMs: TypeAlias = Annotated[int, Meta(ge=0, le=2**53, description="Minutes before this one; now if left out.")]
StepMs: TypeAlias = Annotated[
    int,
    Meta(ge=60_000, le=2**40, description="Minutes are put together into steps of this length; chosen if left out."),
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
    """Of one queue, or of everything."""

    queue: QueueName | None = None
    from_ms: FromMs | None = None
    to_ms: ToMs | None = None
    step_ms: StepMs | None = None


class Timing(msgspec.Struct):
    """How long something took. Exact below 128 ms, within 0.8 % above."""

    count: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class Counts(msgspec.Struct):
    """Messages to which this happened."""

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
    depth: Annotated[int | None, Meta(description="At the end of the step; of the group that has most to do.")] = None
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
    lost: Annotated[int, Meta(description="Deliveries whose lease ran out.")]
    per_s: Annotated[float, Meta(description="Messages acked a second, over the minutes in which it acked some.")]
    error_rate: Annotated[float, Meta(description="Of what it settled or lost, the part that it did not ack.")]
    mean_processing_ms: float | None = None


class AnalyticsFailure(msgspec.Struct):
    """Dead letters whose errors are the same but for numbers, ids, paths and quoted words."""

    queue: str
    group: str
    fingerprint: str
    pattern: str
    reason: str
    messages: int
    error: Annotated[str, Meta(description="Of one of them.")]
    partition: int
    offset: int


class AnalyticsNow(msgspec.Struct):
    """A queue at this moment, from the broker itself; rates are those of the last minute."""

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
    now: Annotated[AnalyticsNow | None, Meta(description="Null if the queue is not there any more.")] = None


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
