"""Publish JSON messages, all or each on its own, a ready-made batch frame, or CloudEvents; ack and publish in one."""

from __future__ import annotations

from functools import partial
from typing import cast

import msgspec

from penstock.batch import Batch
from penstock.batch.check import check_client_frame
from penstock.broker.types import ProducerSeq, PublishPart, PublishReply, TransactReply
from penstock.errors import PenstockError
from penstock.pending import PendingReply
from penstock.transports import publishing
from penstock.transports.http.answer import Answer, error_body
from penstock.transports.http.cloudevents import publish_events
from penstock.transports.http.edge import Edge, Outcome
from penstock.transports.http.plain import json_reader
from penstock.transports.http.render import (
    published_answer,
    published_item,
    published_items,
    published_runs,
    published_whole,
    transact_answer,
    with_ignored,
)
from penstock.transports.http.request import BATCH_TYPE, Request
from penstock.transports.publishing import PartialPublish, RunEntry, producer_seq, publish_all
from penstock.wire.messages import NoQuery, PublishFrameQuery, TransactRequest
from penstock.wire.parse import parse_query, parse_queue
from penstock.wire.publishing import PlainPublish, Publish, parse_publish, plain_batch, with_trace
from penstock.wire.status import STATUS

_encoder = msgspec.json.Encoder()
_decode_transaction = json_reader(TransactRequest)


def publish(edge: Edge, request: Request) -> Outcome:
    started = edge.clock.monotonic()
    if request.fields.content_type == BATCH_TYPE:
        return _publish_frame(edge, request, started)
    if request.fields.has_event:
        return publish_events(edge, request, started)
    if request.query:
        parse_query(NoQuery, request.query)
    asked = parse_publish(request.json_body())
    if request.fields.traceparent is not None:
        asked = with_trace(asked, request.fields.traceparent)
    if isinstance(asked, PlainPublish):
        return _publish_plain(edge, asked, started)
    return (_publish_all if asked.atomic else _publish_each)(edge, asked, started)


def transact(edge: Edge, request: Request) -> PendingReply[Answer]:
    asked = _decode_transaction(request)
    pending, parts = publishing.transact(edge.broker, asked)

    def answer(reply: TransactReply) -> Answer:
        items = published_items(reply.runs, parts, len(asked.publish))
        body = with_ignored(transact_answer(reply.acked, items, reply.durable), reply.ignored)
        return Answer(200, body, on_sent=partial(edge.metrics.published, reply.runs))

    return pending.then(answer)


def _publish_frame(edge: Edge, request: Request, started: float) -> PendingReply[Answer]:
    query = parse_query(PublishFrameQuery, request.query)
    queue = parse_queue(query.queue)
    batch = check_client_frame(Batch.open(request.body()))
    producer = None
    if query.producer is not None:
        producer = ProducerSeq(query.producer, cast(int, query.epoch), cast(int, query.seq))

    def answer(reply: PublishReply) -> Answer:
        return _published(edge, reply, started, published_runs(reply.runs, reply.durable))

    return edge.broker.messages.publish([PublishPart(queue, batch)], producer).then(answer)


def _publish_plain(edge: Edge, asked: PlainPublish, started: float) -> PendingReply[Answer]:
    part = PublishPart(parse_queue(asked.queue), plain_batch(asked))

    def answer(reply: PublishReply) -> Answer:
        body = published_whole(reply.runs, reply.durable)
        if body is None:
            body = published_answer(published_items(reply.runs, [None], part.batch.count), reply.durable)
        return _published(edge, reply, started, body)

    return edge.broker.messages.publish([part], producer_seq(asked.producer)).then(answer)


def _publish_all(edge: Edge, asked: Publish, started: float) -> PendingReply[Answer]:
    pending, parts = publish_all(edge.broker, asked)

    def answer(reply: PublishReply) -> Answer:
        body = published_answer(published_items(reply.runs, parts, len(asked.messages)), reply.durable)
        return _published(edge, reply, started, body)

    return pending.then(answer)


async def _publish_each(edge: Edge, asked: Publish, started: float) -> Answer:
    each = PartialPublish(edge.broker, edge.metrics, asked)
    results = ",".join(map(_result, await each.publish()))
    edge.metrics.publish_seconds.observe(edge.clock.monotonic() - started)
    body = f'{{"results":[{results}],"durable":{"true" if each.durable else "false"}}}'.encode()
    return Answer(207, with_ignored(body, each.ignored))


def _published(edge: Edge, reply: PublishReply, started: float, body: bytes) -> Answer:
    if reply.ignored:
        body = with_ignored(body, reply.ignored)
    return Answer(201, body, on_sent=partial(edge.count_publish, reply.runs, started))


def _result(outcome: RunEntry | PenstockError) -> str:
    if isinstance(outcome, PenstockError):
        return _encoder.encode({"status": STATUS[outcome.code].http, "error": error_body(outcome)}).decode()
    return f'{{"status":201,{published_item(outcome.run, outcome.position)}'
