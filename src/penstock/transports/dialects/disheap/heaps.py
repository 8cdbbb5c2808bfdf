"""`/v1/heaps` and `/v1/stats`. Heaps are queues with order `heap`; this dialect does not show other queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock import limits
from penstock.broker.types import QueueRow
from penstock.errors import Conflict, InvalidRequest, QueueNotFound
from penstock.ids import QueuePath
from penstock.pending import value_of
from penstock.transports.dialects.delivered import short_name
from penstock.transports.dialects.disheap.proto_json import duration
from penstock.transports.dialects.disheap.shapes import (
    DeleteQuery,
    HeapSettings,
    MakeHeapRequest,
    TopicQuery,
    UpdateQuery,
    one_of,
)
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_json, parse_query, parse_queue

_make_decoder = msgspec.json.Decoder(MakeHeapRequest, strict=False)
_update_decoder = msgspec.json.Decoder(HeapSettings, strict=False)


async def heap_at(edge: Edge, topic: str) -> QueuePath:
    """The queue of this heap. Raises QueueNotFound if there is none or its order is not `heap`."""
    path = _path(topic)
    if (await value_of(edge.broker.queues.get(path)))["config"]["order"] != "heap":
        raise QueueNotFound(f"{topic} is a queue but not a heap", details={"queue": path})
    return path


def _path(topic: str) -> QueuePath:
    try:
        return parse_queue(topic)
    except InvalidRequest as error:
        raise InvalidRequest(error.message.replace("queue ", "topic ", 1), details={"field": "topic"}) from None


async def make(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Create a heap. The replication factor is checked and ignored, because replication is a setting of the store."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_make_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    path = _path(asked.topic)
    one_of(asked, "rf", "replication_factor")
    settings = {**asked.settings(), "order": "heap", "heap_mode": "max" if asked.mode in ("MAX", 1) else "min"}
    try:
        await value_of(edge.broker.queues.get(path))
    except QueueNotFound:
        await edge.broker.queues.put(path, settings)
        return json_answer({"topic": short_name(path), "heap_id": path})
    raise Conflict(f"{asked.topic} exists already", details={"queue": path})


async def update(edge: Edge, request: Request, names: Names) -> Answer:
    """Change the settings of a heap. A change that drops dead letters needs a confirmation token."""
    query = parse_query(UpdateQuery, request.query)
    path = await heap_at(edge, names["topic"])
    asked = parse_json(_update_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    with _confirmation(f"changing {names['topic']} like this"):
        await edge.broker.queues.patch(path, asked.settings(), confirm=query.confirmation_token)
    return json_answer({})


async def delete(edge: Edge, request: Request, names: Names) -> Answer:
    """Delete a heap. The call needs `force` and the confirmation token of a first call."""
    query = parse_query(DeleteQuery, request.query)
    path = await heap_at(edge, names["topic"])
    if not query.force:
        raise InvalidRequest("deleting a heap needs force=true", details={"field": "force"})
    with _confirmation(f"deleting {names['topic']}"):
        await edge.broker.queues.delete(path, confirm=query.confirmation_token)
    return json_answer({})


@contextmanager
def _confirmation(action: str) -> Iterator[None]:
    """Translate the broker's request for confirmation to this dialect."""
    try:
        yield
    except Conflict as error:
        if "confirm" not in error.details:
            raise
        token = {"confirmation_token": error.details["confirm"], "would_lose": error.details["would_lose"]}
        raise Conflict(f"{action} cannot be undone; repeat the call with confirmation_token", details=token) from None


async def list_all(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    parse_query(NoQuery, request.query)
    return json_answer({"heaps": [await _described(edge, row) for row in await _rows(edge)]})


async def _described(edge: Edge, row: QueueRow) -> dict[str, Any]:
    config = (await value_of(edge.broker.queues.get(QueuePath(row.queue))))["config"]
    kept_ms = config["dead_letter_ttl_ms"]
    kept = {} if kept_ms is None else {"retention_time": duration(kept_ms)}
    return {
        "topic": short_name(row.queue),
        "mode": config["heap_mode"].upper(),
        "partitions": config["partitions"],
        "K": config["top_k"],
        **kept,
        "visibility_timeout_default": duration(config["lease_ms"]),
        "max_retries_default": config["max_retries"],
        "max_payload_bytes": str(config["max_payload_bytes"]),
        "compression": False,
        "dlq_policy": {"enabled": config["dead_letter"], **kept},
        "stats": _counted([row]),
    }


async def stats(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    query = parse_query(TopicQuery, request.query)
    rows = await _rows(edge, None if query.topic is None else await heap_at(edge, query.topic))
    return json_answer(
        {"global_stats": _counted(rows), "topic_stats": {short_name(row.queue): _counted([row]) for row in rows}}
    )


async def _rows(edge: Edge, only: QueuePath | None = None) -> list[QueueRow]:
    rows = await edge.broker.stats.rows(only or "")
    return [row for row in rows if row.queue == only or (only is None and row.order == "heap")]


def _counted(rows: Iterable[QueueRow]) -> dict[str, str]:
    """Counters as strings, as protocol buffers write 64-bit numbers in JSON."""
    counted = {
        "total_messages": 0, "inflight_messages": 0, "dlq_messages": 0, "total_enqueues": 0, "total_pops": 0,
        "total_acks": 0, "total_nacks": 0, "total_retries": 0, "total_timeouts": 0,
    }  # fmt: skip
    for row in rows:
        totals = row.totals
        counted["total_messages"] += row.depth
        counted["inflight_messages"] += row.leased
        counted["dlq_messages"] += row.dead
        counted["total_enqueues"] += totals["published"]
        counted["total_pops"] += totals["delivered"]
        counted["total_acks"] += totals["acked"]
        counted["total_nacks"] += totals["retried"] - totals["lease_expired"] - totals["session_expired"]
        counted["total_retries"] += totals["retried"]
        counted["total_timeouts"] += totals["lease_expired"]
    return {name: str(value) for name, value in counted.items()}
