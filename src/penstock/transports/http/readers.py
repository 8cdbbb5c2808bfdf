"""`/v1/offsets`: positions that readers of the log leave with the broker."""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_json, parse_query
from penstock.wire.readers import KeepOffsetsRequest, OffsetsQuery

_decoder = msgspec.json.Decoder(KeepOffsetsRequest)


async def keep_offsets(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    return json_answer(await translate.keep_offsets(edge.broker, asked))


async def get_offsets(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.get_offsets(edge.broker, parse_query(OffsetsQuery, request.query)))


async def forget_offsets(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.forget_offsets(edge.broker, parse_query(OffsetsQuery, request.query)))
