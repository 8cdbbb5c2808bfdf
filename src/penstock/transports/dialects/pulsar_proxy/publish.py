"""`/api/v1/messages`: one, or many of which each is taken or not; and `/api/v1/topics`, how a topic delivers."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import limits
from penstock.errors import InvalidRequest, PenstockError, QueueNotFound
from penstock.ids import QueuePath
from penstock.transports.dialects.delivered import flat, moment
from penstock.transports.dialects.pulsar_proxy.shapes import (
    LANES,
    TOPIC,
    BulkRequest,
    InvalidTopic,
    PublishRequest,
    TopicRequest,
    id_shown,
    topic_path,
)
from penstock.transports.dialects.router import Names
from penstock.transports.dialects.storing import Item, store, store_each
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, PublishMessage
from penstock.wire.parse import named_error, parse_json, parse_query

_publish_decoder = msgspec.json.Decoder(PublishRequest)
_bulk_decoder = msgspec.json.Decoder(BulkRequest)
_topic_decoder = msgspec.json.Decoder(TopicRequest)


async def publish(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    item = _item(edge, parse_json(_publish_decoder, request.json_body()))
    (stored,) = await store(edge, [item], create_as=TOPIC)
    return json_answer(
        {"message_id": id_shown(stored.id), "topic": flat(item.queue), "timestamp": moment(stored.at_ms)}, 201
    )


async def bulk(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """207, also if all are accepted or none: each result says it."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_bulk_decoder, request.json_body())
    read = [_read(edge, raw, row) for row, raw in enumerate(asked.messages)]
    stored = iter(await store_each(edge, [each for each in read if isinstance(each, Item)], create_as=TOPIC))
    outcomes = [next(stored) if isinstance(each, Item) else each for each in read]
    results = [
        _rejected(each) if isinstance(each, PenstockError) else {"message_id": id_shown(each.id), "status": "accepted"}
        for each in outcomes
    ]
    return json_answer({"results": results}, 207)


def _read(edge: Edge, raw: msgspec.Raw, row: int) -> Item | PenstockError:
    try:
        return _item(edge, _publish_decoder.decode(raw))
    except msgspec.DecodeError as error:
        return named_error(error, row)
    except PenstockError as error:
        return error


def _rejected(error: PenstockError) -> dict[str, Any]:
    code = "invalid_topic" if isinstance(error, InvalidTopic) else error.code
    return {"error": code, "status": "rejected", "message": error.message}


def _item(edge: Edge, asked: PublishRequest) -> Item:
    queue = topic_path(asked.topic)
    message = PublishMessage(
        payload=asked.payload,
        headers=asked.metadata,
        ttl_ms=None if asked.ttl is None else asked.ttl * 1000,
        priority=_priority(edge, queue, (asked.metadata or {}).get("priority")),
    )
    return Item(queue, message)


def _priority(edge: Edge, queue: QueuePath, word: str | None) -> int:
    """Of a topic with lanes the word is one of five, of a heap it is a number; elsewhere it is only passed on."""
    if word is None:
        return 0
    try:
        order = edge.broker.get_queue(queue)["config"]["order"]
    except QueueNotFound:
        return 0
    if order == "lanes" and word in LANES:
        return LANES[word]
    digits = word.removeprefix("-")
    if order == "heap" and digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return int(word)
    if order != "fifo":
        expected = "a number" if order == "heap" else f"one of {', '.join(LANES)}"
        raise InvalidRequest(
            f"priority {word[:64]!r}: {flat(queue)} expects {expected}", details={"field": "metadata.priority"}
        )
    return 0


async def configure(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    asked = parse_json(_topic_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    queue, settings = topic_path(asked.topic), {"delivery": asked.delivery_mode}
    created = False
    try:
        await edge.broker.patch_queue(queue, settings)
    except QueueNotFound:
        _, created = await edge.broker.put_queue(queue, TOPIC | settings)
    return json_answer({"topic": flat(queue), "delivery_mode": asked.delivery_mode}, 201 if created else 200)
