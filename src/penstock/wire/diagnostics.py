"""Replies of the diagnostic calls: explain, scheduled, history and autoscale."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType


class ExplainedMessage(msgspec.Struct):
    """The state of one message in one group, and the reasons that block its delivery."""

    id: str | None
    partition: int | None
    offset: int | None
    published_at_ms: int | None
    state: str
    attempts: int | None
    deliverable: Annotated[bool, Meta(description="True if a large enough lease would return the message now.")]
    reasons: Annotated[
        list[dict[str, Any]], Meta(description="Each with its `kind`, whether it `blocks`, and the data of its kind.")
    ]
    text: str


class HoldingGroup(msgspec.Struct):
    """A group for which alone messages are stored, as they are kept until every group has acked them."""

    group: str
    held: Annotated[int, Meta(description="Messages at the beginning of the log.")]
    lag: int
    oldest_unacked_at_ms: int | None
    last_asked_at_ms: int | None


class ExplainReply(msgspec.Struct):
    queue: str
    group: str
    at_ms: int
    waiting_consumers: int
    last_asked_at_ms: int | None
    held_by: Annotated[list[HoldingGroup], Meta(description="Groups that keep the log from moving on, at most ten.")]
    messages: list[ExplainedMessage]


class ScheduledMessage(msgspec.Struct):
    """A message whose delivery time has not come."""

    id: str
    partition: int
    offset: int
    due_at_ms: int
    published_at_ms: int
    key: str | None
    client_id: Annotated[str | None, Meta(description="The id that its client chose.")]


class ScheduledReply(msgspec.Struct):
    queue: str
    messages: list[ScheduledMessage]
    total: Annotated[int, Meta(description="Scheduled messages of the queue.")]
    next: Annotated[str | None, Meta(description="Value of `after` for the next page; null at the end.")]


class HistoryEvent(msgspec.Struct):
    """One transition; fields that do not apply to its kind are left out."""

    kind: str
    at_ms: int
    group: str | UnsetType = UNSET
    consumer: str | UnsetType = UNSET
    lease: int | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    due_at_ms: int | UnsetType = UNSET
    deadline_at_ms: int | UnsetType = UNSET


class HistoryReply(msgspec.Struct):
    queue: str
    id: str
    partition: int | None
    offset: int | None
    complete: Annotated[bool, Meta(description="False if the journal has trimmed the first events of the message.")]
    events: list[HistoryEvent]


class AutoscaleReply(msgspec.Struct):
    """All fields are numbers, as scalers require: -1 stands for none."""

    queue: str
    group: str
    at_ms: int
    window_s: float
    arrival_rate: float
    service_rate: float
    service_rate_per_worker: float
    mean_service_time_s: float
    ready: int
    in_flight: int
    backlog: int
    busy_workers: int
    waiting_consumers: int
    time_to_drain_s: float
    target_drain_s: float
    suggested_workers: int
