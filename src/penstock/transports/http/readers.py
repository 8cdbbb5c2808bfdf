"""`/v1/offsets`: positions that readers of the log leave with the broker."""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.ids import check_client_id
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_json, parse_query, parse_queue
from penstock.wire.readers import KeepOffsetsRequest, OffsetsQuery

_decoder = msgspec.json.Decoder(KeepOffsetsRequest)


async def keep_offsets(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_decoder, await request.json_body(limits.CONFIG_BYTES_MAX))
    client = check_client_id(asked.client_id)
    return json_answer(await edge.broker.keep_offsets(parse_queue(asked.queue), client, asked.by_partition()))


async def get_offsets(edge: Edge, request: Request) -> Answer:
    query = parse_query(OffsetsQuery, request.query)
    return json_answer(await edge.broker.get_offsets(parse_queue(query.queue), check_client_id(query.client_id)))


async def forget_offsets(edge: Edge, request: Request) -> Answer:
    query = parse_query(OffsetsQuery, request.query)
    return json_answer(await edge.broker.forget_offsets(parse_queue(query.queue), check_client_id(query.client_id)))
