"""Operations about the process: probes, metrics, and descriptions of the interface."""

from __future__ import annotations

import asyncio

from penstock import limits
from penstock._version import __version__
from penstock.errors import NotFound, Unavailable
from penstock.transports.http import asyncapi, openapi
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge, LogControl
from penstock.transports.http.plain import json_reader
from penstock.transports.http.request import Request
from penstock.transports.http.this_process import commits_of_all, metrics_of_all
from penstock.transports.metrics import commit_speed
from penstock.wire.audit import AuditQuery, AuditReply
from penstock.wire.logs import LogsRequest
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_query
from penstock.wire.queue_table import MetricsQuery, StorageReply
from penstock.wire.replies import FrontPage, ReadinessReply, StatusReply

_decode_levels = json_reader(LogsRequest, limits.CONFIG_BYTES_MAX)


def health(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return json_answer(StatusReply("ok"))


def readiness(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    if edge.draining:
        raise Unavailable("the server is shutting down")
    if not edge.broker.ready:
        raise Unavailable("the broker is not ready: its journals are not open, or its data directory is missing")
    if edge.peers is not None and (away := edge.peers.unreachable):
        raise Unavailable(
            f"requests for shards of other processes wait: process {', '.join(map(str, away))} cannot be reached",
            details={"unreachable": away}, retry_after_ms=1_000,
        )  # fmt: skip
    return json_answer(ReadinessReply("ready", *edge.broker.damage))


async def metrics(edge: Edge, request: Request) -> Answer:
    aliases = parse_query(MetricsQuery, request.query).aliases
    stored = await edge.storage()
    processes = await metrics_of_all(edge)
    body, content_type = await edge.metrics.exposition(
        edge.broker, accept=request.fields.accept, aliases=aliases, stored=stored, processes=processes
    )
    return Answer(200, body, content_type)


async def storage(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    stored, speed = await edge.storage(), commit_speed(await commits_of_all(edge))
    return json_answer(
        StorageReply(
            stored.store, stored.fsync, stored.journal, stored.segments, stored.snapshots, stored.disk_free,
            stored.disk_total, *(speed or (None, None, None)),
        )
    )  # fmt: skip


def log_levels(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return json_answer(_log_control(edge).show())


async def set_log_levels(edge: Edge, request: Request) -> Answer:
    asked = _decode_levels(request)
    actor = "" if request.principal is None else f"{request.principal.kind}:{request.principal.name}"
    changed = _log_control(edge).change(asked, actor)
    if edge.peers is not None:
        await edge.peers.ask("set_log_levels", asked, actor)
    return json_answer(changed)


def _log_control(edge: Edge) -> LogControl:
    if edge.log_levels is None:
        raise NotFound("this process configures its own logging")
    return edge.log_levels


async def audit(edge: Edge, request: Request) -> Answer:
    query = parse_query(AuditQuery, request.query)
    if edge.audit is None:
        raise NotFound("this server keeps no audit trail; start it with --auth keys")
    entries = await asyncio.to_thread(edge.audit.read, query.after, query.limit)
    return json_answer(AuditReply(entries))


async def verify_audit(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    if edge.audit is None:
        raise NotFound("this server keeps no audit trail; start it with --auth keys")
    return json_answer(await asyncio.to_thread(edge.audit.verify))


def describe_http(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return Answer(200, openapi.document())


def describe_websocket(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return Answer(200, asyncapi.document())


def front_page(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return json_answer(FrontPage("penstock", __version__, "/openapi.json", "/metrics"))
