"""Read, ReadStream, Peek."""

from __future__ import annotations

from typing import Any

from penstock import limits
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.errors import Unavailable
from penstock.transports import translate
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.delivery import encoded, messages_of, replies
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.lease import wait_within
from penstock.transports.grpc.shapes import convert, in_frames, values_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire.messages import PeekQuery, ReadQuery


async def read(edge: GrpcEdge, request: pb.ReadRequest, context: Context) -> bytes:
    query, frames = _asked(values_of(request))
    read_log = translate.read_call(edge.broker, query)
    reply = await read_log(offset=query.offset, client_id=translate.reader_of(query))
    skipped = reply.skipped
    if not reply.runs and query.wait_ms:
        # The wait starts at the offset of the first read, so that `latest` does not move meanwhile.
        reply = await read_log(offset=str(reply.next_offset), wait_ms=wait_within(context, query.wait_ms))
    # The next read starts with the messages that do not fit into this reply.
    runs, *more = list(replies(reply.runs)) or [[]]
    next_offset = more[0][0].offset if more else reply.next_offset
    return _encoded(reply, runs, next_offset, skipped, frames=frames)


async def read_stream(edge: GrpcEdge, request: pb.ReadStreamRequest, context: Context) -> None:
    query, frames = _asked(values_of(request))
    read_log = translate.read_call(edge.broker, query)
    reply = await read_log(offset=query.offset, client_id=translate.reader_of(query))
    while True:
        # The first reply may be empty: it has the offset of the reader.
        pieces = list(replies(reply.runs)) or [[]]
        ends = [piece[0].offset for piece in pieces[1:]] + [reply.next_offset]
        for number, (runs, end) in enumerate(zip(pieces, ends, strict=True)):
            await context.write(_encoded(reply, runs, end, 0 if number else reply.skipped, frames=frames))
        offset, has_runs = str(reply.next_offset), False
        while not has_runs:
            if edge.draining.is_set() or not edge.broker.ready:
                raise Unavailable("the server is shutting down", retry_after_ms=1_000)
            reply = await read_log(offset=offset, wait_ms=limits.WAIT_MS_MAX)
            has_runs = bool(reply.runs) or str(reply.next_offset) != offset


async def peek(edge: GrpcEdge, request: pb.PeekRequest, context: Context) -> pb.PeekReply:  # noqa: ARG001
    runs = await translate.peek_runs(edge.broker, convert(values_of(request), PeekQuery))
    return pb.PeekReply(messages=messages_of(next(replies(runs), [])))


def _asked(values: dict[str, Any]) -> tuple[ReadQuery, bool]:
    frames = in_frames(values.pop("form"))
    return convert(values, ReadQuery), frames


def _encoded(reply: ReadReply, runs: list[DeliveredRun], next_offset: int, skipped: int, *, frames: bool) -> bytes:
    rest = pb.ReadReply(
        next_offset=next_offset, end_offset=reply.end_offset, start_offset=reply.start_offset, skipped=skipped
    )
    return encoded(runs, frames=frames) + rest.SerializeToString()
