"""`/v1/cluster`, `/v1/cluster/map` and `penstock cluster status`, of one process and of several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing

from http_server import Server, running
from test_processes import children
from test_processes_surface import wait_until_ready


def status(server: Server, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "cluster", "status", "--url", server.url, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_one_process_is_one_node(tmp_path):
    for start in (1, 2):
        with running(tmp_path / "data") as server:
            shown = server.ask("GET", "/v1/cluster").json
            address = {"http": server.url, "grpc": f"grpc://{server.grpc}"}
            assert shown == {
                "cluster": "default", "engine": "local", "durability": "disk",
                "nodes": [{"id": "0", "name": "process 0", **address, "state": "up", "shards": [0]}],
                "shards": [{"number": 0, "owner": "0", "term": start, "state": "open"}],
            }  # fmt: skip
            assert server.terminate() == 0
    with running(tmp_path / "other", "--store", "memory:") as server:
        shown = server.ask("GET", "/v1/cluster").json
        assert (shown["engine"], shown["durability"]) == ("memory", "memory")


def test_processes_are_nodes_and_the_map_names_owners(tmp_path):
    with running(tmp_path / "data", "--processes", "2", "--shards", "4") as server:
        wait_until_ready(server)
        views = [server.ask("GET", "/v1/cluster").json for _ in range(6)]
        assert all(view == views[0] for view in views), "either process answers alike"
        assert [(node["id"], node["state"], node["shards"]) for node in views[0]["nodes"]] == [
            ("0", "up", [0, 2]), ("1", "up", [1, 3]),
        ]  # fmt: skip
        assert {node["http"] for node in views[0]["nodes"]} == {server.url}
        assert [(each["number"], each["owner"], each["state"]) for each in views[0]["shards"]] == [
            (shard, str(shard % 2), "open") for shard in range(4)
        ]
        (found, *others) = [server.ask("GET", "/v1/cluster/map").json for _ in range(6)]
        assert all(each == found for each in others)
        assert (found["shards"], found["hash"], found["owners"]) == (4, "rdv1", ["0", "1", "0", "1"])
        assert [node["id"] for node in found["nodes"]] == ["0", "1"]
        printed = status(server)
        assert printed.returncode == 0, printed.stderr
        assert "process 1" in printed.stdout
        assert json.loads(status(server, "--output", "json").stdout) == views[0]


def test_process_that_is_away_is_named(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server, closing(server.connect()) as connection:
        wait_until_ready(server)
        before = server.ask("GET", "/v1/cluster").json["shards"]
        killed = children(server)[1]
        os.kill(killed, signal.SIGSTOP)
        connection.request("GET", "/healthz")  # the process that runs accepts it
        connection.getresponse().read()

        def look() -> dict:
            connection.request("GET", "/v1/cluster")
            return json.loads(connection.getresponse().read())

        os.kill(server.process.pid, signal.SIGSTOP)  # it replaces no process meanwhile
        try:
            os.kill(killed, signal.SIGKILL)
            server.wait_until(lambda: look()["nodes"][1]["state"] == "unreachable")
            assert look()["shards"][1] == {"number": 1, "owner": "1", "term": None, "state": "unreachable"}
            assert look()["shards"][0] == before[0]
            assert status(server).returncode == 1
        finally:
            server.process.send_signal(signal.SIGCONT)
        server.wait_until(lambda: look()["nodes"][1]["state"] == "up", timeout=60)
        assert look()["shards"][1]["term"] == before[1]["term"] + 1
