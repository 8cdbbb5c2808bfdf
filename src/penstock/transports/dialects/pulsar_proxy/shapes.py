"""What this dialect is asked, and how it writes topics, ids and messages. Times are seconds, moments ISO 8601."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath, ulid_value
from penstock.transports.dialects.delivered import Delivered, flat, moment
from penstock.wire.messages import Request
from penstock.wire.parse import parse_queue

TOPICS_MAX = 64
"""Of one poll or subscription: each of them may have to be waited for."""
ID_PREFIX = "msg_"
TOPIC = {"retention": {"mode": "keep", "ms": 24 * 3_600_000}}
"""Settings of a topic that is first heard of through this dialect: kept for a day, whoever has read it."""
LANES = {"critical": 0, "high": 1, "normal": 2, "low": 3, "background": 4}

ClientName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.CONSUMER_CHARS_MAX)]


class InvalidTopic(InvalidRequest):
    """Not the name of a topic."""


class PublishRequest(Request):
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


class AckRequest(Request):
    """`client_id` is the one that polled or subscribed with it; `topic` tells one delivery from another."""

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


def id_shown(message_id: str) -> str:
    return f"{ID_PREFIX}{message_id}"


def id_meant(text: str) -> str:
    return text.removeprefix(ID_PREFIX)


def position(text: str, field: str) -> int:
    """A message id as a number: what is after it has a greater one."""
    try:
        return ulid_value(id_meant(text))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, details={"field": field}) from None


def message_shown(message: Delivered) -> dict[str, Any]:
    shown = {
        "message_id": id_shown(message.id),
        "topic": flat(message.queue),
        **message.payload_field(),
        "timestamp": moment(message.published_at_ms),
    }
    return {**shown, "metadata": message.headers} if message.headers else shown
