"""The methods of the service: operations of `wire/operations.py`, named in CamelCase."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple

from google.protobuf.message import Message

from penstock.errors import InvalidRequest
from penstock.transports import translate
from penstock.transports.grpc import deadletters, lease, publish, read
from penstock.transports.grpc.calls import CallHandlers, Context, Replies, Stream, Unary
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.lease_stream import lease_stream
from penstock.transports.grpc.publish_stream import publish_stream
from penstock.transports.grpc.shapes import convert, fill_message, values_of
from penstock.transports.http.in_process import InProcessHttp
from penstock.v1 import broker_pb2 as pb
from penstock.wire.messages import AckRequest, ExtendRequest, NackRequest, NoQuery, RejectRequest
from penstock.wire.operations import OPERATIONS, Operation
from penstock.wire.settings import QueueSettings

SERVICE = pb.DESCRIPTOR.services_by_name["Broker"]

Values = dict[str, Any]


def plain(operation: Operation) -> Unary:
    """A method whose request and reply have the same fields as in `wire/`."""
    call = getattr(translate, operation.name)
    reply_type: type[Message] = getattr(pb, SERVICE.methods_by_name[operation.grpc_method].output_type.name)
    adapt = ADAPTED.get(operation.name, dict)

    async def handle(edge: GrpcEdge, request: Message, context: Context) -> Message:  # noqa: ARG001
        reply = call(edge.broker, *_arguments(operation, adapt(values_of(request))))
        if isawaitable(reply):
            reply = await reply
        return fill_message(reply_type(), reply.reply if isinstance(reply, translate.Created) else reply)

    return handle


def _arguments(operation: Operation, values: Values) -> list[Any]:
    """The arguments of a function of `translate`: the body, then the parameters of the path and the query."""
    parameters: Values = values
    arguments: list[Any] = []
    if operation.body is not None:
        names = operation.query.__struct_fields__
        parameters = {name: values.pop(name) for name in names if name in values}
        arguments.append(values if operation.body is QueueSettings else convert(values, operation.body))
    if operation.query is not NoQuery:
        arguments.append(convert(parameters, operation.query))
    return arguments


# -- requests with another form than in JSON ----------------------------------------------------------------------


def _settings(values: Values) -> Values:
    """The settings of a queue beside its name; settings in `reset` are None."""
    settings: Values = values.pop("config", {})
    for path in values.pop("reset", ()):
        outer, _, inner = path.partition(".")
        if inner and isinstance(settings.setdefault(outer, {}), dict):
            settings[outer][inner] = None
        else:
            settings[path] = None
    return {**settings, **values}


def _place(field: str, values: Values) -> Values:
    """Offsets are a field of their own, where JSON has one for both forms of a place."""
    offsets = values.pop("offsets", None)
    if offsets is not None and field in values:
        raise InvalidRequest(f"give either {field} or offsets", details={"field": field})
    return values if offsets is None else {**values, field: offsets}


ADAPTED: dict[str, Callable[[Values], Values]] = {
    "put_queue": _settings,
    "patch_queue": _settings,
    "put_group": partial(_place, "start"),
    "seek_group": partial(_place, "to"),
}

# -- the table ----------------------------------------------------------------------------------------------------

OWN_FORM: dict[str, Unary] = {
    "publish": publish.publish,
    "transact": publish.transact,
    "lease": lease.lease,
    "ack": lease.settling(translate.ack, AckRequest),
    "nack": lease.settling(translate.nack, NackRequest),
    "reject": lease.settling(translate.reject, RejectRequest),
    "release": lease.settling(translate.release, AckRequest),
    "extend": lease.settling(translate.extend, ExtendRequest),
    "read": read.read,
    "peek": read.peek,
    "dead_letters": deadletters.dead_letters,
    "redrive": deadletters.redrive,
}
"""Operations with a form of their own in gRPC; `plain` handles the others."""


class Method(NamedTuple):
    operation: str
    handle: Unary
    size_max: int


UNARY = {
    each.grpc_method: Method(each.name, OWN_FORM.get(each.name) or plain(each), each.body_max)
    for each in OPERATIONS.values()
    if each.grpc
}
HTTP_CALL = "Call"
"""The method that carries requests of the HTTP interface."""
REPLIES: dict[str, Replies] = {"ReadStream": read.read_stream}
STREAMS: dict[str, Stream] = {"PublishStream": publish_stream, "LeaseStream": lease_stream}


def handlers(calls: CallHandlers, http: InProcessHttp) -> dict[str, Any]:
    """The handlers of all methods, by name."""
    found: dict[str, Any] = {HTTP_CALL: calls.http(http)}
    for name, method in UNARY.items():
        found[name] = calls.unary(method.operation, _request_type(name), method.handle, method.size_max)
    for operation in OPERATIONS.values():
        if operation.streams:
            name, stream = f"{operation.grpc_method}Stream", f"{operation.name}_stream"
            if name in STREAMS:
                found[name] = calls.stream(stream, STREAMS[name])
            else:
                found[name] = calls.replies(stream, _request_type(name), REPLIES[name])
    return found


def _request_type(method: str) -> type[Message]:
    kind: type[Message] = getattr(pb, SERVICE.methods_by_name[method].input_type.name)
    return kind
