"""Groups whose partitions are assigned: join, heartbeat, leave."""

from __future__ import annotations

import msgspec

from penstock.broker.types import ShareReply
from penstock.ids import check_group, check_member
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import HeartbeatRequest, JoinRequest, LeaveRequest, NoQuery
from penstock.wire.parse import T, parse_json, parse_query, parse_queue

_join_decoder = msgspec.json.Decoder(JoinRequest)
_heartbeat_decoder = msgspec.json.Decoder(HeartbeatRequest)
_leave_decoder = msgspec.json.Decoder(LeaveRequest)


async def join(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _join_decoder)
    share = await edge.broker.join_group(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=None if asked.member is None else check_member(asked.member),
        session_ms=asked.session_ms,
        drain_ms=asked.drain_ms,
    )
    return _answer(share)


async def heartbeat(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _heartbeat_decoder)
    share = await edge.broker.heartbeat(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=check_member(asked.member),
        generation=asked.generation,
        released=asked.released,
    )
    return _answer(share)


async def leave(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _leave_decoder)
    left = await edge.broker.leave_group(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=check_member(asked.member),
        generation=asked.generation,
    )
    return json_answer({"left": left})


async def _asked(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    parse_query(NoQuery, request.query)
    return parse_json(decoder, await request.json_body())


def _answer(share: ShareReply) -> Answer:
    return json_answer(share._asdict())
