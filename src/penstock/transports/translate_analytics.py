"""Calls of the broker for analytics requests of `wire/`."""

from __future__ import annotations

from penstock.broker.service import Broker
from penstock.wire import analytics as wire
from penstock.wire.parse import parse_queue


async def queues(broker: Broker, asked: wire.AnalyticsQueuesQuery) -> wire.AnalyticsQueuesReply:
    return await broker.analytics.queues(asked.prefix, asked.from_ms, asked.to_ms, asked.page, asked.limit)


async def queue(broker: Broker, asked: wire.AnalyticsQueueQuery) -> wire.AnalyticsReply:
    path = parse_queue(asked.queue)
    return await broker.analytics.history(queue=path, from_ms=asked.from_ms, to_ms=asked.to_ms, step_ms=asked.step_ms)


async def namespace(broker: Broker, asked: wire.AnalyticsNamespaceQuery) -> wire.AnalyticsReply:
    return await broker.analytics.history(
        prefix=f"{asked.namespace}/", from_ms=asked.from_ms, to_ms=asked.to_ms, step_ms=asked.step_ms
    )


async def task(broker: Broker, asked: wire.AnalyticsTaskQuery) -> wire.AnalyticsReply:
    prefix = f"{asked.namespace}/{asked.task}/"
    return await broker.analytics.history(
        prefix=prefix, from_ms=asked.from_ms, to_ms=asked.to_ms, step_ms=asked.step_ms
    )


async def depths(broker: Broker, asked: wire.AnalyticsSeriesQuery) -> wire.DepthsReply:
    return await broker.analytics.depths(_path(asked), asked.from_ms, asked.to_ms, asked.step_ms)


async def throughput(broker: Broker, asked: wire.AnalyticsSeriesQuery) -> wire.ThroughputReply:
    return await broker.analytics.throughput(_path(asked), asked.from_ms, asked.to_ms, asked.step_ms)


async def latency(broker: Broker, asked: wire.AnalyticsSeriesQuery) -> wire.LatencyReply:
    return await broker.analytics.latency(_path(asked), asked.from_ms, asked.to_ms, asked.step_ms)


def _path(asked: wire.AnalyticsSeriesQuery) -> str | None:
    return None if asked.queue is None else parse_queue(asked.queue)
