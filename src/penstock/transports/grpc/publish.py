"""Publish and Transact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.batch import Batch
from penstock.batch.check import check_client_frame
from penstock.broker.types import ProducerSeq, PublishedRun, PublishPart
from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import ulid_text, ulid_texts
from penstock.transports import publishing
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.error_status import error_message
from penstock.transports.grpc.shapes import (
    check_known,
    convert,
    messages_each,
    values_of,
)
from penstock.transports.publishing import PartialPublish, Parts, RunEntry, publish_all, rows_of_request
from penstock.v1 import broker_pb2 as pb
from penstock.wire.messages import Producer, PublishFrameQuery, PublishRequest, TransactRequest
from penstock.wire.parse import parse_queue
from penstock.wire.publishing import Publish


async def publish(edge: GrpcEdge, request: pb.PublishRequest, context: Context | None) -> pb.PublishReply:  # noqa: ARG001
    started = edge.clock.monotonic()
    if bool(request.batch) == bool(request.messages):
        raise InvalidRequest("give exactly one of batch and messages", details={"field": "batch"})
    reply = await (_publish_frame(edge, request) if request.batch else _publish_messages(edge, request))
    edge.metrics.publish_seconds.observe(edge.clock.monotonic() - started)
    return reply


async def transact(edge: GrpcEdge, request: pb.TransactRequest, context: Context) -> pb.TransactReply:  # noqa: ARG001
    asked = convert(values_of(request), TransactRequest)
    pending, parts = publishing.transact(edge.broker, asked)
    reply = await pending
    edge.metrics.published(reply.runs)
    return pb.TransactReply(
        acked=reply.acked, messages=_published_messages(reply.runs, parts, len(asked.publish)), durable=reply.durable,
        ignored=reply.ignored,
    )  # fmt: skip


async def _publish_frame(edge: GrpcEdge, request: pb.PublishRequest) -> pb.PublishReply:
    if request.HasField("atomic") and not request.atomic:
        raise InvalidRequest("a batch is atomic: atomic=false needs messages", details={"field": "atomic"})
    named: dict[str, Any] = {}
    if request.HasField("queue"):
        named["queue"] = request.queue
    if request.HasField("producer"):
        check_known(request.producer)
        named |= {"producer": request.producer.id, "epoch": request.producer.epoch, "seq": request.producer.seq}
    asked = convert(named, PublishFrameQuery)
    queue = parse_queue(asked.queue)
    batch = check_client_frame(Batch.open(request.batch))
    producer = None
    if asked.producer is not None:
        producer = ProducerSeq(asked.producer, cast(int, asked.epoch), cast(int, asked.seq))
    reply = await edge.broker.messages.publish([PublishPart(queue, batch)], producer)
    edge.metrics.published(reply.runs)
    return pb.PublishReply(runs=[_run(run) for run in reply.runs], durable=reply.durable, ignored=reply.ignored)


async def _publish_messages(edge: GrpcEdge, request: pb.PublishRequest) -> pb.PublishReply:
    if request.HasField("atomic") and not request.atomic:
        queue = request.queue if request.HasField("queue") else None
        producer = convert(values_of(request.producer), Producer) if request.HasField("producer") else None
        each = PartialPublish(
            edge.broker, edge.metrics, Publish(queue, False, producer, messages_each(request.messages))
        )
        results = [_result(outcome) for outcome in await each.publish()]
        return pb.PublishReply(results=results, durable=each.durable, ignored=each.ignored)
    values = values_of(request)
    del values["batch"]
    asked = convert(values, PublishRequest)
    pending, parts = publish_all(edge.broker, Publish(asked.queue, True, asked.producer, asked.messages))
    reply = await pending
    edge.metrics.published(reply.runs)
    messages = _published_messages(reply.runs, parts, len(asked.messages))
    return pb.PublishReply(messages=messages, durable=reply.durable, ignored=reply.ignored)


def _run(run: PublishedRun) -> pb.PublishedRun:
    return pb.PublishedRun(
        queue=run.queue,
        partition=run.partition,
        offset=run.offset,
        count=run.count,
        id=ulid_text(run.id),
        duplicate=run.duplicate,
        rows=run.rows,
    )


def _published_messages(runs: Sequence[PublishedRun], parts: Parts, count: int) -> list[pb.PublishedMessage]:
    """The published messages, in the order of the request."""
    published: list[pb.PublishedMessage] = [pb.PublishedMessage()] * count
    for run, rows in rows_of_request(runs, parts):
        for index, (row, text) in enumerate(zip(rows, ulid_texts(run.id, run.count), strict=True)):
            published[row] = _message(run, index, text)
    return published


def _message(run: PublishedRun, index: int, text: str) -> pb.PublishedMessage:
    return pb.PublishedMessage(
        id=text, queue=run.queue, partition=run.partition, offset=run.offset + index, duplicate=run.duplicate
    )


def _result(outcome: RunEntry | PenstockError) -> pb.PublishResult:
    if isinstance(outcome, PenstockError):
        return pb.PublishResult(error=error_message(outcome))
    run, index = outcome
    return pb.PublishResult(published=_message(run, index, ulid_text(run.id + index)))
