"""`POST /v1/transact`: acks and publishes together, or not at all."""

from __future__ import annotations

import msgspec

from penstock.broker.types import PublishPart
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import published_items, transact_answer
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, TransactRequest
from penstock.wire.parse import parse_json, parse_query
from penstock.wire.publishing import batch_of, rows_by_queue

_decoder = msgspec.json.Decoder(TransactRequest)


async def transact(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_decoder, await request.json_body())
    parts, split = [], []
    if asked.publish:
        batch = batch_of(asked.publish)
        split = rows_by_queue(None, asked.publish, in_order=False)
        parts = [PublishPart(queue, batch if rows is None else batch.pick(rows)) for queue, rows in split]
    reply = await edge.broker.transact(asked.ack, parts)
    edge.metrics.published(reply.runs)
    items = published_items(reply.runs, [rows for _, rows in split], len(asked.publish))
    return Answer(200, transact_answer(reply.acked, items, reply.durable))
