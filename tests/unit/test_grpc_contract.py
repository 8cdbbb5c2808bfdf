"""The gRPC contract matches the generated code, the HTTP operations and the structs of `wire/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from google.protobuf import descriptor_pb2

from penstock.core.config import Backoff, DeadLetterAlarm, FairShare, QueueConfig, Retention
from penstock.transports.grpc.methods import SERVICE, operation_of
from penstock.transports.http.routes import OPERATIONS
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc
from penstock.wire import analytics, diagnostics, events, groups, holds, messages, readers, replies, schedules, webhooks

SOURCE = Path(__file__).parents[2] / "src"
STREAMS = {"publish_stream", "lease_stream", "read_stream"}
PROCESS = {"health", "readiness", "metrics", "openapi", "front_page"}
"""HTTP operations about the process; gRPC has health and reflection services for that."""


def test_generated_code_is_up_to_date(tmp_path):
    """If this fails: `make proto`."""
    pytest.importorskip("grpc_tools")
    out = tmp_path / "described"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}", f"--descriptor_set_out={out}"]
    subprocess.run([*command, str(SOURCE / "penstock/v1/broker.proto")], check=True, timeout=60)
    (now,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    generated = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(generated)
    for described in (now, generated):
        strip_json_names(described)
    assert generated == now
    calls = {name for name in vars(broker_pb2_grpc.BrokerServicer) if not name.startswith("_")}
    assert calls == set(SERVICE.methods_by_name)


def strip_json_names(described):
    """JSON names are derived from the field names; not every generator writes them."""
    for message in getattr(described, "message_type", None) or getattr(described, "nested_type", ()):
        for field in message.field:
            field.ClearField("json_name")
        strip_json_names(message)


def test_every_http_operation_is_a_method():
    calls = {operation_of(name) for name in SERVICE.methods_by_name}
    operations = {operation.name for operation in OPERATIONS if operation.path.startswith("/v1/")}
    # Other doors may have more; these two have the same.
    assert calls - STREAMS <= operations
    assert operations - calls - PROCESS == set()


FORM = {"form"}
CONTENT = {"payload", "json"}
SHAPES = [
    (pb.LeaseRequest, messages.LeaseRequest, FORM, set()),
    (pb.LeaseStreamOpen, messages.LeaseRequest, FORM, {"wait_ms", "ack"}),
    (pb.NackRequest, messages.NackRequest, set(), set()),
    (pb.RejectRequest, messages.RejectRequest, set(), set()),
    (pb.ExtendRequest, messages.ExtendRequest, set(), set()),
    (pb.AckRequest, messages.AckRequest, set(), set()),
    (pb.NewMessage, messages.PublishMessage, CONTENT, {"payload", "payload_b64"}),
    (pb.Producer, messages.Producer, set(), set()),
    (pb.TransactRequest, messages.TransactRequest, set(), set()),
    (pb.CancelRequest, messages.CancelRequest, set(), set()),
    (pb.RescheduleRequest, messages.RescheduleRequest, set(), set()),
    (pb.JoinGroupRequest, messages.JoinRequest, set(), set()),
    (pb.HeartbeatRequest, messages.HeartbeatRequest, set(), set()),
    (pb.LeaveGroupRequest, messages.LeaveRequest, set(), set()),
    (pb.ReadRequest, messages.ReadQuery, FORM, set()),
    (pb.ReadStreamRequest, messages.ReadQuery, FORM, {"wait_ms", "until", "max_bytes"}),
    (pb.KeepOffsetsRequest, readers.KeepOffsetsRequest, set(), set()),
    (pb.OffsetsRequest, readers.OffsetsQuery, set(), set()),
    (pb.PeekRequest, messages.PeekQuery, set(), set()),
    (pb.ExplainRequest, messages.ExplainQuery, set(), set()),
    (pb.HistoryRequest, messages.HistoryQuery, set(), set()),
    (pb.AutoscaleRequest, messages.AutoscaleQuery, set(), set()),
    (pb.ListQueuesRequest, messages.QueuesQuery, set(), set()),
    (pb.DeadLettersRequest, messages.DeadLettersQuery, set(), set()),
    (pb.RedriveRequest, messages.RedriveRequest, set(), set()),
    (pb.RedrivesRequest, messages.RedrivesQuery, set(), set()),
    (pb.StopRedriveRequest, messages.StopRedriveRequest, set(), set()),
    (pb.DeleteDeadLettersRequest, messages.DeleteDeadLettersRequest, {"confirm"}, set()),
    (pb.ListSchedulesRequest, schedules.SchedulesQuery, set(), set()),
    (pb.PutScheduleRequest, schedules.ScheduleRequest, {"name"}, set()),
    (pb.ScheduleMessage, schedules.ScheduleMessage, CONTENT, {"payload", "payload_b64"}),
    (pb.QueueConfig, QueueConfig, set(), set()),
    (pb.Backoff, Backoff, set(), set()),
    (pb.Retention, Retention, set(), set()),
    (pb.FairShare, FairShare, set(), set()),
    (pb.DeadLetterAlarm, DeadLetterAlarm, set(), set()),
    (pb.Settled, replies.Settled, set(), set()),
    (pb.Message, replies.LeasedMessage, CONTENT, {"payload", "payload_b64"}),
    (pb.PublishedMessage, replies.PublishedMessage, set(), set()),
    (pb.PublishedRun, replies.PublishedRun, set(), set()),
    (pb.TransactReply, replies.TransactReply, set(), set()),
    (pb.ShareReply, replies.ShareReply, set(), set()),
    (pb.CancelReply, replies.CancelReply, set(), set()),
    (pb.OffsetsReply, readers.OffsetsReply, set(), set()),
    (pb.ExplainReply, diagnostics.ExplainReply, set(), set()),
    (pb.ExplainedMessage, diagnostics.ExplainedMessage, set(), set()),
    (pb.HistoryReply, diagnostics.HistoryReply, set(), set()),
    (pb.HistoryEvent, diagnostics.HistoryEvent, set(), set()),
    (pb.AutoscaleReply, diagnostics.AutoscaleReply, set(), set()),
    (pb.AnalyticsQueuesRequest, analytics.AnalyticsQueuesQuery, set(), set()),
    (pb.AnalyticsQueueRequest, analytics.AnalyticsQueueQuery, set(), set()),
    (pb.AnalyticsNamespaceRequest, analytics.AnalyticsNamespaceQuery, set(), set()),
    (pb.AnalyticsTaskRequest, analytics.AnalyticsTaskQuery, set(), set()),
    (pb.AnalyticsSeriesRequest, analytics.AnalyticsSeriesQuery, set(), set()),
    (pb.AnalyticsTiming, analytics.Timing, set(), set()),
    (pb.AnalyticsCounts, analytics.Counts, set(), set()),
    (pb.AnalyticsPoint, analytics.AnalyticsPoint, set(), set()),
    (pb.AnalyticsGroup, analytics.AnalyticsGroup, set(), set()),
    (pb.AnalyticsConsumer, analytics.AnalyticsConsumer, set(), set()),
    (pb.AnalyticsFailure, analytics.AnalyticsFailure, set(), set()),
    (pb.AnalyticsNow, analytics.AnalyticsNow, set(), set()),
    (pb.AnalyticsQueue, analytics.AnalyticsQueue, set(), set()),
    (pb.AnalyticsQueuesReply, analytics.AnalyticsQueuesReply, set(), set()),
    (pb.AnalyticsReply, analytics.AnalyticsReply, set(), set()),
    (pb.AnalyticsDepthsReply, analytics.DepthsReply, set(), set()),
    (pb.AnalyticsDepthPoint, analytics.DepthPoint, set(), set()),
    (pb.AnalyticsThroughputReply, analytics.ThroughputReply, set(), set()),
    (pb.AnalyticsThroughputPoint, analytics.ThroughputPoint, set(), set()),
    (pb.AnalyticsLatencyReply, analytics.LatencyReply, set(), set()),
    (pb.AnalyticsLatencyPoint, analytics.LatencyPoint, set(), set()),
    (pb.RedriveStatus, replies.RedriveStatus, set(), set()),
    (pb.PutGroupRequest, groups.PutGroupRequest, {"offsets"}, set()),
    (pb.PutGroupReply, groups.PutGroupReply, set(), set()),
    (pb.SeekGroupRequest, groups.SeekGroupRequest, {"offsets"}, set()),
    (pb.SeekGroupReply, groups.SeekGroupReply, set(), set()),
    (pb.PartitionSeek, groups.PartitionSeek, set(), set()),
    (pb.DeleteGroupRequest, groups.DeleteGroupQuery, set(), set()),
    (pb.DeleteGroupReply, groups.DeleteGroupReply, set(), set()),
    (pb.MemberEntry, groups.MemberEntry, set(), set()),
    (pb.GroupPartition, groups.GroupPartition, set(), set()),
    (pb.GroupEntry, groups.GroupEntry, set(), set()),
    (pb.Holder, diagnostics.Holder, set(), set()),
    (pb.ScheduleReply, schedules.ScheduleReply, set(), set()),
    (pb.ScheduleError, schedules.ScheduleError, set(), set()),
    (pb.DestroyedReply, replies.DestroyedReply, set(), set()),
    (pb.CreateWebhookRequest, webhooks.WebhookRequest, set(), set()),
    (pb.ChangeWebhookRequest, webhooks.WebhookChanges, {"id"}, set()),
    (pb.RotateWebhookRequest, webhooks.RotateRequest, set(), set()),
    (pb.WebhookAttempt, webhooks.Attempt, set(), set()),
    (pb.DeliveryStatus, webhooks.DeliveryStatus, set(), set()),
    (pb.WebhookReply, webhooks.WebhookReply, set(), set()),
    (pb.TestWebhookReply, webhooks.TestReply, set(), set()),
    (pb.ListWebhooksRequest, webhooks.WebhooksQuery, set(), set()),
    (pb.WebhookAttemptsRequest, webhooks.AttemptsQuery, set(), set()),
    (pb.ExtentRequest, messages.ExtentQuery, set(), set()),
    (pb.ExtentReply, holds.ExtentReply, set(), set()),
    (pb.PartitionExtent, holds.PartitionExtent, set(), set()),
    (pb.EventsRequest, events.EventsQuery, set(), set()),
    (pb.Event, events.Event, set(), set()),
    (pb.EventsReply, events.EventsReply, set(), set()),
    (pb.MissingFrames, events.Missing, set(), set()),
    (pb.EventRangesRequest, events.EventRangesQuery, set(), set()),
    (pb.EventRange, events.EventRange, set(), set()),
    (pb.EventRangesReply, events.EventRangesReply, set(), set()),
    (pb.PutHoldRequest, holds.HoldRequest, {"name"}, set()),
    (pb.HoldReply, holds.HoldReply, set(), set()),
    (pb.Error, replies.ErrorBody, {"retry_after_ms"}, set()),
]


@pytest.mark.parametrize(
    ("message", "shape", "only_here", "only_there"), SHAPES, ids=lambda each: getattr(each, "__name__", "")
)
def test_message_has_the_fields_of_its_struct(message, shape, only_here, only_there):
    """A field that HTTP has must be in gRPC too."""
    fields = set(message.DESCRIPTOR.fields_by_name)
    named = {field.name for field in msgspec.structs.fields(shape)}
    assert fields - only_here == named - only_there
    assert only_here <= fields and only_there <= named


def test_contract_has_no_unused_messages():
    """Every message is a request, a reply, or part of one."""
    reached: set[str] = set()

    def walk(described):
        if described.name not in reached:
            reached.add(described.name)
            for field in described.fields:
                if field.message_type is not None:
                    walk(field.message_type)

    for method in SERVICE.methods:
        walk(method.input_type)
        walk(method.output_type)
    assert set(pb.DESCRIPTOR.message_types_by_name) <= reached
