"""Calls over gRPC: each becomes a request of the contract, and each reply the body of the HTTP answer. Without I/O.

HTTP and gRPC have the same names for the same things, so most calls are equal field by field. The differences are the
place of a payload (`json` or `payload` here, `payload` or `payload_b64` there) and the values in a path or a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from penstock.client.calls.call import Call
from penstock.client.transport.grpc_fields import Values, as_json, fill, fill_with_content, plain, without_nulls
from penstock.errors import InvalidRequest, MethodNotAllowed
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, encode_delivery
from penstock.wire.operations import OPERATIONS, Operation

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_raws = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


_METHODS = pb.DESCRIPTOR.services_by_name["Broker"].methods_by_name


class Rpc(NamedTuple):
    name: str
    request: Message
    reply: type[Message]
    read: Callable[[Any], bytes]
    """Makes the body of the HTTP answer with the same content."""


Translate: TypeAlias = Callable[[str, Call[Any], Values], Rpc]
"""(rpc, call, the values of its path and its query) -> how gRPC asks for it."""


def translated(call: Call[Any]) -> Rpc:
    """Raises MethodNotAllowed for a call that gRPC does not have."""
    described = OPERATIONS["summary" if call.operation == "readiness" else call.operation]
    if not described.grpc:
        raise MethodNotAllowed(f"{call.target} is not carried over gRPC: use the server's http:// address for it")
    path, _, query = call.target.partition("?")
    values: Values = dict(parse_qsl(query, keep_blank_values=True))
    before, _, rest = described.path.partition("{")
    parameter, _, after = rest.partition("}")
    if parameter:
        values[{"path": "queue"}.get(parameter, parameter)] = unquote(path.removeprefix(before).removesuffix(after))
    name = described.grpc_method
    made = _TRANSLATE.get(name, _same_fields)(name, call, values)
    return made if made.read is not as_json else made._replace(read=partial(_read_reply, described))


def _read_reply(described: Operation, reply: Message) -> bytes:
    return _encode(without_nulls(plain(reply), described.reply or described.created))


def _rpc(name: str, request: Message, read: Callable[[Any], bytes] = as_json) -> Rpc:
    return Rpc(name, request, GetMessageClass(_METHODS[name].output_type), read)


def _new_request(name: str) -> Message:
    return GetMessageClass(_METHODS[name].input_type)()


# -- each call ----------------------------------------------------------------------------------------------------


def _same_fields(name: str, call: Call[Any], values: Values) -> Rpc:
    """Most calls: the request has the fields of the path, the query and the body."""
    request = _new_request(name)
    fill(request, {**values, **(_decode(call.body) if call.body else {})})
    return _rpc(name, request)


def _publish(name: str, call: Call[Any], values: Values) -> Rpc:
    request = pb.PublishRequest(queue=values["queue"], batch=call.body)
    producer = request.producer
    producer.id, producer.epoch, producer.seq = values["producer"], int(values["epoch"]), int(values["seq"])
    return _rpc(name, request, _read_published)


def _read_published(reply: pb.PublishReply) -> bytes:
    runs = [{**plain(run), "rows": list(run.rows) or None} for run in reply.runs]
    return _encode({"runs": runs, "durable": reply.durable, "ignored": list(reply.ignored)})


def _lease(name: str, call: Call[Any], _: Values) -> Rpc:
    request = pb.LeaseRequest(form=pb.FRAMES)
    fill(request, _decode(call.body))
    return _rpc(name, request, _read_leased)


def _read_leased(reply: pb.LeaseReply) -> bytes:
    results = [Settled(**plain(each)) for each in reply.results]
    generation = reply.generation if reply.HasField("generation") else None
    meta = LeaseMeta([_run(run) for run in reply.runs], results, generation)
    return encode_delivery(meta, [run.batch for run in reply.runs])


def _read(name: str, _: Call[Any], values: Values) -> Rpc:
    request = pb.ReadRequest(form=pb.FRAMES)
    fill(request, values)
    return _rpc(name, request, _read_log)


def _read_log(reply: pb.ReadReply) -> bytes:
    runs = [_run(run) for run in reply.runs]
    meta = ReadMeta(runs, reply.next_offset, reply.end_offset, reply.start_offset, reply.skipped)
    return encode_delivery(meta, [run.batch for run in reply.runs])


def _run(run: pb.Run) -> Run:
    return Run(
        run.queue, run.partition, run.offset, run.count, run.id, run.published_at_ms, len(run.batch), run.attempt,
        run.receipt if run.HasField("receipt") else None,
        run.deadline_at_ms if run.HasField("deadline_at_ms") else None,
        run.lease_ms if run.HasField("lease_ms") else None,
    )  # fmt: skip


def _transact(name: str, call: Call[Any], _: Values) -> Rpc:
    body = _decode_raw(call.body)
    request = pb.TransactRequest(ack=_decode(body["ack"]))
    for item in _decode_raws(body["publish"]):
        fill_with_content(request.publish.add(), item)
    return _rpc(name, request)


def _configure(name: str, call: Call[Any], values: Values) -> Rpc:
    """Settings that become null are named in `reset`, because a protobuf field cannot be null."""
    changes = _decode(call.body)
    kind = pb.PutQueueRequest if name == "PutQueue" else pb.PatchQueueRequest
    request = kind(reset=list(_nulls(changes)), **values)
    _fill_config(request, changes)
    return _rpc(name, request)


def _nulls(values: Values, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if value is None:
            yield prefix + name
        elif isinstance(value, dict) and not prefix:
            yield from _nulls(value, f"{name}.")


def _fill_config(request: pb.PutQueueRequest | pb.PatchQueueRequest, values: Values) -> None:
    """Raises InvalidRequest for a setting that the contract has no field for."""
    request.config.SetInParent()
    try:
        fill(request.config, values)
    except KeyError as error:
        raise InvalidRequest(f"{error.args[0]}: there is no such setting", details={"field": error.args[0]}) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(f"these settings cannot be sent: {error}") from None


def _at_position(name: str, call: Call[Any], values: Values) -> Rpc:
    """The position of a group is one of two fields in protobuf: a word, or an offset per partition."""
    request = _new_request(name)
    fields = {**values, **_decode(call.body)}
    field = "start" if "start" in fields else "to"
    if isinstance(fields.get(field), dict):
        fields["offsets"] = fields.pop(field)
    fill(request, fields)
    return _rpc(name, request)


def _put_schedule(name: str, call: Call[Any], values: Values) -> Rpc:
    body = _decode_raw(call.body)
    request = pb.PutScheduleRequest()
    fill(request, {**values, **{field: _decode(raw) for field, raw in body.items() if field != "message"}})
    fill_with_content(request.message, _decode_raw(body["message"]))
    return _rpc(name, request)


def _redrive(name: str, call: Call[Any], values: Values) -> Rpc:
    return _same_fields(name, call, values)._replace(read=_read_redrive)


def _read_redrive(reply: pb.RedriveReply) -> bytes:
    values = plain(reply)
    status, count, sample = values.pop("status"), values.pop("count"), values.pop("sample")
    return _encode({**status, **values} if status is not None else {**values, "count": count, "sample": sample})


_TRANSLATE: dict[str, Translate] = {
    "Publish": _publish,
    "Lease": _lease,
    "Transact": _transact,
    "Read": _read,
    "PutGroup": _at_position,
    "SeekGroup": _at_position,
    "PutQueue": _configure,
    "PatchQueue": _configure,
    "PutSchedule": _put_schedule,
    "Redrive": _redrive,
}
"""The calls whose request or reply is not a matter of equal fields."""
