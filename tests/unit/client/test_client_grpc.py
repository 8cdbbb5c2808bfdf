"""The SDK's calls as gRPC has them: nothing forgotten, nothing lost on the way."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from penstock.client.calls import delivery
from penstock.client.calls.call import Call, operation
from penstock.client.calls.delivery import ProducerSeq, publish
from penstock.client.transport.grpc_calls import translated
from penstock.errors import InvalidRequest, MethodNotAllowed
from penstock.ids import parse_queue
from penstock.v1 import broker_pb2 as pb
from penstock.wire.operations import OPERATIONS
from penstock.wire.replies import DeadLettersReply, TransactReply

ORDERS = parse_queue("orders")
BODIES = {
    "transact": {"ack": [], "publish": []},
    "put_schedule": {"queue": "q", "cron": "* * * * *", "message": {"payload": 1}},
    "publish": {},
}
PUBLISH_QUERY = "?queue=orders&producer=p&epoch=1&seq=0"


@pytest.mark.parametrize(
    "described", [each for each in OPERATIONS.values() if each.path.startswith("/v1/")], ids=lambda o: o.name
)
def test_every_operation_is_carried_or_refused_with_the_way_out(described):
    path = described.path.replace("{path}", "a/b/c").replace("{name}", "n").replace("{id}", "i")
    body = BODIES.get(described.name, {}) if described.method != "GET" else None
    target = path + (PUBLISH_QUERY if described.name == "publish" else "")
    content = b"" if body is None else msgspec.json.encode(body)
    call = Call(described.name, described.method, target, lambda _: None, content)
    if not described.grpc:
        with pytest.raises(MethodNotAllowed, match="http://"):
            translated(call)
        return
    rpc = translated(call)
    method = pb.DESCRIPTOR.services_by_name["Broker"].methods_by_name[rpc.name]
    assert rpc.request.DESCRIPTOR is method.input_type and rpc.reply.DESCRIPTOR is method.output_type


def test_payloads_of_a_transaction_arrive_as_they_were_written():
    items = [{"queue": "q", "payload": msgspec.Raw(b'{"a": 1.00}'), "key": "k"}, {"queue": "q", "payload_b64": "/wA="}]
    asked = translated(operation("transact", TransactReply, ack=["r1"], publish=items)).request
    assert (asked.ack, asked.publish[0].json, asked.publish[0].key) == (["r1"], '{"a": 1.00}', "k")
    assert (asked.publish[1].payload, asked.publish[1].WhichOneof("content")) == (b"\xff\x00", "payload")


def test_query_values_are_converted_to_the_type_of_their_field():
    asked = translated(delivery.read(ORDERS, partition=3, offset=7, max=10, wait_ms=500)).request
    assert (asked.partition, asked.offset, asked.max, asked.wait_ms, asked.form) == (3, "7", 10, 500, pb.FRAMES)
    asked = translated(operation("autoscale", dict, queue=ORDERS, target_drain_s=1.5, min_workers=1)).request
    assert (asked.target_drain_s, asked.min_workers, asked.HasField("max_workers")) == (1.5, 1, False)
    asked = translated(publish(ORDERS, b"frame", ProducerSeq("p q", 2, 3))).request
    assert (asked.producer.id, asked.producer.epoch, asked.producer.seq, asked.batch) == ("p q", 2, 3, b"frame")


def test_null_takes_a_setting_back_and_an_empty_list_is_not_nothing():
    asked = translated(operation("patch_queue", dict, queue=ORDERS, body={"ttl_ms": None, "max_retries": 0})).request
    assert (list(asked.reset), asked.config.max_retries, asked.config.HasField("ttl_ms")) == (["ttl_ms"], 0, False)
    change = operation("change_webhook", dict, id="w", body={"retry_delays_ms": []})
    assert translated(change).request.HasField("retry_delays_ms")


@pytest.mark.parametrize("config", [{"nonsense": 1}, {"max_retries": "many"}, {"backoff": 5}, {"backoff": {"x": 1}}])
def test_settings_that_cannot_be_sent_are_refused_before_they_are(config):
    with pytest.raises(InvalidRequest):
        translated(operation("put_queue", dict, queue=ORDERS, body=config))


def test_replies_read_like_those_of_http():
    reply = pb.ExplainReply(queue="q", messages=[pb.ExplainedMessage(id="1", state="scheduled")])
    reply.messages[0].reasons.add().update(
        {"kind": "not_due", "due_at_ms": 5, "share": 0.5, "keys": [1, "a"], "no": None}
    )
    (message,) = json.loads(translated(operation("explain", dict, queue=ORDERS, group="g")).read(reply))["messages"]
    (reason,) = message["reasons"]
    assert reason == {"kind": "not_due", "due_at_ms": 5, "share": 0.5, "keys": [1, "a"], "no": None}
    assert isinstance(reason["due_at_ms"], int) and message["partition"] is None
    letter = pb.DeadLetter(message=pb.Message(id="1", json='{"n": 1}', attempt=2), error="no")
    call = operation("dead_letters", DeadLettersReply, queue=ORDERS)
    (shown,) = json.loads(translated(call).read(pb.DeadLettersReply(messages=[letter])))["messages"]
    assert (shown["id"], shown["payload"], shown["attempt"], shown["error"]) == ("1", {"n": 1}, 2, "no")


@pytest.mark.parametrize(("scheme", "module"), [("grpc", "grpc"), ("ws", "websockets")])
def test_missing_extra_of_a_scheme_names_the_package_to_install(scheme, module):
    program = f"""
import sys
sys.modules[{module!r}] = None
import penstock
try:
    penstock.Client("{scheme}://127.0.0.1:1")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert f"pip install 'penstock[{scheme}]'" in done.stdout


def test_null_inside_an_object_takes_that_field_back():
    change = {"retention": {"mode": "keep", "ms": None}, "ttl_ms": None}
    for name in ("put_queue", "patch_queue"):
        asked = translated(operation(name, dict, queue=ORDERS, body=change, confirm="token")).request
        assert (sorted(asked.reset), asked.confirm) == (["retention.ms", "ttl_ms"], "token")
        assert asked.config.retention.mode == "keep" and not asked.config.retention.HasField("ms")
