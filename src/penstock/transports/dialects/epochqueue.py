"""The dialect `epochqueue`: queues of a namespace, messages with a delivery time, statistics for a dashboard."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.broker.types import QueueRow
from penstock.errors import InvalidRequest, Unavailable
from penstock.ids import QueuePath
from penstock.transports.dialects.publishing import PublishItem, store
from penstock.transports.dialects.router import Names, Route
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, PublishMessage
from penstock.wire.messages import Request as Shape
from penstock.wire.parse import parse_json, parse_query, parse_queue

PAGE_LIMIT_MAX = 200
_NAME = re.compile(limits.EPOCHQUEUE_NAME_PATTERN)


class DelayedPublishRequest(Shape):
    body: str
    """Base64."""
    deliverAt: Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)] = 0
    """UTC epoch milliseconds; 0 means now."""


class QueueRequest(Shape):
    name: str


class PageQuery(Shape):
    page: Annotated[int, Meta(ge=1, le=10**9)] = 1
    limit: Annotated[int, Meta(ge=1, le=PAGE_LIMIT_MAX)] = 50


_publish_decoder = msgspec.json.Decoder(DelayedPublishRequest)
_queue_decoder = msgspec.json.Decoder(QueueRequest)


async def publish(edge: Edge, request: Request, names: Names) -> Answer:
    parse_query(NoQuery, request.query)
    queue = _queue(names["ns"], names["queue"])
    asked = parse_json(_publish_decoder, request.json_body())
    message = PublishMessage(payload_b64=asked.body, deliver_at_ms=asked.deliverAt or None)
    (stored,) = await store(edge, [PublishItem(queue, message)])
    return json_answer({"id": stored.id})


async def create_queue(edge: Edge, request: Request, names: Names) -> Answer:
    """Create the queue with default settings. An existing queue is not changed."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_queue_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    queue = _queue(names["ns"], asked.name)
    _, created = await edge.broker.queues.put(queue, {})
    return json_answer({"namespace": names["ns"], "name": asked.name}, 201 if created else 200)


def _queue(namespace: str, name: str) -> QueuePath:
    """The queue path. That system has a narrower rule for names than queue paths have."""
    for field, text in (("namespace", namespace), ("name", name)):
        if _NAME.fullmatch(text) is None:
            raise InvalidRequest(
                f"{field} {text[:64]!r} is not 1 to 64 lower-case letters, digits and hyphens, beginning with a letter "
                "or digit",
                details={"field": field},
            )
    return parse_queue(f"{namespace}/{name}")


async def stats(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    query = parse_query(PageQuery, request.query)
    rows = await edge.broker.stats.rows()
    first = (query.page - 1) * query.limit
    return json_answer(
        {
            "queues": [_shown(row) for row in rows[first : first + query.limit]],
            "total": len(rows),
            "page": query.page,
            "limit": query.limit,
            "total_pages": -(-len(rows) // query.limit),
        }
    )


def _shown(row: QueueRow) -> dict[str, Any]:
    namespace, task, name = row.queue.split("/")
    return {
        "namespace": namespace,
        "name": name if task == "default" else f"{task}/{name}",
        "depth": row.depth,
        "ready": row.ready,
        "scheduled": row.scheduled,
        "in_flight": row.leased,
        "dlq_depth": row.dead,
    }


async def summary(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """`dlq_alerts` is the number of queues that have dead letters."""
    parse_query(NoQuery, request.query)
    rows = await edge.broker.stats.rows()
    return json_answer(
        {
            "total_queues": len(rows),
            "namespaces": len({row.queue.partition("/")[0] for row in rows}),
            "total_depth": sum(row.depth for row in rows),
            "total_scheduled": sum(row.scheduled for row in rows),
            "dlq_alerts": sum(row.dead > 0 for row in rows),
        }
    )


async def health(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    if edge.draining or not edge.broker.ready:
        raise Unavailable("the broker is starting or stopping")
    return json_answer({"status": "ok"})


ROUTES: tuple[Route, ...] = (
    Route("epochqueue.publish", "POST", "/namespaces/{ns}/queues/{queue}/messages", publish),
    Route("epochqueue.create_queue", "POST", "/namespaces/{ns}/queues", create_queue),
    Route("epochqueue.stats", "GET", "/api/stats", stats),
    Route("epochqueue.summary", "GET", "/api/stats/summary", summary),
    Route("epochqueue.health", "GET", "/health", health),
)
