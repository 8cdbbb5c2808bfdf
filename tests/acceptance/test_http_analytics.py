"""The past over HTTP and gRPC: from a lake, with the present beside it; and what is said where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from http_server import Server, running

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerStub
from tests.unit.analytics_lake import MINUTE_MS, NOON_MS, make_lake

SPAN = f"from_ms={NOON_MS}&to_ms={NOON_MS + 12 * MINUTE_MS}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("analytics")
    with running(home / "data", "--lake", make_lake(home / "lake")) as started:
        started.publish("shop/orders/new", 1, 2, 3)
        yield started


def test_queue_analytics_have_history_and_present(server):
    answer = server.ask("GET", f"/v1/analytics/queue?queue=shop/orders/new&{SPAN}&step_ms=60000")
    assert answer.status == 200, answer.body
    found = answer.json
    assert (found["counts"]["published"], found["depth"], found["dead"]) == (100, 26, 5)
    assert len(found["points"]) == 12
    assert found["points"][0]["wait"] == {"count": 60, "p50_ms": 30, "p95_ms": 57, "p99_ms": 60, "max_ms": 60}
    assert found["now"][0] == found["now"][0] | {"queue": "shop/orders/new", "depth": 3, "ready": 3}
    assert found["consumers"][0]["consumer"] == "ada"
    assert found["failures"][0]["pattern"] == "order <number> is broken"
    assert found["analysed_until_ms"] == NOON_MS + 10 * MINUTE_MS


def test_queues_namespaces_and_tasks(server):
    found = server.ask("GET", f"/v1/analytics/queues?prefix=shop&limit=1&page=2&{SPAN}").json
    assert (found["total"], [queue["queue"] for queue in found["queues"]]) == (2, ["shop/orders/new"])
    assert found["queues"][0]["now"]["depth"] == 3
    assert server.ask("GET", f"/v1/analytics/namespace?namespace=shop&{SPAN}").json["counts"]["published"] == 107
    task = server.ask("GET", f"/v1/analytics/task?namespace=shop&task=mail&{SPAN}").json
    assert task["counts"]["published"] == 7
    assert task["now"] == []


def test_depth_throughput_and_latency_series(server):
    depths = server.ask("GET", f"/v1/analytics/depths?queue=shop/orders/new&{SPAN}&step_ms=60000").json["points"]
    assert [point["depth"] for point in depths][:4] == [45, 45, 45, 30]
    everything = server.ask("GET", f"/v1/analytics/throughput?{SPAN}&step_ms=600000").json
    assert everything["points"][0]["published_per_s"] == 107 / 600
    latency = server.ask("GET", f"/v1/analytics/latency?queue=shop/orders/new&{SPAN}&step_ms=600000").json
    assert latency["points"][0]["wait"]["count"] == 62


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("queue?queue=nobody", 404, "there is no queue default/default/nobody"),
        ("queue", 400, "queue"),
        ("queue?queue=shop/orders/new&from_ms=120000&to_ms=60000", 400, "is not before to_ms"),
        ("queue?queue=shop/orders/new&from_ms=0&step_ms=60000", 400, "is the limit"),
        ("queue?queue=shop/orders/new&step_ms=1", 400, "step_ms"),
        ("depths?colour=red", 400, "colour"),
    ],
)
def test_invalid_time_span_is_refused(server, target, status, words):
    answer = server.ask("GET", f"/v1/analytics/{target}")
    assert answer.status == status, answer.body
    assert words in answer.json["error"]["message"]


def test_analytics_over_grpc(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = BrokerStub(channel)
        asked = pb.AnalyticsQueueRequest(queue="shop/orders/new", from_ms=NOON_MS, to_ms=NOON_MS + 12 * MINUTE_MS)
        found = stub.AnalyticsQueue(asked, timeout=10)
        assert (found.counts.published, found.depth, found.now[0].depth) == (100, 26, 3)
        assert not found.points[1].wait.HasField("p50_ms")
        with pytest.raises(grpc.RpcError) as refused:
            stub.AnalyticsQueue(pb.AnalyticsQueueRequest(queue="nobody"), timeout=10)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_broker_without_a_lake_answers_404(tmp_path):
    with running(tmp_path / "data") as server:
        answer = server.ask("GET", "/v1/analytics/queues")
        assert answer.status == 404
        assert "penstock serve --lake DIR" in answer.json["error"]["message"]


def test_lake_becomes_readable_with_the_first_batch(tmp_path):
    lake: Path = tmp_path / "lake"
    with running(tmp_path / "data", "--lake", str(lake)) as server:
        answer = server.ask("GET", "/v1/analytics/queues")
        assert answer.status == 409
        assert "penstock pipeline analyze" in answer.json["error"]["message"]
        make_lake(lake)
        assert server.ask("GET", f"/v1/analytics/queues?{SPAN}").json["total"] == 2
