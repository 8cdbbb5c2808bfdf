"""Several processes behind one address: metrics, lists and readiness are those of all."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing

from http_server import Server, running
from test_processes import children, has_ended, queues_on_all

TURNS = 6
"""Requests on connections of their own, of which either process may accept any."""


def samples(server: Server, target: str = "/metrics") -> dict[str, float]:
    """The value of each line, by name and labels."""
    answer = server.ask("GET", target)
    assert answer.status == 200, answer.body
    lines = [line.rpartition(" ") for line in answer.body.decode().splitlines() if not line.startswith("#")]
    assert len({name for name, _, _ in lines}) == len(lines), "a sample appears twice"
    return {name: float(value) for name, _, value in lines}


def wait_until_ready(server: Server) -> None:
    """Until all processes are connected to each other."""
    server.wait_until(lambda: samples(server)["penstock_processes_answered"] == 2, timeout=60)
    server.wait_until(lambda: all(server.ask("GET", "/readyz").status == 200 for _ in range(TURNS)), timeout=60)


def test_metrics_of_any_process_are_those_of_all(tmp_path):
    names = queues_on_all(2)
    with running(tmp_path / "data", "--processes", "2") as server:
        wait_until_ready(server)
        for turn in range(TURNS):
            for name in names:
                server.publish(name, turn)
        for name in names:
            assert len(server.lease(name)) == TURNS
        for _ in range(TURNS):
            found = samples(server)
            assert found['penstock_http_requests_total{operation="publish",status="201"}'] == 2 * TURNS
            assert found["penstock_publish_duration_seconds_count"] == 2 * TURNS
            assert found['penstock_publish_duration_seconds_bucket{le="+Inf"}'] == 2 * TURNS
            assert found["penstock_delivery_latency_seconds_count"] == 2 * TURNS
            assert found["penstock_commit_duration_seconds_count"] >= 2
            assert found["penstock_ready"] == 1
            assert (found["penstock_processes"], found["penstock_processes_answered"]) == (2, 2)
            for name in names:
                assert (
                    found[f'penstock_messages_published_total{{namespace="default",queue="default/default/{name}"}}']
                    == TURNS
                )
            memory = [found[f'process_resident_memory_bytes{{process="{number}"}}'] for number in range(2)]
            assert min(memory) > 10_000_000
            assert "process_resident_memory_bytes" not in found
        aliases = samples(server, "/metrics?aliases=true")
        assert aliases["wal_bytes_written_total"] == found["penstock_journal_written_bytes_total"]
        assert server.ask("GET", "/metrics", accept="application/openmetrics-text").body.endswith(b"# EOF\n")


def test_one_process_has_no_metrics_about_processes(tmp_path):
    with running(tmp_path / "data") as server:
        found = samples(server)
        assert found["process_resident_memory_bytes"] > 10_000_000
        assert not [name for name in found if "penstock_processes" in name or "process=" in name]


def test_stopped_process_is_left_out_of_metrics(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server:
        wait_until_ready(server)
        server.publish(queues_on_all(2)[0], 1)
        stopped = children(server)[1]
        connections = [server.connect() for _ in range(8)]
        for connection in connections:  # connections that the running process has accepted still answer
            connection.request("GET", "/v1/connections")
            connection.getresponse().read()
        os.kill(stopped, signal.SIGSTOP)
        try:
            for connection in connections:
                connection.request("GET", "/metrics")
            answered = [answer for each in connections if (answer := _metrics_before_replacement(each)) is not None]
            assert any("penstock_processes_answered 1.0" in text for text in answered), "no scrape was partial"
        finally:
            for connection in connections:
                connection.close()
            if not has_ended(stopped):
                os.kill(stopped, signal.SIGKILL)
        server.wait_until(lambda: stopped not in children(server), timeout=60)
        server.wait_until(lambda: samples(server)["penstock_processes_answered"] == 2, timeout=60)


def _metrics_before_replacement(connection) -> str | None:
    """None: the stopped process has accepted the connection, and ended with it."""
    try:
        return connection.getresponse().read().decode()
    except OSError:
        return None


def test_process_without_a_link_is_not_ready(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server, closing(server.connect()) as connection:
        wait_until_ready(server)
        killed = children(server)[1]
        os.kill(killed, signal.SIGSTOP)
        connection.request("GET", "/healthz")  # the process that runs accepts it
        assert connection.getresponse().read() == b'{"status":"ok"}'

        def readiness() -> tuple[int, dict]:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        os.kill(server.process.pid, signal.SIGSTOP)  # it replaces no process meanwhile
        try:
            os.kill(killed, signal.SIGKILL)
            server.wait_until(lambda: readiness()[0] == 503)
            error = readiness()[1]["error"]
            assert error["code"] == "unavailable"
            assert error["details"]["unreachable"] == [1]
        finally:
            server.process.send_signal(signal.SIGCONT)
        server.wait_until(lambda: readiness()[0] == 200, timeout=60)


def test_connections_and_commits_are_those_of_all(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server:
        wait_until_ready(server)
        opened = [server.connect() for _ in range(12)]
        try:
            for connection in opened:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
            mine = {f"127.0.0.1:{connection.sock.getsockname()[1]}" for connection in opened}
            for _ in range(TURNS):
                reply = server.ask("GET", "/v1/connections").json
                assert mine <= {entry["peer"] for entry in reply["connections"]}
                assert reply["total"] >= len(opened)
            for name in queues_on_all(2):
                server.publish(name, 1)
            server.ask("GET", "/v1/stats/storage")
            for name in queues_on_all(2):
                server.publish(name, 1)
            assert server.ask("GET", "/v1/stats/storage").json["commits_per_s"] > 0
        finally:
            for connection in opened:
                connection.close()


def test_log_levels_change_in_all_processes(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server:
        wait_until_ready(server)
        assert server.ask("PUT", "/v1/logs", {"levels": {"requests": "info"}}).status == 200
        for _ in range(TURNS):
            assert server.ask("GET", "/v1/logs").json["levels"]["requests"] == "info"
