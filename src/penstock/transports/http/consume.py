"""Everything that hands messages out: lease, read, peek."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

import msgspec

from penstock.broker.types import LeaseReply
from penstock.pending import PendingReply
from penstock.transports import translate
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import lease_answer, lease_meta, read_messages, read_meta
from penstock.transports.http.request import BATCH_TYPE, ClientGone, ClientHalfClosed, Request
from penstock.wire.delivery import encode_delivery
from penstock.wire.messages import LeaseRequest, NoQuery, PeekQuery, ReadQuery
from penstock.wire.parse import parse_json, parse_query

T = TypeVar("T")


_lease_decoder = msgspec.json.Decoder(LeaseRequest)


def lease(edge: Edge, request: Request) -> PendingReply[Answer]:
    if request.query:
        parse_query(NoQuery, request.query)
    asked = parse_json(_lease_decoder, request.json_body())
    take = translate.lease(edge.broker, asked)

    def answer(reply: LeaseReply) -> Answer:
        results = None if asked.ack is None else reply.results
        on_sent = partial(edge.metrics.delivered, reply.runs, edge.clock.now_ms())
        if request.wants_batch:
            meta = lease_meta(reply.runs, results, reply.generation)
            body = encode_delivery(meta, [run.batch.frame for run in reply.runs])
            return Answer(200, body, BATCH_TYPE, on_sent=on_sent)
        return Answer(200, lease_answer(reply.runs, results, reply.generation), on_sent=on_sent)

    return take(ack=asked.ack or (), wait_ms=asked.wait_ms).then(answer)


async def read(edge: Edge, request: Request) -> Answer:
    query = parse_query(ReadQuery, request.query)
    in_bulk = request.wants_batch and query.until is not None and query.max is None
    look = translate.read(edge.broker, query, everything=in_bulk)
    reply = await look(offset=query.offset, client_id=translate.reader_of(query))
    skipped = reply.skipped
    if not reply.runs and query.wait_ms:
        # From where the first look ended: what `latest` meant then must not move while we wait.
        waiting = look(offset=str(reply.next_offset), wait_ms=query.wait_ms)
        with contextlib.suppress(ClientHalfClosed):
            reply = await unless_gone(request, waiting)
    if request.wants_batch:
        meta = read_meta(reply.runs, reply.next_offset, reply.end_offset, reply.start_offset, skipped)
        return Answer(200, encode_delivery(meta, [run.batch.frame for run in reply.runs]), BATCH_TYPE)
    return Answer(
        200,
        b'{"messages":%b,"next_offset":%d,"end_offset":%d,"start_offset":%d,"skipped":%d}'
        % (read_messages(reply.runs), reply.next_offset, reply.end_offset, reply.start_offset, skipped),
    )


async def peek(edge: Edge, request: Request) -> Answer:
    runs = await translate.peek(edge.broker, parse_query(PeekQuery, request.query))
    return Answer(200, b'{"messages":%b}' % read_messages(runs))


async def unless_gone(request: Request, waiting: Awaitable[T]) -> T:
    """The outcome of a long wait, given up as soon as the client is gone: it could not receive what it is granted.

    Raises ClientGone, or ClientHalfClosed for a client that may still be there to hear that it was given up.
    """
    work = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(request.gone())
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientHalfClosed if gone.result() else ClientGone
    finally:
        if isinstance(waiting, PendingReply) and not work.done():
            waiting.cancel()  # the task may not have begun to wait for it
        work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)
