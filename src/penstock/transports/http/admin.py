"""Queues and what is known about them. Small answers, asked for rarely: clarity before speed."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import limits
from penstock._version import __version__
from penstock.errors import Unavailable
from penstock.ids import QueuePath
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import ConfirmQuery, NoQuery, QueueQuery, QueuesQuery
from penstock.wire.parse import parse_json, parse_query, parse_queue

QUEUES_PREFIX = "/v1/queues/"
PURGE_SUFFIX = "/purge"

_config_decoder = msgspec.json.Decoder(dict[str, Any])


# -- queues -------------------------------------------------------------------------------------------------------


async def list_queues(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.list_queues(edge.broker, parse_query(QueuesQuery, request.query)))


async def get_queue(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    return json_answer(edge.broker.get_queue(_queue_in_path(request)))


async def put_queue(edge: Edge, request: Request) -> Answer:
    queue, values, confirm = await _queue_and_config(request)
    config, created = await edge.broker.put_queue(queue, values, confirm=confirm)
    return json_answer(config, 201 if created else 200)


async def patch_queue(edge: Edge, request: Request) -> Answer:
    queue, values, confirm = await _queue_and_config(request)
    return json_answer(await edge.broker.patch_queue(queue, values, confirm=confirm))


async def delete_queue(edge: Edge, request: Request) -> Answer:
    query = parse_query(ConfirmQuery, request.query)
    return json_answer(await edge.broker.delete_queue(_queue_in_path(request), confirm=query.confirm))


async def purge_queue(edge: Edge, request: Request) -> Answer:
    query = parse_query(ConfirmQuery, request.query)
    return json_answer(await edge.broker.purge_queue(_queue_in_path(request, PURGE_SUFFIX), confirm=query.confirm))


def _queue_in_path(request: Request, suffix: str = "") -> QueuePath:
    return parse_queue(request.path.removeprefix(QUEUES_PREFIX).removesuffix(suffix))


async def _queue_and_config(request: Request) -> tuple[QueuePath, dict[str, Any], str | None]:
    confirm = parse_query(ConfirmQuery, request.query).confirm
    queue = _queue_in_path(request)
    # The broker knows the settings and their bounds; here they only have to be JSON.
    return queue, parse_json(_config_decoder, request.json_body(limits.CONFIG_BYTES_MAX)), confirm


# -- a look at them -----------------------------------------------------------------------------------------------


async def stats(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.stats(edge.broker, parse_query(QueueQuery, request.query)))


async def summary(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.summary(edge.broker, parse_query(NoQuery, request.query)))


async def groups(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.groups(edge.broker, parse_query(QueueQuery, request.query)))


# -- the process --------------------------------------------------------------------------------------------------


async def health(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return json_answer({"status": "ok"})


async def readiness(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    if edge.draining:
        raise Unavailable("the server is shutting down")
    if not edge.broker.ready:
        raise Unavailable("the broker is not ready: its journals are not open")
    return json_answer({"status": "ready"})


async def metrics(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    body, content_type = edge.metrics.exposition(edge.broker)
    return Answer(200, body, content_type)


async def front_page(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return json_answer({"name": "penstock", "version": __version__, "openapi": "/openapi.json", "metrics": "/metrics"})
