"""Requests of this dialect, and its form of topics, ids and messages. Durations are seconds, times are ISO 8601."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath, ulid_value
from penstock.transports.dialects.delivered import DeliveredMessage, iso_timestamp, short_name
from penstock.wire.messages import Request
from penstock.wire.parse import parse_queue

TOPICS_MAX = 64
"""The most topics of one poll or subscription, because each of them may need a waiting lease."""
ID_PREFIX = "msg_"
TOPIC = {"retention": {"mode": "keep", "ms": 24 * 3_600_000}}
"""Settings of a topic that this dialect creates: messages are kept for a day, also after all groups have read them."""
LANES = {"critical": 0, "high": 1, "normal": 2, "low": 3, "background": 4}

ClientName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.CONSUMER_CHARS_MAX)]


class InvalidTopic(InvalidRequest):
    """The name of a topic is invalid."""


class TopicPublishRequest(Request):
    topic: str
    payload: msgspec.Raw
    ttl: Annotated[int, Meta(ge=1, le=limits.TTL_MS_MAX // 1000)] | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=limits.HEADERS_COUNT_MAX)] | None = None

    def __post_init__(self) -> None:
        if not bytes(self.payload).lstrip().startswith(b"{"):
            raise InvalidRequest("payload: an object is expected", details={"field": "payload"})


class BulkRequest(Request):
    messages: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]


class TopicRequest(Request):
    topic: str
    delivery_mode: Literal["at_least_once", "at_most_once"]


class PollQuery(Request):
    topics: str
    timeout: Annotated[int, Meta(ge=0, le=60)] = 30
    since: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    client_id: ClientName | None = None


class TopicAckRequest(Request):
    """`client_id` is that of the poll or subscription; `topic` selects one delivery if the id is ambiguous."""

    message_ids: Annotated[
        list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=limits.RECEIPTS_MAX)
    ]
    client_id: ClientName | None = None
    topic: str | None = None


def topic_path(name: str) -> QueuePath:
    try:
        return parse_queue(name)
    except InvalidRequest as error:
        raise InvalidTopic(
            error.message.replace("queue ", "topic ", 1), details={"field": "topic", "reason": "invalid_topic"}
        ) from None


def topic_paths(names: Sequence[str]) -> list[QueuePath]:
    paths = list(dict.fromkeys(topic_path(name) for name in names))
    if not 1 <= len(paths) <= TOPICS_MAX:
        raise InvalidRequest(f"name 1 to {TOPICS_MAX} topics", details={"field": "topics"})
    return paths


def external_id(message_id: str) -> str:
    return f"{ID_PREFIX}{message_id}"


def internal_id(text: str) -> str:
    return text.removeprefix(ID_PREFIX)


def position(text: str, field: str) -> int:
    """A message id as a number; later messages have greater numbers."""
    try:
        return ulid_value(internal_id(text))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, details={"field": field}) from None


def message_json(message: DeliveredMessage) -> dict[str, Any]:
    shown = {
        "message_id": external_id(message.id),
        "topic": short_name(message.queue),
        **message.payload_field(),
        "timestamp": iso_timestamp(message.published_at_ms),
    }
    return {**shown, "metadata": message.headers} if message.headers else shown
