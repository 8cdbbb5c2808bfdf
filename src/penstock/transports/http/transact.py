"""`POST /v1/transact`: acks and publishes together, or not at all."""

from __future__ import annotations

from functools import partial

import msgspec

from penstock.broker.types import TransactReply
from penstock.pending import PendingReply
from penstock.transports import publishing
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import published_items, transact_answer
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery, TransactRequest
from penstock.wire.parse import parse_json, parse_query

_decoder = msgspec.json.Decoder(TransactRequest)


def transact(edge: Edge, request: Request) -> PendingReply[Answer]:
    parse_query(NoQuery, request.query)
    asked = parse_json(_decoder, request.json_body())
    pending, parts = publishing.transact(edge.broker, asked)

    def answer(reply: TransactReply) -> Answer:
        items = published_items(reply.runs, parts, len(asked.publish))
        body = transact_answer(reply.acked, items, reply.durable)
        return Answer(200, body, on_sent=partial(edge.metrics.published, reply.runs))

    return pending.then(answer)
