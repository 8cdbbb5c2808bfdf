"""The gRPC contract matches the generated code, the HTTP operations and the structs of `wire/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from google.protobuf import descriptor_pb2

from penstock.core.config import Backoff, DeadLetterAlarm, FairShare, QueueConfig, Retention
from penstock.transports.grpc.methods import HTTP_CALL, REPLIES, SERVICE, STREAMS
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc
from penstock.wire import messages, replies
from penstock.wire.operations import OPERATIONS
from penstock.wire.settings import QueueSettings

SOURCE = Path(__file__).parents[4] / "src"
KEYS = {
    "list_keys", "create_key", "rotate_key", "revoke_key", "audit", "verify_audit", "list_users", "add_user",
    "change_user", "remove_user", "session", "login", "logout", "change_password", "create_ticket", "access_limits",
}  # fmt: skip
"""The administration of keys and people is over HTTP, and so are logins and the audit trail."""
ENCRYPTION = {"encryption", "erase", "rotate_encryption_key"}
PROCESS = {
    "health", "readiness", "metrics", "openapi", "asyncapi", "front_page", "connections", "log_levels",
    "set_log_levels", "cluster", "cluster_map",
}  # fmt: skip
"""HTTP operations about the process; gRPC has health and reflection services for that."""
PAGES = {"queue_table", "dead_letter_reasons", "event_stream", "series", "consumers", "resend_webhook", "storage"}
"""HTTP operations that web pages need."""


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


def test_methods_are_the_operations_of_the_contract():
    operations = [operation for operation in OPERATIONS.values() if operation.grpc]
    streams = {f"{operation.grpc_method}Stream" for operation in operations if operation.streams}
    assert set(SERVICE.methods_by_name) == {operation.grpc_method for operation in operations} | streams | {HTTP_CALL}
    assert streams == {*REPLIES, *STREAMS}
    assert {operation.name for operation in OPERATIONS.values() if not operation.grpc} == {
        *PROCESS, *PAGES, *KEYS, *ENCRYPTION,
    }  # fmt: skip


CONTENT = {"payload", "json"}
ONLY_IN_GRPC = {
    "NewMessage": CONTENT,
    "ScheduleMessage": CONTENT,
    "Message": CONTENT,
    "PublishRequest": {"batch"},
    "PublishReply": {"runs", "results"},
    "PublishResult": {"published"},
    "LeaseRequest": {"form"},
    "LeaseReply": {"runs"},
    "ReadRequest": {"form"},
    "ReadReply": {"runs"},
    "PutGroupRequest": {"offsets"},
    "SeekGroupRequest": {"offsets"},
    "PutQueueRequest": {"config", "reset"},
    "PatchQueueRequest": {"config", "reset"},
    "DeadLetter": {"message"},
    "Error": {"retry_after_ms"},
    "RedriveReply": {"status"},
}
"""Fields that JSON has in another form."""
ONLY_IN_JSON = {
    "NewMessage": {"payload", "payload_b64"},
    "ScheduleMessage": {"payload", "payload_b64"},
    "Message": {"payload", "payload_b64", "receipt", "deadline_at_ms"},
    "PublishRequest": {"epoch", "seq"},
    "PutQueueRequest": {field.name for field in msgspec.structs.fields(QueueSettings)},
    "PatchQueueRequest": {field.name for field in msgspec.structs.fields(QueueSettings)},
    "DeadLetter": {field.name for field in msgspec.structs.fields(replies.Message)},
    "RedriveReply": {field.name for field in msgspec.structs.fields(replies.RedriveStatus)} - {"redrive_id", "queue"},
}
WRAPPED = {"HeldOffsets", "RetryDelays", "OffsetRange"}
"""Messages for values that have no name in JSON."""
FURTHER = [
    (pb.LeaseStreamOpen, messages.LeaseRequest, {"form"}, {"wait_ms", "ack"}),
    (pb.ReadStreamRequest, messages.ReadQuery, {"form"}, {"wait_ms", "until", "max_bytes"}),
    (pb.QueueConfig, QueueConfig, set(), set()),
    (pb.QueueConfig, QueueSettings, set(), set()),
    (pb.Backoff, Backoff, set(), set()),
    (pb.Retention, Retention, set(), set()),
    (pb.FairShare, FairShare, set(), set()),
    (pb.DeadLetterAlarm, DeadLetterAlarm, set(), set()),
    (pb.Message, replies.LeasedMessage, CONTENT, {"payload", "payload_b64"}),
    (pb.PublishedRun, replies.PublishedRun, set(), set()),
    (pb.RedriveStatus, replies.RedriveStatus, set(), set()),
    (pb.Error, replies.ErrorBody, {"retry_after_ms"}, set()),
]


@pytest.mark.parametrize(
    ("message", "shape", "only_here", "only_there"), FURTHER, ids=lambda each: getattr(each, "__name__", "")
)
def test_message_has_the_fields_of_its_struct(message, shape, only_here, only_there):
    fields = set(message.DESCRIPTOR.fields_by_name)
    named = {field.name for field in msgspec.structs.fields(shape)}
    assert fields - only_here == named - only_there
    assert only_here <= fields and only_there <= named


@pytest.mark.parametrize("operation", [each for each in OPERATIONS.values() if each.grpc], ids=lambda each: each.name)
def test_method_has_the_fields_of_its_operation(operation):
    """A field that HTTP has must be in gRPC too, and nothing else, in the request, the reply and their parts."""
    method = SERVICE.methods_by_name[operation.grpc_method]
    body = () if operation.body is None else msgspec.structs.fields(operation.body)
    compare(method.input_type, {field.name: field for field in (*msgspec.structs.fields(operation.query), *body)})
    reply = operation.reply or operation.created
    compare(method.output_type, {field.name: field for field in msgspec.structs.fields(reply)})


def compare(described, fields):
    only_here = ONLY_IN_GRPC.get(described.name, set())
    only_there = ONLY_IN_JSON.get(described.name, set())
    there = set(fields) - only_there
    # A field may have one form for each of two operations, as `receipt` of a message that is leased or read.
    here = set(described.fields_by_name) - only_here - only_there
    assert here == there, described.name
    for name in here:
        inner = described.fields_by_name[name].message_type
        for shape in structs_of(fields[name].type):
            if inner is not None and inner.name not in WRAPPED and not inner.GetOptions().map_entry:
                compare(inner, {field.name: field for field in msgspec.structs.fields(shape)})


def structs_of(kind):
    """The struct in an annotation such as `list[Shape] | None`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [shape for argument in get_args(kind) for shape in structs_of(argument)]


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
