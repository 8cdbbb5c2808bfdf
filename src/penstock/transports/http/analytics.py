"""Analytics of past messages, from the lake."""

from __future__ import annotations

from penstock.transports import translate_analytics as translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.analytics import (
    AnalyticsNamespaceQuery,
    AnalyticsQueueQuery,
    AnalyticsQueuesQuery,
    AnalyticsSeriesQuery,
    AnalyticsTaskQuery,
)
from penstock.wire.parse import parse_query


async def queues(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.queues(edge.broker, parse_query(AnalyticsQueuesQuery, request.query)))


async def queue(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.queue(edge.broker, parse_query(AnalyticsQueueQuery, request.query)))


async def namespace(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.namespace(edge.broker, parse_query(AnalyticsNamespaceQuery, request.query)))


async def task(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.task(edge.broker, parse_query(AnalyticsTaskQuery, request.query)))


async def depths(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.depths(edge.broker, parse_query(AnalyticsSeriesQuery, request.query)))


async def throughput(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.throughput(edge.broker, parse_query(AnalyticsSeriesQuery, request.query)))


async def latency(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.latency(edge.broker, parse_query(AnalyticsSeriesQuery, request.query)))
