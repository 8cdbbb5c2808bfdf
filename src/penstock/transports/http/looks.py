"""Looking closely: why a message is still here, what became of it, how many workers it takes."""

from __future__ import annotations

from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import AutoscaleQuery, ExplainQuery, HistoryQuery
from penstock.wire.parse import parse_query


async def explain(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.explain(edge.broker, parse_query(ExplainQuery, request.query)))


async def history(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.history(edge.broker, parse_query(HistoryQuery, request.query)))


async def autoscale(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.autoscale(edge.broker, parse_query(AutoscaleQuery, request.query)))
