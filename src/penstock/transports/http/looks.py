"""Looking closely: why a message is still here, what became of it, how many workers it takes."""

from __future__ import annotations

from penstock.ids import check_group
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import AutoscaleQuery, ExplainQuery, HistoryQuery
from penstock.wire.parse import parse_query, parse_queue


async def explain(edge: Edge, request: Request) -> Answer:
    query = parse_query(ExplainQuery, request.query)
    return json_answer(await edge.broker.explain(parse_queue(query.queue), id=query.id, group=check_group(query.group)))


async def history(edge: Edge, request: Request) -> Answer:
    query = parse_query(HistoryQuery, request.query)
    return json_answer(await edge.broker.history(parse_queue(query.queue), id=query.id))


async def autoscale(edge: Edge, request: Request) -> Answer:
    query = parse_query(AutoscaleQuery, request.query)
    return json_answer(
        edge.broker.autoscale(
            parse_queue(query.queue),
            group=check_group(query.group),
            target_drain_s=query.target_drain_s,
            min_workers=query.min_workers,
            max_workers=query.max_workers,
        )
    )
