"""Operations that return messages or events, as JSON or in bulk: lease, read, peek, events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from penstock.broker.types import LeaseReply
from penstock.pending import PendingReply
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.plain import json_reader
from penstock.transports.http.render import delivered_messages, lease_answer, lease_meta, read_meta
from penstock.transports.http.request import BATCH_TYPE, ClientGone, ClientHalfClosed, Request
from penstock.wire.delivery import encode_delivery
from penstock.wire.events import EVENTS_TYPE, EventsQuery, encode_events
from penstock.wire.messages import LeaseRequest, PeekQuery, ReadQuery
from penstock.wire.parse import parse_query, parse_queue

T = TypeVar("T")

_EVENTS_TYPE = EVENTS_TYPE.encode()

_decode_lease = json_reader(LeaseRequest)


def lease(edge: Edge, request: Request) -> PendingReply[Answer]:
    asked = _decode_lease(request)
    take = translate.lease_call(edge.broker, asked)
    started = edge.clock.monotonic()

    def answer(reply: LeaseReply) -> Answer:
        results = None if asked.ack is None else reply.results
        on_sent = partial(edge.count_lease, reply.runs, started)
        if request.trace is not None:
            request.trace.leased(reply.runs)
        if request.wants_batch:
            meta = lease_meta(reply.runs, results, reply.generation)
            body = encode_delivery(meta, [run.batch.frame for run in reply.runs])
            return Answer(200, body, BATCH_TYPE, on_sent=on_sent)
        return Answer(200, lease_answer(reply.runs, results, reply.generation), on_sent=on_sent)

    return take(ack=asked.ack or (), wait_ms=asked.wait_ms).then(answer)


async def read(edge: Edge, request: Request) -> Answer:
    query = parse_query(ReadQuery, request.query)
    in_bulk = request.wants_batch and query.until is not None and query.max is None
    look = translate.read_call(edge.broker, query, everything=in_bulk)
    reply = await look(offset=query.offset, client_id=translate.reader_of(query))
    skipped = reply.skipped
    if not reply.runs and query.wait_ms:
        # From the end of the first read: `latest` must not move while the request waits.
        waiting = look(offset=str(reply.next_offset), wait_ms=query.wait_ms)
        with contextlib.suppress(ClientHalfClosed):
            reply = await unless_gone(request, waiting)
    if request.wants_batch:
        meta = read_meta(reply.runs, reply.next_offset, reply.end_offset, reply.start_offset, skipped)
        return Answer(200, encode_delivery(meta, [run.batch.frame for run in reply.runs]), BATCH_TYPE)
    return Answer(
        200,
        b'{"messages":%b,"next_offset":%d,"end_offset":%d,"start_offset":%d,"skipped":%d}'
        % (
            delivered_messages(reply.runs, leased=False),
            reply.next_offset,
            reply.end_offset,
            reply.start_offset,
            skipped,
        ),
    )


async def peek(edge: Edge, request: Request) -> Answer:
    runs = await translate.peek_runs(edge.broker, parse_query(PeekQuery, request.query))
    return Answer(200, b'{"messages":%b}' % delivered_messages(runs, leased=False))


async def events(edge: Edge, request: Request) -> Answer:
    query = parse_query(EventsQuery, request.query)
    if _EVENTS_TYPE in request.fields.accept:
        bulk = await edge.broker.events.read_bulk(query, None if query.queue is None else parse_queue(query.queue))
        return Answer(200, encode_events(bulk.meta, bulk.records), _EVENTS_TYPE)
    return json_answer(await translate.events(edge.broker, query))


async def unless_gone(request: Request, waiting: Awaitable[T]) -> T:
    """Await `waiting` until the client disconnects: it could not receive the messages.

    Raises ClientGone, or ClientHalfClosed for a client that can still read an answer.
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
