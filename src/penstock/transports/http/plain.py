"""Handlers of operations that are alike in all transports: decode the request, call the broker, encode the reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock import limits
from penstock.pending import PendingReply
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge, Handler
from penstock.transports.http.request import Request
from penstock.transports.translate import Created
from penstock.wire.delivery import Settled, results_json
from penstock.wire.messages import NoQuery
from penstock.wire.operations import Operation
from penstock.wire.parse import parse_json, parse_query
from penstock.wire.settings import QueueSettings

if TYPE_CHECKING:
    from penstock.broker.service import Broker

T = TypeVar("T")

FIELD_OF_PARAMETER = {"path": "queue"}
"""Parameters of paths whose field has another name."""


def plain(operation: Operation, call: Callable[..., Any]) -> Handler:
    """`call` takes the broker and the decoded request, see `translate`."""
    arguments = _arguments(operation)

    async def handle(edge: Edge, request: Request) -> Answer:
        reply = call(edge.broker, *arguments(request))
        if isawaitable(reply):
            reply = await reply
        return json_answer(reply.reply, 201) if isinstance(reply, Created) else json_answer(reply)

    return handle


def settling(call: Callable[[Broker, T], PendingReply[Sequence[Settled]]], kind: type[T]) -> Handler:
    """An operation that settles receipts."""
    decode = json_reader(kind)
    return lambda edge, request: call(edge.broker, decode(request)).then(_settled)


def _settled(results: Sequence[Settled]) -> Answer:
    return Answer(200, b'{"results":%b}' % results_json(results))


def json_reader(kind: type[T], size_max: int = limits.REQUEST_BYTES_MAX) -> Callable[[Request], T]:
    """Decodes the body of an operation that has no parameters."""
    decoder = msgspec.json.Decoder(kind)

    def decode(request: Request) -> T:
        if request.query:
            parse_query(NoQuery, request.query)
        return parse_json(decoder, request.json_body(size_max))

    return decode


def _arguments(operation: Operation) -> Callable[[Request], tuple[Any, ...]]:
    """Decodes the body and the parameters of a request, as far as the operation has them."""
    # The broker checks settings itself; here they only have to be JSON.
    body: Any = dict[str, Any] if operation.body is QueueSettings else operation.body
    decoder = None if body is None else msgspec.json.Decoder(body)
    before, brace, rest = operation.path.partition("{")
    parameter, _, after = rest.partition("}")
    field = FIELD_OF_PARAMETER.get(parameter, parameter)

    def decode(request: Request) -> tuple[Any, ...]:
        in_path = {field: request.path.removeprefix(before).removesuffix(after)} if brace else {}
        parameters = parse_query(operation.query, request.query, in_path)
        given = () if operation.query is NoQuery else (parameters,)
        if decoder is None:
            return given
        return (parse_json(decoder, request.json_body(operation.body_max)), *given)

    return decode
