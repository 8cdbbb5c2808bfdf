"""`/v1/events` and what keeps them there: the records of the journal, holds, and how far the log of a queue goes."""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.events import EVENTS_TYPE, EventRangesQuery, EventsQuery, encode_events
from penstock.wire.holds import HoldRequest
from penstock.wire.messages import ExtentQuery, NoQuery
from penstock.wire.parse import parse_json, parse_query, parse_queue

HOLDS_PREFIX = "/v1/holds/"

_TYPE = EVENTS_TYPE.encode()
_hold_decoder = msgspec.json.Decoder(HoldRequest)


async def events(edge: Edge, request: Request) -> Answer:
    query = parse_query(EventsQuery, request.query)
    queue = None if query.queue is None else parse_queue(query.queue)
    if _TYPE in request.fields.accept:
        bulk = await edge.broker.events.read_bulk(query, queue)
        return Answer(200, encode_events(bulk.meta, bulk.records), _TYPE)
    return json_answer(await translate.events(edge.broker, query))


async def event_ranges(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.event_ranges(edge.broker, parse_query(EventRangesQuery, request.query)))


async def extent(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.extent(edge.broker, parse_query(ExtentQuery, request.query)))


async def list_holds(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    return json_answer(await translate.list_holds(edge.broker))


async def get_hold(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    return json_answer(await translate.get_hold(edge.broker, _name(request)))


async def put_hold(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_hold_decoder, request.json_body(limits.REQUEST_BYTES_MAX))
    return json_answer(await translate.put_hold(edge.broker, _name(request), asked))


async def delete_hold(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    return json_answer(await translate.delete_hold(edge.broker, _name(request)))


def _name(request: Request) -> str:
    return request.path.removeprefix(HOLDS_PREFIX)
