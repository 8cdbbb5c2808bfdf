"""Calls over gRPC: each becomes a request of the contract, and each reply the body of the HTTP answer. Without I/O.

HTTP and gRPC have the same names for the same things, so most calls are equal field by field. The differences are the
place of a payload (`json` or `payload` here, `payload` or `payload_b64` there) and the values in a path or a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from penstock.client.calls.call import Call
from penstock.client.transport.grpc_fields import Values, as_json, fill, fill_with_content, plain
from penstock.errors import InvalidRequest, MethodNotAllowed
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, encode_delivery

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
    path, _, query = call.target.partition("?")
    values: Values = dict(parse_qsl(query, keep_blank_values=True))
    name = _BY_PATH.get((call.method, path))
    if name is None:
        for prefix, suffix, field, by_method in _BY_PREFIX:
            if path.startswith(prefix) and path.endswith(suffix) and call.method in by_method:
                values = {field: unquote(path.removeprefix(prefix).removesuffix(suffix)), **values}
                name = by_method[call.method]
                break
        else:
            raise MethodNotAllowed(
                f"{call.method} {path} is not carried over gRPC: use the server's http:// address for it"
            )
    return _TRANSLATE.get(name, _same_fields)(name, call, values)


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
    return _encode({"runs": runs, "durable": reply.durable})


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
    "PutQueue": _configure,
    "PatchQueue": _configure,
    "PutSchedule": _put_schedule,
    "Redrive": _redrive,
}
"""The calls whose request or reply is not a matter of equal fields."""

_BY_PATH = {
    ("POST", "/v1/publish"): "Publish",
    ("POST", "/v1/lease"): "Lease",
    ("POST", "/v1/ack"): "Ack",
    ("POST", "/v1/nack"): "Nack",
    ("POST", "/v1/reject"): "Reject",
    ("POST", "/v1/release"): "Release",
    ("POST", "/v1/extend"): "Extend",
    ("POST", "/v1/transact"): "Transact",
    ("POST", "/v1/cancel"): "Cancel",
    ("POST", "/v1/reschedule"): "Reschedule",
    ("POST", "/v1/groups/join"): "JoinGroup",
    ("POST", "/v1/groups/heartbeat"): "Heartbeat",
    ("POST", "/v1/groups/leave"): "LeaveGroup",
    ("GET", "/v1/read"): "Read",
    ("GET", "/v1/offsets"): "GetOffsets",
    ("POST", "/v1/offsets"): "KeepOffsets",
    ("DELETE", "/v1/offsets"): "ForgetOffsets",
    ("GET", "/v1/peek"): "Peek",
    ("GET", "/v1/explain"): "Explain",
    ("GET", "/v1/history"): "History",
    ("GET", "/v1/autoscale"): "Autoscale",
    ("GET", "/v1/stats"): "Stats",
    ("GET", "/v1/stats/summary"): "Summary",
    ("GET", "/v1/groups"): "Groups",
    ("GET", "/v1/analytics/queues"): "AnalyticsQueues",
    ("GET", "/v1/analytics/queue"): "AnalyticsQueue",
    ("GET", "/v1/analytics/namespace"): "AnalyticsNamespace",
    ("GET", "/v1/analytics/task"): "AnalyticsTask",
    ("GET", "/v1/analytics/depths"): "AnalyticsDepths",
    ("GET", "/v1/analytics/throughput"): "AnalyticsThroughput",
    ("GET", "/v1/analytics/latency"): "AnalyticsLatency",
    ("GET", "/v1/queues"): "ListQueues",
    ("GET", "/v1/dlq"): "DeadLetters",
    ("POST", "/v1/dlq/redrive"): "Redrive",
    ("GET", "/v1/dlq/redrives"): "Redrives",
    ("POST", "/v1/dlq/redrive/stop"): "StopRedrive",
    ("POST", "/v1/dlq/delete"): "DeleteDeadLetters",
    ("GET", "/v1/schedules"): "ListSchedules",
    ("GET", "/v1/webhooks"): "ListWebhooks",
    ("POST", "/v1/webhooks"): "CreateWebhook",
    ("POST", "/v1/webhooks/pause"): "PauseWebhook",
    ("POST", "/v1/webhooks/resume"): "ResumeWebhook",
    ("POST", "/v1/webhooks/rotate"): "RotateWebhook",
    ("POST", "/v1/webhooks/test"): "TestWebhook",
    ("GET", "/v1/webhooks/attempts"): "WebhookAttempts",
    ("GET", "/v1/extent"): "Extent",
    ("GET", "/v1/events/ranges"): "EventRanges",
    ("GET", "/readyz"): "Summary",
}

_BY_PREFIX: list[tuple[str, str, str, dict[str, str]]] = [
    ("/v1/queues/", "/purge", "queue", {"POST": "PurgeQueue"}),
    (
        "/v1/queues/",
        "",
        "queue",
        {"GET": "GetQueue", "PUT": "PutQueue", "PATCH": "PatchQueue", "DELETE": "DeleteQueue"},
    ),
    ("/v1/webhooks/", "", "id", {"GET": "GetWebhook", "PATCH": "ChangeWebhook", "DELETE": "DeleteWebhook"}),
    ("/v1/schedules/", "/pause", "name", {"POST": "PauseSchedule"}),
    ("/v1/schedules/", "/resume", "name", {"POST": "ResumeSchedule"}),
    ("/v1/schedules/", "", "name", {"GET": "GetSchedule", "PUT": "PutSchedule", "DELETE": "DeleteSchedule"}),
]
"""(path before a name, path after it, the field of the name, rpc by HTTP method)."""
