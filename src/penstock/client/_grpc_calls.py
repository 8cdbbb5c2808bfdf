"""Calls as gRPC has them: each becomes a message of the contract, and each reply what HTTP would have answered. Pure.

Both doors have the same names for the same things, so most of it is a walk over fields. What differs is where a
payload is (`json` or `payload` here, `payload` or `payload_b64` there) and what stands in a path or a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec
from google.protobuf.message import Message

from penstock.client._calls import Call
from penstock.client._grpc_shapes import Values, as_json, fill, fill_with_content, plain
from penstock.errors import InvalidRequest, MethodNotAllowed
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, encode_delivery

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_raws = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


class Rpc(NamedTuple):
    name: str
    request: Message
    reply: type[Message]
    read: Callable[[Any], bytes]
    """The body of the HTTP answer that says the same."""


Translate: TypeAlias = Callable[[Call[Any], str, Values], Rpc]
"""(call, what stands in the path, what stands in the query) -> how gRPC asks for it."""


def translated(call: Call[Any]) -> Rpc:
    """Raises MethodNotAllowed for a call that gRPC does not have."""
    path, _, query = call.target.partition("?")
    values: Values = dict(parse_qsl(query, keep_blank_values=True))
    translate = _BY_PATH.get((call.method, path))
    if translate is not None:
        return translate(call, "", values)
    for prefix, by_suffix in _BY_PREFIX.items():
        if path.startswith(prefix):
            name = path.removeprefix(prefix)
            for suffix, methods in by_suffix:
                if name.endswith(suffix) and call.method in methods:
                    return methods[call.method](call, unquote(name.removesuffix(suffix)), values)
    raise MethodNotAllowed(f"{call.method} {path} is not carried over gRPC: use the server's http:// address for it")


# -- each call ----------------------------------------------------------------------------------------------------


def _call(name: str, request: type[Message], reply: type[Message]) -> Translate:
    """A call that is its fields and nothing else, from a body or a query."""

    def translate(call: Call[Any], _: str, query: Values) -> Rpc:
        asked = request()
        fill(asked, query if not call.body else {**_decode(call.body), **query})
        return Rpc(name, asked, reply, as_json)

    return translate


def _named(name: str, request: type[Message], reply: type[Message], place: str = "queue") -> Translate:
    """The same for a call that names its queue, schedule or webhook in the path."""

    def translate(call: Call[Any], path: str, query: Values) -> Rpc:
        asked = request()
        fill(asked, {place: path, **query, **(_decode(call.body) if call.body else {})})
        return Rpc(name, asked, reply, as_json)

    return translate


def _publish(call: Call[Any], _: str, query: Values) -> Rpc:
    asked = pb.PublishRequest(queue=query["queue"], batch=call.body)
    asked.producer.id, asked.producer.epoch, asked.producer.seq = (
        query["producer"], int(query["epoch"]), int(query["seq"]),
    )  # fmt: skip
    return Rpc("Publish", asked, pb.PublishReply, _read_published)


def _read_published(reply: pb.PublishReply) -> bytes:
    runs = [{**plain(run), "rows": list(run.rows) or None} for run in reply.runs]
    return _encode({"runs": runs, "durable": reply.durable})


def _lease(call: Call[Any], _: str, __: Values) -> Rpc:
    asked = pb.LeaseRequest(form=pb.FRAMES)
    fill(asked, _decode(call.body))
    return Rpc("Lease", asked, pb.LeaseReply, _read_leased)


def _read_leased(reply: pb.LeaseReply) -> bytes:
    results = [Settled(**plain(each)) for each in reply.results]
    generation = reply.generation if reply.HasField("generation") else None
    meta = LeaseMeta([_run(run) for run in reply.runs], results, generation)
    return encode_delivery(meta, [run.batch for run in reply.runs])


def _read(call: Call[Any], _: str, query: Values) -> Rpc:  # noqa: ARG001
    asked = pb.ReadRequest(form=pb.FRAMES)
    fill(asked, query)
    return Rpc("Read", asked, pb.ReadReply, _read_log)


def _read_log(reply: pb.ReadReply) -> bytes:
    runs = [_run(run) for run in reply.runs]
    meta = ReadMeta(runs, reply.next_offset, reply.end_offset, reply.start_offset, reply.skipped)
    return encode_delivery(meta, [run.batch for run in reply.runs])


def _run(run: pb.Run) -> Run:
    return Run(
        run.queue, run.partition, run.offset, run.count, run.id, run.published_at_ms, len(run.batch), run.attempt,
        run.receipt if run.HasField("receipt") else None,
        run.deadline_at_ms if run.HasField("deadline_at_ms") else None,
    )  # fmt: skip


def _transact(call: Call[Any], _: str, __: Values) -> Rpc:
    body = _decode_raw(call.body)
    asked = pb.TransactRequest(ack=_decode(body["ack"]))
    for item in _decode_raws(body["publish"]):
        fill_with_content(asked.publish.add(), item)
    return Rpc("Transact", asked, pb.TransactReply, as_json)


def _settings(name: str, kind: type[pb.PutQueueRequest | pb.PatchQueueRequest]) -> Translate:
    """Settings that become null are named beside the others, as a protobuf field cannot be null."""

    def translate(call: Call[Any], path: str, query: Values) -> Rpc:
        values = _decode(call.body)
        asked = kind(queue=path, reset=list(_nulls(values)), **query)
        asked.config.SetInParent()
        _fill_config(asked.config, values)
        return Rpc(name, asked, pb.QueueReply, as_json)

    return translate


def _nulls(values: Values, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if value is None:
            yield prefix + name
        elif isinstance(value, dict) and not prefix:
            yield from _nulls(value, f"{name}.")


def _fill_config(config: pb.QueueConfig, values: Values) -> None:
    """Raises InvalidRequest for what the contract has no field for: there is nothing to send it in."""
    try:
        fill(config, values)
    except KeyError as error:
        raise InvalidRequest(f"{error.args[0]}: there is no such setting", details={"field": error.args[0]}) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(f"these settings cannot be sent: {error}") from None


def _placed(name: str, request: type[Message], reply: type[Message], field: str) -> Translate:
    """A call with a place, which is one of two fields here: a word, or an offset per partition."""

    def translate(call: Call[Any], _: str, __: Values) -> Rpc:
        values = _decode(call.body)
        if isinstance(values.get(field), dict):
            values["offsets"] = values.pop(field)
        asked = request()
        fill(asked, values)
        return Rpc(name, asked, reply, as_json)

    return translate


def _put_schedule(call: Call[Any], name: str, _: Values) -> Rpc:
    body = _decode_raw(call.body)
    asked = pb.PutScheduleRequest(name=name)
    fill(asked, {field: _decode(raw) for field, raw in body.items() if field != "message"})
    fill_with_content(asked.message, _decode_raw(body["message"]))
    return Rpc("PutSchedule", asked, pb.ScheduleReply, as_json)


def _redrive(call: Call[Any], _: str, __: Values) -> Rpc:
    asked = pb.RedriveRequest()
    fill(asked, _decode(call.body))
    return Rpc("Redrive", asked, pb.RedriveReply, _read_redrive)


def _read_redrive(reply: pb.RedriveReply) -> bytes:
    values = plain(reply)
    status, count, sample = values.pop("status"), values.pop("count"), values.pop("sample")
    return _encode({**status, **values} if status is not None else {**values, "count": count, "sample": sample})


def _ready(call: Call[Any], _: str, __: Values) -> Rpc:  # noqa: ARG001
    return Rpc("Summary", pb.SummaryRequest(), pb.SummaryReply, as_json)


_BY_PATH: dict[tuple[str, str], Translate] = {
    ("POST", "/v1/publish"): _publish,
    ("POST", "/v1/lease"): _lease,
    ("POST", "/v1/ack"): _call("Ack", pb.AckRequest, pb.SettleReply),
    ("POST", "/v1/nack"): _call("Nack", pb.NackRequest, pb.SettleReply),
    ("POST", "/v1/reject"): _call("Reject", pb.RejectRequest, pb.SettleReply),
    ("POST", "/v1/release"): _call("Release", pb.ReleaseRequest, pb.SettleReply),
    ("POST", "/v1/extend"): _call("Extend", pb.ExtendRequest, pb.SettleReply),
    ("POST", "/v1/transact"): _transact,
    ("POST", "/v1/cancel"): _call("Cancel", pb.CancelRequest, pb.CancelReply),
    ("POST", "/v1/reschedule"): _call("Reschedule", pb.RescheduleRequest, pb.RescheduleReply),
    ("PUT", "/v1/groups"): _placed("PutGroup", pb.PutGroupRequest, pb.PutGroupReply, "start"),
    ("POST", "/v1/groups/seek"): _placed("SeekGroup", pb.SeekGroupRequest, pb.SeekGroupReply, "to"),
    ("DELETE", "/v1/groups"): _call("DeleteGroup", pb.DeleteGroupRequest, pb.DeleteGroupReply),
    ("POST", "/v1/groups/join"): _call("JoinGroup", pb.JoinGroupRequest, pb.ShareReply),
    ("POST", "/v1/groups/heartbeat"): _call("Heartbeat", pb.HeartbeatRequest, pb.ShareReply),
    ("POST", "/v1/groups/leave"): _call("LeaveGroup", pb.LeaveGroupRequest, pb.LeaveGroupReply),
    ("GET", "/v1/read"): _read,
    ("GET", "/v1/offsets"): _call("GetOffsets", pb.OffsetsRequest, pb.OffsetsReply),
    ("POST", "/v1/offsets"): _call("KeepOffsets", pb.KeepOffsetsRequest, pb.OffsetsReply),
    ("DELETE", "/v1/offsets"): _call("ForgetOffsets", pb.OffsetsRequest, pb.OffsetsReply),
    ("GET", "/v1/peek"): _call("Peek", pb.PeekRequest, pb.PeekReply),
    ("GET", "/v1/explain"): _call("Explain", pb.ExplainRequest, pb.ExplainReply),
    ("GET", "/v1/history"): _call("History", pb.HistoryRequest, pb.HistoryReply),
    ("GET", "/v1/autoscale"): _call("Autoscale", pb.AutoscaleRequest, pb.AutoscaleReply),
    ("GET", "/v1/stats"): _call("Stats", pb.StatsRequest, pb.StatsReply),
    ("GET", "/v1/stats/summary"): _call("Summary", pb.SummaryRequest, pb.SummaryReply),
    ("GET", "/v1/groups"): _call("Groups", pb.GroupsRequest, pb.GroupsReply),
    ("GET", "/v1/analytics/queues"): _call("AnalyticsQueues", pb.AnalyticsQueuesRequest, pb.AnalyticsQueuesReply),
    ("GET", "/v1/analytics/queue"): _call("AnalyticsQueue", pb.AnalyticsQueueRequest, pb.AnalyticsReply),
    ("GET", "/v1/analytics/namespace"): _call("AnalyticsNamespace", pb.AnalyticsNamespaceRequest, pb.AnalyticsReply),
    ("GET", "/v1/analytics/task"): _call("AnalyticsTask", pb.AnalyticsTaskRequest, pb.AnalyticsReply),
    ("GET", "/v1/analytics/depths"): _call("AnalyticsDepths", pb.AnalyticsSeriesRequest, pb.AnalyticsDepthsReply),
    ("GET", "/v1/analytics/throughput"): _call(
        "AnalyticsThroughput", pb.AnalyticsSeriesRequest, pb.AnalyticsThroughputReply
    ),
    ("GET", "/v1/analytics/latency"): _call("AnalyticsLatency", pb.AnalyticsSeriesRequest, pb.AnalyticsLatencyReply),
    ("GET", "/v1/queues"): _call("ListQueues", pb.ListQueuesRequest, pb.ListQueuesReply),
    ("GET", "/v1/dlq"): _call("DeadLetters", pb.DeadLettersRequest, pb.DeadLettersReply),
    ("POST", "/v1/dlq/redrive"): _redrive,
    ("GET", "/v1/dlq/redrives"): _call("Redrives", pb.RedrivesRequest, pb.RedrivesReply),
    ("POST", "/v1/dlq/redrive/stop"): _call("StopRedrive", pb.StopRedriveRequest, pb.RedriveStatus),
    ("POST", "/v1/dlq/delete"): _call("DeleteDeadLetters", pb.DeleteDeadLettersRequest, pb.DeleteDeadLettersReply),
    ("GET", "/v1/schedules"): _call("ListSchedules", pb.ListSchedulesRequest, pb.ListSchedulesReply),
    ("GET", "/v1/webhooks"): _call("ListWebhooks", pb.ListWebhooksRequest, pb.ListWebhooksReply),
    ("POST", "/v1/webhooks"): _call("CreateWebhook", pb.CreateWebhookRequest, pb.WebhookReply),
    ("POST", "/v1/webhooks/pause"): _call("PauseWebhook", pb.WebhookIdRequest, pb.WebhookReply),
    ("POST", "/v1/webhooks/resume"): _call("ResumeWebhook", pb.WebhookIdRequest, pb.WebhookReply),
    ("POST", "/v1/webhooks/rotate"): _call("RotateWebhook", pb.RotateWebhookRequest, pb.WebhookReply),
    ("POST", "/v1/webhooks/test"): _call("TestWebhook", pb.WebhookIdRequest, pb.TestWebhookReply),
    ("GET", "/v1/webhooks/attempts"): _call("WebhookAttempts", pb.WebhookAttemptsRequest, pb.WebhookAttemptsReply),
    ("GET", "/v1/extent"): _call("Extent", pb.ExtentRequest, pb.ExtentReply),
    ("GET", "/v1/events/ranges"): _call("EventRanges", pb.EventRangesRequest, pb.EventRangesReply),
    ("GET", "/readyz"): _ready,
}

_BY_PREFIX: dict[str, list[tuple[str, dict[str, Translate]]]] = {
    "/v1/queues/": [
        ("/purge", {"POST": _named("PurgeQueue", pb.DestroyRequest, pb.DestroyedReply)}),
        (
            "",
            {
                "GET": _named("GetQueue", pb.GetQueueRequest, pb.QueueReply),
                "PUT": _settings("PutQueue", pb.PutQueueRequest),
                "PATCH": _settings("PatchQueue", pb.PatchQueueRequest),
                "DELETE": _named("DeleteQueue", pb.DestroyRequest, pb.DestroyedReply),
            },
        ),
    ],
    "/v1/webhooks/": [
        (
            "",
            {
                "GET": _named("GetWebhook", pb.WebhookIdRequest, pb.WebhookReply, "id"),
                "PATCH": _named("ChangeWebhook", pb.ChangeWebhookRequest, pb.WebhookReply, "id"),
                "DELETE": _named("DeleteWebhook", pb.WebhookIdRequest, pb.DeleteWebhookReply, "id"),
            },
        ),
    ],
    "/v1/schedules/": [
        ("/pause", {"POST": _named("PauseSchedule", pb.ScheduleNameRequest, pb.ScheduleReply, "name")}),
        ("/resume", {"POST": _named("ResumeSchedule", pb.ScheduleNameRequest, pb.ScheduleReply, "name")}),
        (
            "",
            {
                "GET": _named("GetSchedule", pb.ScheduleNameRequest, pb.ScheduleReply, "name"),
                "PUT": _put_schedule,
                "DELETE": _named("DeleteSchedule", pb.ScheduleNameRequest, pb.DeleteScheduleReply, "name"),
            },
        ),
    ],
}
