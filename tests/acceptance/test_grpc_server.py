"""gRPC of a running `penstock serve`, with clients in other processes and blocking clients in this one."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from http_server import Server, running

from penstock.batch import build
from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerStub

DOCUMENT = (Path(__file__).parent.parent.parent / "docs/grpc.md").read_text()
SHOWN_ADDRESS = "127.0.0.1:7401"
WITHIN_S = 30


@pytest.fixture
def server(tmp_path):
    with running(tmp_path / "data") as server:
        yield server


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


def program(title: str) -> str:
    found = re.search(rf"^## {title}\n(?:(?!^## ).)*?^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found and SHOWN_ADDRESS in found[1]
    return found[1]


def run_program(text: str, server: Server) -> list[str]:
    text = text.replace(SHOWN_ADDRESS, server.grpc)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# -- what the documentation shows -------------------------------------------------------------------------------------


def test_documented_example(server):
    text = program("Twelve lines")
    assert len(text.splitlines()) <= 13
    assert run_program(text, server) == ['1 {"order": 1}', "1 b'any bytes'"]
    assert server.ask("GET", "/v1/stats?queue=orders").json["depth"] == 0


def test_documented_stream_example(server):
    server.publish("orders", {"n": 1}, {"n": 2})
    assert run_program(program("Consume on a stream"), server) == ['{"n": 1}', '{"n": 2}']
    assert server.ask("GET", "/v1/stats?queue=orders").json["depth"] == 0


def test_documented_error_example(server, channel):
    names: dict = {}
    exec(re.search(r"^## Errors\n.*?^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)[1], names)
    with pytest.raises(grpc.RpcError) as caught:
        BrokerStub(channel).Stats(pb.StatsRequest(queue="none"))
    reason = names["reason"](caught.value)
    assert (reason.code, reason.retryable, reason.details["queue"]) == (
        "queue_not_found",
        False,
        "default/default/none",
    )


# -- one broker, two doors ------------------------------------------------------------------------------------------


def test_http_and_grpc_share_queues(server, channel):
    broker = BrokerStub(channel)
    reply = broker.Publish(pb.PublishRequest(queue="orders", messages=[pb.NewMessage(json='{"n":  1}')]))
    assert reply.durable
    (message,) = server.lease("orders")
    assert (message["id"], message["payload"]) == (reply.messages[0].id, {"n": 1})
    (settled,) = broker.Ack(pb.AckRequest(receipts=[message["receipt"]])).results
    assert settled.status == "acked"
    metrics = server.ask("GET", "/metrics").body.decode()
    assert 'penstock_grpc_calls_total{operation="publish",status="OK"} 1.0' in metrics
    assert 'penstock_connections{transport="grpc"} 1.0' in metrics


def test_webhooks_over_http_and_grpc(server, channel):
    broker = BrokerStub(channel)
    url = "https://example.com/hooks"
    created = broker.CreateWebhook(
        pb.CreateWebhookRequest(queue="orders", url=url, paused=True, retry_delays_ms=pb.RetryDelays())
    )
    assert created.secret and created.state == "paused" and list(created.retry_delays_ms) == []
    shown = server.ask("GET", f"/v1/webhooks/{created.id}").json
    assert (shown["url"], shown["retry_delays_ms"], shown["queue"]) == (url, [], created.queue)
    named = pb.WebhookIdRequest(id=created.id)
    got = broker.GetWebhook(named)
    assert not got.HasField("secret")
    assert {name: getattr(got, name) for name in ("group", "format", "timeout_ms", "concurrency", "secrets")} == {
        name: shown[name] for name in ("group", "format", "timeout_ms", "concurrency", "secrets")
    }
    delays = pb.RetryDelays(ms=[5, 6])
    changed = broker.ChangeWebhook(pb.ChangeWebhookRequest(id=created.id, concurrency=2, retry_delays_ms=delays))
    assert (changed.concurrency, list(changed.retry_delays_ms), changed.url) == (2, [5, 6], url)
    assert broker.RotateWebhook(pb.RotateWebhookRequest(id=created.id)).secret not in ("", created.secret)
    assert [each.id for each in broker.ListWebhooks(pb.ListWebhooksRequest(queue="orders")).webhooks] == [created.id]
    assert len(broker.WebhookAttempts(pb.WebhookAttemptsRequest(id=created.id)).attempts) == 0
    assert broker.PauseWebhook(named).state == "paused"
    for refused in ("http://example.com/", "https://127.0.0.1/"):
        with pytest.raises(grpc.RpcError) as caught:
            broker.CreateWebhook(pb.CreateWebhookRequest(queue="orders", url=refused))
        answer = server.ask("POST", "/v1/webhooks", {"queue": "orders", "url": refused})
        assert answer.json["error"]["message"] == caught.value.details()
    assert broker.DeleteWebhook(named).deleted
    with pytest.raises(grpc.RpcError) as caught:
        broker.TestWebhook(named)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_grpc_can_be_disabled(tmp_path):
    with running(tmp_path / "data", "--grpc", "off") as server:
        assert server.grpc == "-"
        assert server.ask("GET", "/readyz").status == 200
        assert server.terminate() == 0


def test_stream_publishes_survive_a_crash(tmp_path):
    with running(tmp_path / "data") as server, grpc.insecure_channel(server.grpc) as channel:
        requests = [
            pb.PublishStreamRequest(publish=pb.PublishRequest(queue="orders", batch=build([b"%d" % number] * 10)))
            for number in range(20)
        ]
        replies = list(BrokerStub(channel).PublishStream(iter(requests)))
        assert all(reply.published.durable for reply in replies) and len(replies) == 20
        server.kill()
    with running(tmp_path / "data") as server:
        assert server.ask("GET", "/v1/stats?queue=orders").json["depth"] == 200


CONSUMER = """
import sys, grpc
from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerStub
import threading
def requests():
    yield pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders", lease_ms=3_600_000), credits=10)
    threading.Event().wait()
stream = BrokerStub(grpc.insecure_channel(sys.argv[1])).LeaseStream(requests())
print(*[message.attempt for message in next(stream).messages], flush=True)
threading.Event().wait()
"""


def test_messages_of_killed_consumers_are_retried_until_dead_lettered(server):
    backoff = {"kind": "none"}
    assert server.ask("PUT", "/v1/queues/orders", {"max_retries": 2, "backoff": backoff}).status in (200, 201)
    server.publish("orders", 1, 2, 3)
    for attempts in ("1 1 1", "2 2 2", "3 3 3"):
        server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=orders").json["ready"] == 3)
        consumer = subprocess.Popen([sys.executable, "-c", CONSUMER, server.grpc], stdout=subprocess.PIPE, text=True)
        try:
            assert consumer.stdout is not None and consumer.stdout.readline() == f"{attempts}\n"
            assert server.ask("GET", "/v1/stats?queue=orders").json["leased"] == 3
        finally:
            consumer.kill()
            consumer.wait(WITHIN_S)
            consumer.stdout.close()
    server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=orders").json["dead"] == 3)


# -- the end --------------------------------------------------------------------------------------------------------


def test_invalid_bytes_on_the_port_are_ignored(tmp_path):
    with running(tmp_path / "data") as server:
        host, _, port = server.grpc.rpartition(":")
        for rubbish in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
            b"\x16\x03\x01",
            b"",
        ):
            with socket.create_connection((host, int(port)), timeout=WITHIN_S) as raw:
                raw.sendall(rubbish)
                raw.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    while raw.recv(1_000):
                        pass
        with grpc.insecure_channel(server.grpc) as channel:
            broker = BrokerStub(channel)
            broker.Publish(pb.PublishRequest(queue="orders", messages=[pb.NewMessage(json="1")]))
            for call in (
                lambda: broker.Publish(pb.PublishRequest(queue="orders", batch=bytes(30 << 20))),
                lambda: broker.Stats(pb.StatsRequest(queue="orders"), metadata=[("padding", "x" * 40_000)]),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    call()
                assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert broker.Stats(pb.StatsRequest(queue="orders")).ready == 1
        assert server.terminate() == 0
        events = [json.loads(line) for line in server.log().splitlines()]
        assert [event["event"] for event in events] == ["store_opened", "drain_started", "server_stopped"]


def test_drain_with_open_streams_ends_in_time(tmp_path):
    with (
        running(tmp_path / "data", "--shutdown-grace-s", "3600") as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        broker, health = BrokerStub(channel), health_pb2_grpc.HealthStub(channel)
        server.publish("orders", 1, 2)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="penstock.v1.Broker"))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        stopping = threading.Event()
        acks: list[str] = []

        def requests():
            yield pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), credits=2)
            stopping.wait(WITHIN_S)
            yield pb.LeaseStreamRequest(number=1, ack=pb.AckRequest(receipts=acks))

        stream = broker.LeaseStream(requests())
        acks.append(next(stream).messages[0].receipt)
        long_poll = broker.Lease.future(pb.LeaseRequest(queue="orders", wait_ms=60_000))
        server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 1)
        server.process.terminate()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(stream).draining
        stopping.set()
        assert [result.status for result in next(stream).settled[0].results] == ["acked"]
        assert list(stream) == [], "the client closed the stream, so it ends with OK"
        assert not long_poll.result(WITHIN_S).messages
        assert server.wait() == 0
        assert "Traceback" not in server.log()
    with running(tmp_path / "data") as server:
        assert [message["payload"] for message in server.lease("orders")] == [2]


def test_drain_loses_no_confirmed_publish(tmp_path):
    """A publisher continues until it is refused; every confirmed message is stored."""
    confirmed = 0
    with running(tmp_path / "data") as server, grpc.insecure_channel(server.grpc) as channel:
        broker = BrokerStub(channel)

        def publish():
            nonlocal confirmed
            while True:
                try:
                    broker.Publish(pb.PublishRequest(queue="orders", batch=build([b"1"])))
                except grpc.RpcError as error:
                    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error
                    return
                confirmed += 1

        publisher = threading.Thread(target=publish)
        publisher.start()
        server.wait_until(lambda: confirmed > 20)
        assert server.terminate() == 0
        publisher.join(WITHIN_S)
    with running(tmp_path / "data") as server:
        assert server.ask("GET", "/v1/stats?queue=orders").json["depth"] in (confirmed, confirmed + 1)
