"""`POST /v1/transact`: acks and publishes together, or not at all."""

from __future__ import annotations

import msgspec

from penstock.transports import publishing
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import published_items, transact_answer
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, TransactRequest
from penstock.wire.parse import parse_json, parse_query

_decoder = msgspec.json.Decoder(TransactRequest)


async def transact(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_decoder, await request.json_body())
    reply, parts = await publishing.transact(edge.broker, asked)
    edge.metrics.published(reply.runs)
    items = published_items(reply.runs, parts, len(asked.publish))
    return Answer(200, transact_answer(reply.acked, items, reply.durable))
