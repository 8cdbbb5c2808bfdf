"""The query and the events of `/v1/events/stream`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from penstock.wire.messages import QueueName, Request

StreamedKind: TypeAlias = Literal[
    "published", "leased", "acked", "retried", "dead_lettered", "expired", "cancelled", "queue_created", "queue_deleted"
]


class EventStreamQuery(Request):
    queue: QueueName | None = None
    kind: StreamedKind | None = None


class StreamedEvent(msgspec.Struct):
    """A change of `count` messages; `messages` has the ids of the first ones."""

    kind: StreamedKind
    queue: str
    at_ms: int
    count: int
    messages: tuple[str, ...]
    consumer: str
    error: str
