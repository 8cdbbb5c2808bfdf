"""`/v1/schedules`: messages that a calendar publishes."""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.ids import check_schedule
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_json, parse_query
from penstock.wire.schedules import ScheduleRequest, SchedulesQuery

SCHEDULES_PREFIX = "/v1/schedules/"
PAUSE_SUFFIX = "/pause"
RESUME_SUFFIX = "/resume"

_decoder = msgspec.json.Decoder(ScheduleRequest)


async def list_schedules(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.list_schedules(edge.broker, parse_query(SchedulesQuery, request.query)))


async def get_schedule(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.get_schedule(edge.broker, _name_in_path(request)))


async def put_schedule(edge: Edge, request: Request) -> Answer:
    name = _name_in_path(request)
    asked = parse_json(_decoder, request.json_body(limits.SCHEDULE_BYTES_MAX))
    shown, created = await translate.put_schedule(edge.broker, name, asked)
    return json_answer(shown, 201 if created else 200)


async def delete_schedule(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.delete_schedule(edge.broker, _name_in_path(request)))


async def pause_schedule(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.pause_schedule(edge.broker, _name_in_path(request, PAUSE_SUFFIX), paused=True))


async def resume_schedule(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.pause_schedule(edge.broker, _name_in_path(request, RESUME_SUFFIX), paused=False))


def _name_in_path(request: Request, suffix: str = "") -> str:
    parse_query(NoQuery, request.query)
    return check_schedule(request.path.removeprefix(SCHEDULES_PREFIX).removesuffix(suffix))
