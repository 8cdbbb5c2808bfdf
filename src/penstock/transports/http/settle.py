"""Settling messages: ack, nack, reject, release, extend by receipt; cancel and reschedule by id or key."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.pending import PendingReply
from penstock.transports import translate
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
from penstock.wire.parse import T, parse_json, parse_query

_ack_decoder = msgspec.json.Decoder(AckRequest)
_nack_decoder = msgspec.json.Decoder(NackRequest)
_reject_decoder = msgspec.json.Decoder(RejectRequest)
_extend_decoder = msgspec.json.Decoder(ExtendRequest)
_cancel_decoder = msgspec.json.Decoder(CancelRequest)
_reschedule_decoder = msgspec.json.Decoder(RescheduleRequest)


def ack(edge: Edge, request: Request) -> PendingReply[Answer]:
    return translate.ack(edge.broker, _asked(request, _ack_decoder)).then(_settled)


def nack(edge: Edge, request: Request) -> PendingReply[Answer]:
    return translate.nack(edge.broker, _asked(request, _nack_decoder)).then(_settled)


def reject(edge: Edge, request: Request) -> PendingReply[Answer]:
    return translate.reject(edge.broker, _asked(request, _reject_decoder)).then(_settled)


def release(edge: Edge, request: Request) -> PendingReply[Answer]:
    return translate.release(edge.broker, _asked(request, _ack_decoder)).then(_settled)


def extend(edge: Edge, request: Request) -> PendingReply[Answer]:
    return translate.extend(edge.broker, _asked(request, _extend_decoder)).then(_settled)


async def cancel(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.cancel(edge.broker, _asked(request, _cancel_decoder)))


async def reschedule(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.reschedule(edge.broker, _asked(request, _reschedule_decoder)))


def _asked(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    if request.query:
        parse_query(NoQuery, request.query)
    return parse_json(decoder, request.json_body())


def _settled(results: Sequence[Settled]) -> Answer:
    return Answer(200, b'{"results":%b}' % results_json(results))
