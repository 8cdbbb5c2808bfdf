"""Consumers, latencies, storage and metrics of a running server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from dashboard_seed import fill
from http_server import Server, running

ROOT = Path(__file__).resolve().parents[2]
with_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool; on Debian: apt-get install prometheus"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("monitoring") / "data") as running_server:
        fill(running_server)
        yield running_server


def metric(server: Server, name: str) -> float:
    text = server.ask("GET", "/metrics").body.decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


def work(server: Server, queue: str) -> dict:
    answer = server.ask("GET", f"/v1/stats/consumers?queue={queue}")
    assert answer.status == 200, answer.body
    return answer.json


def test_consumers_that_hold_leases_are_listed_until_they_settle(server):
    server.publish("held", *range(10))
    first = server.lease("held", max=6, consumer="worker-1")
    server.lease("held", max=3, consumer="worker-2", group="audit")
    server.lease("held", max=1, group="audit")
    found = work(server, "held")
    assert found["total"] == 3
    assert [(each["consumer"], each["group"], each["messages"]) for each in found["consumers"]] == [
        ("worker-1", "default", 6), ("worker-2", "audit", 3), (None, "audit", 1),
    ]  # fmt: skip
    server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in first[:4]]})
    assert work(server, "held")["consumers"][0]["messages"] == 3
    server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in first[4:]]})
    assert [each["consumer"] for each in work(server, "held")["consumers"]] == ["worker-2", None]
    assert server.ask("GET", "/v1/stats/consumers?queue=nowhere").status == 404
    assert server.ask("GET", "/v1/stats/consumers?queue=held&limit=0").status == 400


def test_percentiles_of_a_queue_without_a_lake(server):
    assert work(server, "email/reminders")["latency"] == {"delivery": None, "ack": None}
    latency = work(server, "shop/orders")["latency"]
    for kind in ("delivery", "ack"):
        assert 0 <= latency[kind]["p50_ms"] <= latency[kind]["p95_ms"] <= latency[kind]["p99_ms"]


def test_redelivered_messages_have_no_delivery_latency(server):
    server.publish("again", 1)
    before = metric(server, "penstock_delivery_latency_seconds_count")
    (leased,) = server.lease("again")
    server.ask("POST", "/v1/nack", {"receipts": [leased["receipt"]], "delay_ms": 0})
    assert server.lease("again")[0]["attempt"] == 2
    assert metric(server, "penstock_delivery_latency_seconds_count") == before + 1


def test_storage_of_a_data_directory(server, tmp_path):
    stored = server.ask("GET", "/v1/stats/storage").json
    assert stored["store"] == "local:" and stored["fsync"] == "always"
    assert stored["journal_bytes"] > 0 and 0 < stored["disk_free_bytes"] < stored["disk_total_bytes"]
    assert stored["commit_p50_ms"] is not None and stored["commit_p50_ms"] <= stored["commit_p99_ms"]
    with running(tmp_path / "data", "--store", "memory:") as other:
        assert other.ask("GET", "/v1/stats/storage").json["disk_free_bytes"] is None


@with_promtool
def test_promtool_finds_no_problem_in_the_metrics(server):
    text = server.ask("GET", "/metrics").body
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stdout and not checked.stderr


@with_promtool
def test_promtool_finds_no_problem_in_the_rules():
    checked = subprocess.run(
        ["promtool", "check", "rules", ROOT / "deploy/prometheus/alerts.yaml"], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
