"""`/api/v1/messages`, its bulk form with a result for each message, and `/api/v1/topics`."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import limits
from penstock.errors import InvalidRequest, PenstockError, QueueNotFound
from penstock.ids import QueuePath
from penstock.pending import value_of
from penstock.transports.dialects.delivered import iso_timestamp, short_name
from penstock.transports.dialects.publishing import PublishItem, store, store_each
from penstock.transports.dialects.pulsar_proxy.shapes import (
    LANES,
    TOPIC,
    BulkRequest,
    InvalidTopic,
    TopicPublishRequest,
    TopicRequest,
    external_id,
    topic_path,
)
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, PublishMessage
from penstock.wire.parse import named_error, parse_json, parse_query

_publish_decoder = msgspec.json.Decoder(TopicPublishRequest)
_bulk_decoder = msgspec.json.Decoder(BulkRequest)
_topic_decoder = msgspec.json.Decoder(TopicRequest)


async def publish(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    item = await _item(edge, parse_json(_publish_decoder, request.json_body()))
    (stored,) = await store(edge, [item], create_as=TOPIC)
    return json_answer(
        {
            "message_id": external_id(stored.id),
            "topic": short_name(item.queue),
            "timestamp": iso_timestamp(stored.at_ms),
        },
        201,
    )


async def bulk(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Reply 207 in all cases, with a result for each message."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_bulk_decoder, request.json_body())
    read = [await _read(edge, raw, row) for row, raw in enumerate(asked.messages)]
    stored = iter(await store_each(edge, [each for each in read if isinstance(each, PublishItem)], create_as=TOPIC))
    outcomes = [next(stored) if isinstance(each, PublishItem) else each for each in read]
    results = [
        _rejected(each)
        if isinstance(each, PenstockError)
        else {"message_id": external_id(each.id), "status": "accepted"}
        for each in outcomes
    ]
    return json_answer({"results": results}, 207)


async def _read(edge: Edge, raw: msgspec.Raw, row: int) -> PublishItem | PenstockError:
    try:
        return await _item(edge, _publish_decoder.decode(raw))
    except msgspec.DecodeError as error:
        return named_error(error, row)
    except PenstockError as error:
        return error


def _rejected(error: PenstockError) -> dict[str, Any]:
    code = "invalid_topic" if isinstance(error, InvalidTopic) else error.code
    return {"error": code, "status": "rejected", "message": error.message}


async def _item(edge: Edge, asked: TopicPublishRequest) -> PublishItem:
    queue = topic_path(asked.topic)
    message = PublishMessage(
        payload=asked.payload,
        headers=asked.metadata,
        ttl_ms=None if asked.ttl is None else asked.ttl * 1000,
        priority=await _priority(edge, queue, (asked.metadata or {}).get("priority")),
    )
    return PublishItem(queue, message)


async def _priority(edge: Edge, queue: QueuePath, word: str | None) -> int | None:
    """The priority for the metadata field: a lane name for lanes, a number for a heap, None for fifo."""
    if word is None:
        return None
    try:
        order = (await value_of(edge.broker.queues.get(queue)))["config"]["order"]
    except QueueNotFound:
        return None
    if order == "lanes" and word in LANES:
        return LANES[word]
    digits = word.removeprefix("-")
    if order == "heap" and digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return int(word)
    if order != "fifo":
        expected = "a number" if order == "heap" else f"one of {', '.join(LANES)}"
        raise InvalidRequest(
            f"priority {word[:64]!r}: {short_name(queue)} expects {expected}", details={"field": "metadata.priority"}
        )
    return None


async def configure(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    asked = parse_json(_topic_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    queue, settings = topic_path(asked.topic), {"delivery": asked.delivery_mode}
    created = False
    try:
        await edge.broker.queues.patch(queue, settings)
    except QueueNotFound:
        _, created = await edge.broker.queues.put(queue, TOPIC | settings)
    return json_answer({"topic": short_name(queue), "delivery_mode": asked.delivery_mode}, 201 if created else 200)
