"""`POST /v1/publish`: JSON messages, all or each on its own, a ready-made batch frame, or CloudEvents."""

from __future__ import annotations

from typing import cast

import msgspec

from penstock.batch import Batch
from penstock.batch.check import check_client_frame
from penstock.broker.types import ProducerSeq, PublishPart
from penstock.errors import PenstockError
from penstock.transports.http.answer import Answer, error_body
from penstock.transports.http.cloudevents import is_event, publish_events
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import (
    published_answer,
    published_item,
    published_items,
    published_runs,
    published_whole,
)
from penstock.transports.http.request import BATCH_TYPE, Request
from penstock.transports.publishing import EachAlone, Placed, producer_seq, publish_all
from penstock.wire.messages import NoQuery, PublishFrameQuery
from penstock.wire.parse import parse_query, parse_queue
from penstock.wire.publishing import PlainPublish, Publish, parse_publish, plain_batch
from penstock.wire.status import STATUS

_encoder = msgspec.json.Encoder()


async def publish(edge: Edge, request: Request) -> Answer:
    started = edge.clock.monotonic()
    if request.fields.content_type == BATCH_TYPE:
        answer = await _publish_frame(edge, request)
    elif is_event(request):
        answer = await publish_events(edge, request)
    else:
        if request.query:
            parse_query(NoQuery, request.query)
        asked = parse_publish(await request.json_body())
        if isinstance(asked, PlainPublish):
            answer = await _publish_plain(edge, asked)
        else:
            answer = await (_publish_all(edge, asked) if asked.atomic else _publish_each(edge, asked))
    edge.published_since(started)
    return answer


async def _publish_frame(edge: Edge, request: Request) -> Answer:
    query = parse_query(PublishFrameQuery, request.query)
    queue = parse_queue(query.queue)
    batch = check_client_frame(Batch.open(await request.body()))
    producer = None
    if query.producer is not None:
        producer = ProducerSeq(query.producer, cast(int, query.epoch), cast(int, query.seq))
    reply = await edge.broker.publish([PublishPart(queue, batch)], producer)
    edge.metrics.published(reply.runs)
    return Answer(201, published_runs(reply.runs, reply.durable))


async def _publish_plain(edge: Edge, asked: PlainPublish) -> Answer:
    part = PublishPart(parse_queue(asked.queue), plain_batch(asked))
    reply = await edge.broker.publish([part], producer_seq(asked.producer))
    edge.metrics.published(reply.runs)
    answer = published_whole(reply.runs, reply.durable)
    if answer is None:
        answer = published_answer(published_items(reply.runs, [None], part.batch.count), reply.durable)
    return Answer(201, answer)


async def _publish_all(edge: Edge, asked: Publish) -> Answer:
    reply, parts = await publish_all(edge.broker, asked)
    edge.metrics.published(reply.runs)
    return Answer(201, published_answer(published_items(reply.runs, parts, len(asked.messages)), reply.durable))


async def _publish_each(edge: Edge, asked: Publish) -> Answer:
    each = EachAlone(edge.broker, edge.metrics, asked)
    results = ",".join(map(_result, await each.publish()))
    return Answer(207, f'{{"results":[{results}],"durable":{"true" if each.durable else "false"}}}'.encode())


def _result(outcome: Placed | PenstockError) -> str:
    if isinstance(outcome, PenstockError):
        return _encoder.encode({"status": STATUS[outcome.code].http, "error": error_body(outcome)}).decode()
    return f'{{"status":201,{published_item(outcome.run, outcome.place)}'
