"""Replies about the state of a queue, and of the whole server, at this moment."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.wire.groups import GroupEntry
from penstock.wire.messages import PageLimit, QueueName, Request


class PartitionStats(msgspec.Struct):
    partition: int
    start_offset: int
    end_offset: int
    depth: int
    scheduled: int
    dead: int


class Percentiles(msgspec.Struct):
    p50_ms: int
    p95_ms: int
    p99_ms: int


class QueueLatency(msgspec.Struct):
    """Of this minute and the one before it; at most an eighth too large."""

    delivery: Annotated[Percentiles | None, Meta(description="From publish to first delivery.")]
    ack: Annotated[Percentiles | None, Meta(description="From delivery to ack or dead letter.")]


class ConsumersQuery(Request):
    queue: QueueName
    limit: PageLimit = 50


class ConsumerEntry(msgspec.Struct):
    consumer: Annotated[str | None, Meta(description="Null: the lease has no consumer name.")]
    group: str
    messages: Annotated[int, Meta(description="Messages under lease.")]


class ConsumersReply(msgspec.Struct):
    """The consumers that hold messages, those that hold most first."""

    queue: str
    latency: QueueLatency
    consumers: list[ConsumerEntry]
    total: int


class AlarmState(msgspec.Struct):
    since_at_ms: int
    why: list[str]


class StatsReply(msgspec.Struct):
    queue: str
    uuid: Annotated[str, Meta(description="Changes if the queue is deleted and created again.")]
    depth: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    dead: int
    dead_letter_alarm: Annotated[AlarmState | None, Meta(description="Null if the alarm is off.")]
    oldest_age_ms: Annotated[int | None, Meta(description="Age of the oldest unfinished message, approximately.")]
    window_opens_at_ms: int | None
    totals: Annotated[dict[str, int], Meta(description="Messages since the server started, by kind of event.")]
    rates: Annotated[dict[str, float], Meta(description="Messages per second over the last minute.")]
    partitions: list[PartitionStats]
    groups: list[GroupEntry]


class SummaryReply(msgspec.Struct):
    queues: int
    namespaces: int
    depth: int
    scheduled: int
    leased: int
    dead: int
    dead_letter_alarms: Annotated[list[str], Meta(description="Queues whose alarm is on.")]
    waiting_consumers: int
    holds: int
    holds_lost: int
    held_bytes: int
    broker: Annotated[str, Meta(description="The id of the broker's storage.")]
