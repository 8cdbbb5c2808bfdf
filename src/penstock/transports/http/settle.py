"""What becomes of messages: ack, nack, reject, release, extend by receipt; cancel and reschedule by id or key."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock import limits
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.delivery import Settled, results_json
from penstock.wire.messages import (
    AckRequest,
    CancelRequest,
    ExtendRequest,
    NackRequest,
    NoQuery,
    RejectRequest,
    RescheduleRequest,
)
from penstock.wire.parse import T, parse_json, parse_query, parse_queue

_ack_decoder = msgspec.json.Decoder(AckRequest)
_nack_decoder = msgspec.json.Decoder(NackRequest)
_reject_decoder = msgspec.json.Decoder(RejectRequest)
_extend_decoder = msgspec.json.Decoder(ExtendRequest)
_cancel_decoder = msgspec.json.Decoder(CancelRequest)
_reschedule_decoder = msgspec.json.Decoder(RescheduleRequest)


async def ack(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _ack_decoder)
    return _settled(await edge.broker.ack(asked.receipts))


async def nack(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _nack_decoder)
    results = await edge.broker.nack(asked.receipts, delay_ms=asked.delay_ms, error=_shortened(asked.error))
    return _settled(results)


async def reject(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _reject_decoder)
    return _settled(await edge.broker.reject(asked.receipts, error=_shortened(asked.error)))


async def release(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _ack_decoder)
    return _settled(await edge.broker.release(asked.receipts))


async def extend(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _extend_decoder)
    return _settled(await edge.broker.extend(asked.receipts, lease_ms=asked.lease_ms))


async def cancel(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _cancel_decoder)
    count, results = await edge.broker.cancel(parse_queue(asked.queue), ids=asked.ids, key=asked.key)
    return json_answer({"cancelled": count, "results": [{"id": each.id, "status": each.status} for each in results]})


async def reschedule(edge: Edge, request: Request) -> Answer:
    asked = await _asked(request, _reschedule_decoder)
    count, results = await edge.broker.reschedule(
        parse_queue(asked.queue),
        ids=asked.ids,
        key=asked.key,
        deliver_at_ms=asked.deliver_at_ms,
        delay_ms=asked.delay_ms,
    )
    return json_answer({"rescheduled": count, "results": [{"id": each.id, "status": each.status} for each in results]})


async def _asked(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    if request.query:
        parse_query(NoQuery, request.query)
    return parse_json(decoder, await request.json_body())


def _settled(results: Sequence[Settled]) -> Answer:
    return Answer(200, b'{"results":%b}' % results_json(results))


def _shortened(error: str | None) -> str:
    return (error or "")[: limits.ERROR_CHARS_MAX]
