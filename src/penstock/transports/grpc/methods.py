"""The methods of the service and their functions. Method names are the operation names of HTTP in CamelCase."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from google.protobuf.message import Message

from penstock import limits
from penstock.transports import translate
from penstock.transports import translate_analytics as analytics_calls
from penstock.transports.grpc import admin, holds, lease, publish, read
from penstock.transports.grpc.calls import CallHandlers, Context, Replies, Stream, Unary
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.lease_stream import lease_stream
from penstock.transports.grpc.publish_stream import publish_stream
from penstock.transports.grpc.shapes import fill_message, request_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire import analytics, events, groups, messages, webhooks
from penstock.wire.readers import KeepOffsetsRequest, OffsetsQuery

if TYPE_CHECKING:
    from penstock.broker.service import Broker

S = TypeVar("S", bound=msgspec.Struct)

SERVICE = pb.DESCRIPTOR.services_by_name["Broker"]


class Method(NamedTuple):
    handle: Unary
    size_max: int = limits.REQUEST_BYTES_MAX


def _plain(call: Callable[[Broker, S], Awaitable[Any]], shape: type[S], reply: type[Message]) -> Unary:
    """A method whose request and reply have the same fields as in `wire/`."""

    async def handle(edge: GrpcEdge, request: Message, context: Context) -> Message:  # noqa: ARG001
        return fill_message(reply(), await call(edge.broker, request_of(request, shape)))

    return handle


UNARY: dict[str, Method] = {
    "Publish": Method(publish.publish),
    "Lease": Method(lease.lease),
    "Ack": Method(lease.settling(translate.ack, messages.AckRequest)),
    "Nack": Method(lease.settling(translate.nack, messages.NackRequest)),
    "Reject": Method(lease.settling(translate.reject, messages.RejectRequest)),
    "Release": Method(lease.settling(translate.release, messages.AckRequest)),
    "Extend": Method(lease.settling(translate.extend, messages.ExtendRequest)),
    "Transact": Method(publish.transact),
    "Cancel": Method(_plain(translate.cancel, messages.CancelRequest, pb.CancelReply)),
    "Reschedule": Method(_plain(translate.reschedule, messages.RescheduleRequest, pb.RescheduleReply)),
    "PutGroup": Method(admin.put_group),
    "SeekGroup": Method(admin.seek_group),
    "DeleteGroup": Method(_plain(translate.delete_group, groups.DeleteGroupQuery, pb.DeleteGroupReply)),
    "JoinGroup": Method(_plain(translate.join_group, messages.JoinRequest, pb.ShareReply)),
    "Heartbeat": Method(_plain(translate.heartbeat, messages.HeartbeatRequest, pb.ShareReply)),
    "LeaveGroup": Method(_plain(translate.leave_group, messages.LeaveRequest, pb.LeaveGroupReply)),
    "Read": Method(read.read),
    "KeepOffsets": Method(_plain(translate.keep_offsets, KeepOffsetsRequest, pb.OffsetsReply), limits.CONFIG_BYTES_MAX),
    "GetOffsets": Method(_plain(translate.get_offsets, OffsetsQuery, pb.OffsetsReply)),
    "ForgetOffsets": Method(_plain(translate.forget_offsets, OffsetsQuery, pb.OffsetsReply)),
    "Peek": Method(read.peek),
    "Explain": Method(_plain(translate.explain, messages.ExplainQuery, pb.ExplainReply)),
    "History": Method(_plain(translate.history, messages.HistoryQuery, pb.HistoryReply)),
    "Autoscale": Method(_plain(translate.autoscale, messages.AutoscaleQuery, pb.AutoscaleReply)),
    "Extent": Method(_plain(translate.extent, messages.ExtentQuery, pb.ExtentReply)),
    "Events": Method(_plain(translate.events, events.EventsQuery, pb.EventsReply)),
    "EventRanges": Method(_plain(translate.event_ranges, events.EventRangesQuery, pb.EventRangesReply)),
    "AnalyticsQueues": Method(_plain(analytics_calls.queues, analytics.AnalyticsQueuesQuery, pb.AnalyticsQueuesReply)),
    "AnalyticsQueue": Method(_plain(analytics_calls.queue, analytics.AnalyticsQueueQuery, pb.AnalyticsReply)),
    "AnalyticsNamespace": Method(
        _plain(analytics_calls.namespace, analytics.AnalyticsNamespaceQuery, pb.AnalyticsReply)
    ),
    "AnalyticsTask": Method(_plain(analytics_calls.task, analytics.AnalyticsTaskQuery, pb.AnalyticsReply)),
    "AnalyticsDepths": Method(_plain(analytics_calls.depths, analytics.AnalyticsSeriesQuery, pb.AnalyticsDepthsReply)),
    "AnalyticsThroughput": Method(
        _plain(analytics_calls.throughput, analytics.AnalyticsSeriesQuery, pb.AnalyticsThroughputReply)
    ),
    "AnalyticsLatency": Method(
        _plain(analytics_calls.latency, analytics.AnalyticsSeriesQuery, pb.AnalyticsLatencyReply)
    ),
    "Stats": Method(_plain(translate.stats, messages.QueueQuery, pb.StatsReply)),
    "Summary": Method(_plain(translate.summary, messages.NoQuery, pb.SummaryReply)),
    "Groups": Method(_plain(translate.groups, messages.QueueQuery, pb.GroupsReply)),
    "ListQueues": Method(_plain(translate.list_queues, messages.QueuesQuery, pb.ListQueuesReply)),
    "GetQueue": Method(_plain(translate.get_queue, messages.QueueQuery, pb.QueueReply)),
    "PutQueue": Method(admin.put_queue, limits.CONFIG_BYTES_MAX),
    "PatchQueue": Method(admin.patch_queue, limits.CONFIG_BYTES_MAX),
    "DeleteQueue": Method(admin.delete_queue),
    "PurgeQueue": Method(admin.purge_queue),
    "DeadLetters": Method(admin.dead_letters),
    "Redrive": Method(admin.redrive),
    "Redrives": Method(_plain(translate.redrives, messages.RedrivesQuery, pb.RedrivesReply)),
    "StopRedrive": Method(_plain(translate.stop_redrive, messages.StopRedriveRequest, pb.RedriveStatus)),
    "DeleteDeadLetters": Method(admin.delete_dead_letters),
    "ListSchedules": Method(admin.list_schedules),
    "GetSchedule": Method(admin.get_schedule),
    "PutSchedule": Method(admin.put_schedule, limits.SCHEDULE_BYTES_MAX),
    "DeleteSchedule": Method(admin.delete_schedule),
    "PauseSchedule": Method(admin.pause_schedule),
    "ResumeSchedule": Method(admin.resume_schedule),
    "ListWebhooks": Method(_plain(translate.list_webhooks, webhooks.WebhooksQuery, pb.ListWebhooksReply)),
    "CreateWebhook": Method(admin.create_webhook, limits.WEBHOOK_BYTES_MAX),
    "GetWebhook": Method(_plain(translate.get_webhook, webhooks.WebhookNamed, pb.WebhookReply)),
    "ChangeWebhook": Method(admin.change_webhook, limits.WEBHOOK_BYTES_MAX),
    "DeleteWebhook": Method(_plain(translate.delete_webhook, webhooks.WebhookNamed, pb.DeleteWebhookReply)),
    "PauseWebhook": Method(_plain(translate.pause_webhook, webhooks.WebhookNamed, pb.WebhookReply)),
    "ResumeWebhook": Method(_plain(translate.resume_webhook, webhooks.WebhookNamed, pb.WebhookReply)),
    "RotateWebhook": Method(_plain(translate.rotate_webhook, webhooks.RotateRequest, pb.WebhookReply)),
    "TestWebhook": Method(_plain(translate.test_webhook, webhooks.WebhookNamed, pb.TestWebhookReply)),
    "WebhookAttempts": Method(_plain(translate.webhook_attempts, webhooks.AttemptsQuery, pb.WebhookAttemptsReply)),
    "ListHolds": Method(holds.list_holds),
    "GetHold": Method(holds.get_hold),
    "PutHold": Method(holds.put_hold),
    "DeleteHold": Method(holds.delete_hold),
}
REPLIES: dict[str, Replies] = {"ReadStream": read.read_stream}
STREAMS: dict[str, Stream] = {"PublishStream": publish_stream, "LeaseStream": lease_stream}

assert {*UNARY, *REPLIES, *STREAMS} == set(SERVICE.methods_by_name), "every method of the contract has a function"


def handlers(calls: CallHandlers) -> dict[str, Any]:
    """The handlers of all methods, by name."""
    found: dict[str, Any] = {}
    for name, described in SERVICE.methods_by_name.items():
        kind: type[Message] = getattr(pb, described.input_type.name)
        operation = operation_of(name)
        if name in UNARY:
            found[name] = calls.unary(operation, kind, UNARY[name].handle, UNARY[name].size_max)
        elif name in REPLIES:
            found[name] = calls.replies(operation, kind, REPLIES[name])
        else:
            found[name] = calls.stream(operation, STREAMS[name])
    return found


def operation_of(method: str) -> str:
    """The operation name in metrics, logs and HTTP: `LeaseStream` is `lease_stream`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method).lstrip("_")
