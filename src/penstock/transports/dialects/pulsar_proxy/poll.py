"""`/api/v1/poll` and `/api/v1/ack`.

A poll with `since` and without `client_id` reads the messages after `since` and takes no leases. Any other poll leases
messages, which the client acknowledges: each `client_id` is a group of its own, and polls without one share a group.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import QueueNotFound
from penstock.ids import QueuePath, check_client_id, ulid_text
from penstock.pending import value_of
from penstock.transports.dialects.delivered import messages_of_runs
from penstock.transports.dialects.multi_queue import ReadPage, lease_any, read_after
from penstock.transports.dialects.pulsar_proxy.shapes import (
    TOPIC,
    PollQuery,
    TopicAckRequest,
    external_id,
    internal_id,
    message_json,
    position,
    topic_path,
    topic_paths,
)
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.consume import unless_gone
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_json, parse_query

ANONYMOUS = "default"
"""The group of polls without `client_id`."""

_ack_decoder = msgspec.json.Decoder(TopicAckRequest)


async def poll(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    query = parse_query(PollQuery, request.query)
    topics = topic_paths(query.topics.split(","))
    since = None if query.since is None else position(query.since, "since")
    client = None if query.client_id is None else check_client_id(query.client_id)
    await create_topics(edge, topics)
    wait_ms = query.timeout * 1000
    if client is None and since is not None:
        found = await unless_gone(request, read_after(edge.broker, topics, since, max=query.limit, wait_ms=wait_ms))
    else:
        if client is not None:
            await create_groups(edge, topics, client, "earliest" if since is None else f"after:{ulid_text(since)}")
        found = await _leased(edge, request, topics, client, query.limit, wait_ms)
    if found.messages:
        return json_answer(
            {
                "messages": [message_json(message) for message in found.messages],
                "next_offset": external_id(found.messages[-1].id),
                "has_more": found.has_more,
            }
        )
    return _empty_reply(request, None if since is None else external_id(ulid_text(since)))


async def _leased(
    edge: Edge, request: Request, topics: list[QueuePath], client: str | None, limit: int, wait_ms: int
) -> ReadPage:
    group = client or ANONYMOUS
    runs = await unless_gone(
        request,
        lease_any(edge.broker, topics, group=group, max=limit, wait_ms=wait_ms, consumer=client or ""),
    )
    edge.metrics.delivered(runs, edge.clock.now_ms())
    messages = sorted(messages_of_runs(runs), key=lambda message: message.number)
    # Not by a peek: a client that may only consume may not look at payloads without a lease.
    has_more = bool(messages) and any(edge.broker.log.has_next(topic, group=group) for topic in topics)
    return ReadPage(messages, has_more)


def _empty_reply(request: Request, since: str | None) -> Answer:
    """304 if `If-None-Match` has the position `since`, otherwise an empty list of messages."""
    if since is not None and any(
        name == b"if-none-match" and value.strip(b' "') == since.encode() for name, value in request.fields.headers
    ):
        return Answer(304, b"", headers=((b"etag", b'"%b"' % since.encode()),))
    return json_answer({"messages": [], "next_offset": since, "timeout": True})


async def create_topics(edge: Edge, topics: list[QueuePath]) -> None:
    """Create missing topics. Raises QueueNotFound if the server does not create queues."""
    for topic in topics:
        try:
            await value_of(edge.broker.queues.get(topic))
        except QueueNotFound:
            if not edge.broker.auto_create:
                raise
            await edge.broker.queues.put(topic, TOPIC)


async def create_groups(edge: Edge, topics: list[QueuePath], client: str, offset: str) -> None:
    """Create the group of a new client at this offset, if need be in place of an idle one. An existing group keeps its
    position."""
    for topic in topics:
        await edge.broker.groups.begin(topic, client, offset=offset)


async def ack(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Acknowledge each message on its own. The status of a message that no lease of the client holds is `stale`."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_ack_decoder, request.json_body())
    client = None if asked.client_id is None else check_client_id(asked.client_id)
    topic = None if asked.topic is None else topic_path(asked.topic)
    statuses = await acknowledge(edge, asked.message_ids, client, topic)
    results: list[dict[str, Any]] = [
        {"message_id": text, "status": status} for text, status in zip(asked.message_ids, statuses, strict=True)
    ]
    return json_answer({"results": results})


async def acknowledge(edge: Edge, texts: list[str], client: str | None, topic: QueuePath | None = None) -> list[str]:
    receipts = await edge.broker.in_flight.receipts(
        [internal_id(text) for text in texts], queue=topic, group=client, consumer=client or ""
    )
    held = [receipt for receipt in receipts if receipt is not None]
    settled = iter(await edge.broker.messages.ack(held) if held else ())
    return ["stale" if receipt is None else next(settled).status for receipt in receipts]
