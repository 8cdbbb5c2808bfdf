"""Enqueue, ack, nack, extend, peek. A lease token is a receipt of `/v1/lease`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock import limits
from penstock.broker.types import ProducerSeq
from penstock.errors import InvalidRequest, StaleReceipt
from penstock.ids import QueuePath
from penstock.pending import value_of
from penstock.transports.dialects.delivered import DeliveredMessage, iso_timestamp, messages_of_runs, short_name
from penstock.transports.dialects.disheap.heaps import heap_at
from penstock.transports.dialects.disheap.proto_json import base64_plain, milliseconds
from penstock.transports.dialects.disheap.shapes import (
    EnqueueBatchRequest,
    EnqueueRequest,
    HeapAckRequest,
    HeapExtendRequest,
    HeapNackRequest,
    HeapPeekQuery,
)
from penstock.transports.dialects.publishing import PublishItem, StoredItem, store
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, PublishMessage
from penstock.wire.parse import parse_json, parse_query
from penstock.wire.publishing import is_json

_enqueue_decoder = msgspec.json.Decoder(EnqueueRequest, strict=False)
_batch_decoder = msgspec.json.Decoder(EnqueueBatchRequest, strict=False)
_ack_decoder = msgspec.json.Decoder(HeapAckRequest)
_nack_decoder = msgspec.json.Decoder(HeapNackRequest)
_extend_decoder = msgspec.json.Decoder(HeapExtendRequest)


# -- enqueue ------------------------------------------------------------------------------------------------------


async def enqueue(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    asked = parse_json(_enqueue_decoder, request.json_body())
    (stored,) = await store(edge, [await _item(edge, asked)], _producer([asked]))
    return json_answer(_stored(stored))


async def enqueue_batch(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Enqueue all messages or none, over all heaps."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_batch_decoder, request.json_body()).requests
    items = [await _item(edge, each) for each in asked]
    producer = _producer(asked)
    if producer is not None and len({item.queue for item in items}) > 1:
        raise InvalidRequest(
            "a batch with producer sequence numbers must have one topic",
            details={"field": "topic"},
        )
    stored = await store(edge, items, producer)
    return json_answer(
        {"responses": [_stored(each) for each in stored], "all_duplicates": all(each.duplicate for each in stored)}
    )


async def _item(edge: Edge, asked: EnqueueRequest) -> PublishItem:
    queue = await heap_at(edge, asked.topic)
    message = PublishMessage(
        payload_b64=base64_plain(asked.payload),
        key=asked.partition_key or None,
        priority=asked.priority,
        delay_ms=0 if asked.not_before is None else milliseconds("not_before", asked.not_before),
        max_retries=asked.max_retries,
    )
    if asked.json:
        payload = _decoded(message.payload_b64 or "")
        if not is_json(payload):
            raise InvalidRequest("payload: is not JSON, but json is true", details={"field": "payload"})
        message.payload, message.payload_b64 = msgspec.Raw(payload), None
    return PublishItem(queue, message)


def _decoded(text: str) -> bytes:
    try:
        return msgspec.convert(text, bytes)
    except msgspec.ValidationError:
        raise InvalidRequest("payload: is not base64", details={"field": "payload"}) from None


def _producer(asked: Sequence[EnqueueRequest]) -> ProducerSeq | None:
    """The producer and first sequence number of a batch, None without a producer. Raises InvalidRequest for a gap."""
    first = asked[0]
    for row, each in enumerate(asked):
        if (each.producer_id, each.epoch or 0, each.number) != (
            first.producer_id, first.epoch or 0, first.number + row if first.producer_id else 0,
        ):  # fmt: skip
            raise InvalidRequest(
                "messages of a batch must have one producer and epoch, and sequence numbers that count up by one; "
                "epoch and seq need a producer_id",
                details={"field": "seq", "row": row},
            )
    return ProducerSeq(first.producer_id, first.epoch or 0, first.number) if first.producer_id else None


def _stored(stored: StoredItem) -> dict[str, Any]:
    return {"message_id": stored.id, "duplicate": stored.duplicate}


# -- settling -----------------------------------------------------------------------------------------------------


async def ack(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    asked = parse_json(_ack_decoder, request.json_body())
    await _check_lease(edge, asked)
    (result,) = await edge.broker.messages.ack([asked.lease_token])
    return _done(result.status)


async def nack(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    asked = parse_json(_nack_decoder, request.json_body())
    delay = None if asked.backoff_override is None else milliseconds("backoff_override", asked.backoff_override)
    await _check_lease(edge, asked)
    (result,) = await edge.broker.messages.nack([asked.lease_token], delay_ms=delay, error=asked.reason)
    return _done(result.status)


async def extend(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Extend a lease. The extension counts from now, not from the deadline."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_extend_decoder, request.json_body())
    lease_ms = milliseconds("extension", asked.extension, least=limits.LEASE_MS_MIN, most=limits.LEASE_MS_MAX)
    await heap_at(edge, asked.topic)
    if not asked.lease_token.rpartition(".")[2].isdigit():
        raise _conflict()  # a receipt may be a range, a lease token is for one message
    (result,) = await edge.broker.messages.extend([asked.lease_token], lease_ms=lease_ms)
    return _done(result.status)


async def _check_lease(edge: Edge, asked: HeapAckRequest) -> None:
    """Refuse a token that does not belong to this message, so that it settles no other message."""
    queue: QueuePath = await heap_at(edge, asked.topic)
    if not await value_of(edge.broker.in_flight.is_held(queue, asked.message_id, asked.lease_token)):
        raise _conflict()


def _done(status: str) -> Answer:
    if status == "stale":
        raise _conflict()
    return json_answer({})


def _conflict() -> StaleReceipt:
    return StaleReceipt("the lease does not hold this message", details={"field": "lease_token"})


# -- peek ---------------------------------------------------------------------------------------------------------


async def peek(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    query = parse_query(HeapPeekQuery, request.query)
    path = await heap_at(edge, query.topic)
    messages = messages_of_runs(await edge.broker.log.peek(path, max=query.limit + 1))
    return json_answer(
        {"items": [_shown(message) for message in messages[: query.limit]], "has_more": len(messages) > query.limit}
    )


def _shown(message: DeliveredMessage) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "topic": short_name(message.queue),
        "partition_id": message.partition,
        "payload": b64encode(message.payload).decode(),
        "priority": str(message.priority),
        "enqueued_time": iso_timestamp(message.published_at_ms),
    }
