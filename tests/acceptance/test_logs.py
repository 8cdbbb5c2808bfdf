"""Log lines of requests, connections and limits of a running server, and their levels at run time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from http_server import Server, running

SECRET = "do-not-log-9f31"


@pytest.fixture
def server(tmp_path):
    with running(tmp_path / "data", "--log-format", "json") as running_server:
        yield running_server


def lines(server: Server, event: str) -> list[dict]:
    found = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def set_levels(server: Server, **levels: str):
    answer = server.ask("PUT", "/v1/logs", {"levels": levels})
    assert answer.status == 200, answer.body
    return answer.json


def test_requests_are_logged_after_the_category_is_switched_on_and_not_after_it_is_off(server):
    server.publish("orders", 1)
    assert server.ask("GET", "/v1/logs").json["levels"]["requests"] == "warning"
    assert not lines(server, "request")
    set_levels(server, requests="info")
    answer = server.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 1}]}, x_request_id="r-17")
    assert answer.headers["x-request-id"] == "r-17"
    server.ask("GET", "/v1/stats?queue=orders")
    server.ask("GET", "/v1/queues/orders")
    assert server.ask("GET", "/nowhere").headers["x-request-id"]
    server.wait_until(lambda: len(lines(server, "request")) >= 4)
    published, stats, queue, unknown = [
        line for line in lines(server, "request") if line["operation"] != "set_log_levels"
    ][:4]
    assert (published["operation"], published["queue"], published["status"]) == ("publish", "orders", 201)
    assert published["request_id"] == "r-17" and published["duration_ms"] > 0 and published["level"] == "info"
    assert stats["queue"] == queue["queue"] == "orders" and unknown["status"] == 404
    set_levels(server, requests="warning")
    before = len(lines(server, "request"))
    server.publish("orders", 1)
    set_levels(server, series="debug")
    server.wait_until(lambda: len(lines(server, "log_levels_changed")) == 3)
    assert len(lines(server, "request")) == before


def test_lines_have_no_payload_key_header_or_query(server):
    set_levels(server, requests="info", connections="info")
    message = {"payload": {"a": SECRET}, "key": SECRET, "headers": {"h": SECRET}, "id": SECRET}
    server.ask("POST", "/v1/publish", {"queue": "orders", "messages": [message]}, authorization=f"Bearer {SECRET}")
    server.ask("GET", f"/v1/explain?queue=orders&id={SECRET}")
    server.ask("GET", f"/v1/queues?prefix={SECRET}")
    server.ask("POST", "/v1/publish", f"{{{SECRET}".encode())
    server.wait_until(lambda: len(lines(server, "request")) >= 4)
    assert SECRET not in server.log()


def test_lines_above_the_rate_are_counted(server):
    assert (
        server.ask("PUT", "/v1/logs", {"levels": {"requests": "info"}, "requests_per_s": 1}).json["requests_per_s"] == 1
    )
    asked = 0
    while not any("omitted" in line for line in lines(server, "request")):
        server.ask("GET", "/healthz")
        asked += 1
    assert len(lines(server, "request")) < asked


def test_connections_are_logged_from_beginning_to_end(server):
    set_levels(server, connections="info")
    server.ask("GET", "/healthz")
    server.wait_until(lambda: lines(server, "connection_opened") and lines(server, "connection_closed"))
    assert lines(server, "connection_opened")[0]["peer"].startswith("127.0.0.1:")


def test_refusals_for_want_of_room_are_logged(server):
    server.ask("PUT", "/v1/queues/small", {"max_messages": 1})
    server.publish("small", 1)
    assert server.ask("POST", "/v1/publish", {"queue": "small", "messages": [{"payload": SECRET}]}).status == 429
    server.wait_until(lambda: lines(server, "request_limited"))
    (line,) = lines(server, "request_limited")
    assert (line["code"], line["operation"], line["level"]) == ("queue_full", "publish", "warning")
    assert SECRET not in server.log()


@pytest.mark.parametrize(
    "body",
    [{"levels": {"nothing": "info"}}, {"levels": {"requests": "loud"}}, {"requests_per_s": 0}, {"level": "info"}, []],
)
def test_invalid_levels_are_refused_and_change_nothing(server, body):
    before = server.ask("GET", "/v1/logs").json
    answer = server.ask("PUT", "/v1/logs", body)
    assert answer.status == 400 and answer.json["error"]["code"] == "invalid_request"
    assert server.ask("GET", "/v1/logs").json == before


def test_level_of_the_server_applies_to_all_categories(tmp_path):
    with running(tmp_path / "data", "--log-level", "error") as server:
        assert set(server.ask("GET", "/v1/logs").json["levels"].values()) == {"error"}


def test_levels_from_the_command_line(server):
    def run(*arguments: str):
        command = [sys.executable, "-m", "penstock", "logs", *arguments, "--url", server.url, "-o", "json"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert json.loads(run("set", "requests=info", "--per-s", "7").stdout)["requests_per_s"] == 7
    assert json.loads(run().stdout)["levels"]["requests"] == "info"
    refused = run("set", "requests")
    assert refused.returncode == 2 and "CATEGORY=LEVEL" in refused.stderr
