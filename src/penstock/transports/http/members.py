"""Groups whose partitions are assigned: join, heartbeat, leave."""

from __future__ import annotations

import msgspec

from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import HeartbeatRequest, JoinRequest, LeaveRequest, NoQuery
from penstock.wire.parse import T, parse_json, parse_query

_join_decoder = msgspec.json.Decoder(JoinRequest)
_heartbeat_decoder = msgspec.json.Decoder(HeartbeatRequest)
_leave_decoder = msgspec.json.Decoder(LeaveRequest)


async def join(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.join_group(edge.broker, _asked(request, _join_decoder)))


async def heartbeat(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.heartbeat(edge.broker, _asked(request, _heartbeat_decoder)))


async def leave(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.leave_group(edge.broker, _asked(request, _leave_decoder)))


def _asked(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    parse_query(NoQuery, request.query)
    return parse_json(decoder, request.json_body())
