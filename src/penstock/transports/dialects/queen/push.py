"""`configure` and `push`."""

from __future__ import annotations

from uuid import uuid4

import msgspec

from penstock import limits
from penstock.errors import PenstockError, QueueNotFound
from penstock.pending import value_of
from penstock.transports.dialects.publishing import PublishItem, StoredItem, store, store_each
from penstock.transports.dialects.queen.shapes import (
    DEFAULTS,
    ConfigureRequest,
    PushItem,
    PushRequest,
    options_of,
)
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, error_body, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, PublishMessage
from penstock.wire.parse import parse_json, parse_query, parse_queue

_configure_decoder = msgspec.json.Decoder(ConfigureRequest)
_push_decoder = msgspec.json.Decoder(PushRequest)


async def configure(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Create a queue with the defaults of this dialect and these options, or change these options of a queue."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_configure_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    path, settings = parse_queue(asked.path), asked.options.settings()
    try:
        queue = await edge.broker.queues.patch(path, settings)
    except QueueNotFound:
        queue, _ = await edge.broker.queues.put(path, DEFAULTS | settings)
    return json_answer(
        {"ns": asked.ns, "task": asked.task, "queue": asked.queue, "options": options_of(queue["config"])}, 201
    )


async def push(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Reply 201 if all items were queued, or 207 with a result for each item if some were refused."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_push_decoder, request.json_body())
    items = [_item(item) for item in asked.items]
    if not asked.config.autoCreate:
        for queue in {item.queue for item in items}:
            await value_of(edge.broker.queues.get(queue))
    stored = await (store if asked.config.batchMode else store_each)(edge, items, create_as=DEFAULTS)
    messages = [_shown(item, each) for item, each in zip(items, stored, strict=True)]
    status = 207 if any(isinstance(each, PenstockError) for each in stored) else 201
    return json_answer({"messages": messages}, status)


def _item(item: PushItem) -> PublishItem:
    own_id = item.transactionId or str(uuid4())
    return PublishItem(parse_queue(item.path), PublishMessage(payload=item.payload, id=own_id))


def _shown(item: PublishItem, stored: StoredItem | PenstockError) -> dict[str, object]:
    if isinstance(stored, PenstockError):
        return {"transactionId": item.message.id, "status": "failed", "error": error_body(stored)}
    shown: dict[str, object] = {"id": stored.id, "transactionId": item.message.id, "status": "queued"}
    return {**shown, "duplicate": True} if stored.duplicate else shown
