"""`penstock serve --processes N`: several processes divide the shards of a store, and one that ends is replaced."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from history import Restarted, Terms, check
from http_server import Server, running
from load import Producer, Scene, cast, now_ms
from test_kill9 import BACKOFF, CONFIGS, ask_for_everything, drain

from penstock.ids import parse_queue
from penstock.placement import home_of

QUEUES = {"orders": Terms(("billing", "audit"), max_retries=100), "jobs": Terms(("workers", "audit"), max_retries=3)}


def children(server: Server) -> list[int]:
    """The processes that serve."""
    listed = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]


def shards_of(pid: int) -> set[int]:
    """The shards that a process serves: it has their locks open."""
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return {int(link.rpartition("-")[2]) for link in links if re.search(r"/lock-\d+$", link)}


def queues_on_all(shards: int) -> list[str]:
    """For each shard the name of a queue that lives on it."""
    names = [f"q{number}" for number in range(200)]
    return [next(name for name in names if home_of(parse_queue(name), shards) == shard) for shard in range(shards)]


def has_ended(pid: int) -> bool:
    """True if the process is gone, or a zombie whose parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def refusal(data_dir: Path, *flags: str) -> str:
    command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off"]
    ended = subprocess.run(
        [*command, "--data-dir", str(data_dir), *flags], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 78, ended.stderr
    return ended.stderr


def test_any_process_answers_for_all_shards(tmp_path):
    names = queues_on_all(4)
    with running(tmp_path / "data", "--processes", "2", "--shards", "4") as server:
        assert len(children(server)) == 2
        for turn in range(5):  # each request has a connection of its own, and either process may accept it
            for name in names:
                server.publish(name, turn)
            assert server.ask("GET", "/v1/queues").json["total"] == 4
            assert server.ask("GET", "/v1/stats/summary").json["depth"] == 4 * (turn + 1)
        for _ in range(3):
            assert [len(server.lease(name, max=1)) for name in names] == [1] * 4
        assert server.ask("GET", "/v1/stats/summary").json["leased"] == 12
        assert server.terminate() == 0
    with running(tmp_path / "data") as server:  # one process serves them all
        assert server.ask("GET", "/v1/stats/summary").json["depth"] == 20
    with running(tmp_path / "data", "--processes", "4") as server:
        assert [len(server.lease(name)) for name in names] == [2] * 4, "the other three are leased"


def test_process_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path):
    names = queues_on_all(2)
    with running(tmp_path / "data", "--processes", "2") as server:
        for name in names:
            server.publish(name, 1)
        for _ in range(3):
            before = children(server)
            os.kill(before[0], signal.SIGKILL)
            server.wait_until(lambda before=before: len(children(server)) == 2 and before[0] not in children(server))
            server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").status == 200)
            for name in names:
                server.publish(name, 1)
        assert [len(server.lease(name)) for name in names] == [4, 4]


def test_stopped_process_is_replaced_before_it_can_go_on(tmp_path):
    """A process that was stopped holds the locks of its shards until it is dead."""
    with running(tmp_path / "data", "--processes", "2") as server:
        stopped = children(server)[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            server.wait_until(lambda: stopped not in children(server), timeout=60)
        finally:
            if not has_ended(stopped):
                os.kill(stopped, signal.SIGKILL)
        server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").status == 200)
        for name in queues_on_all(2):
            server.publish(name, 1)


def test_processes_end_with_their_supervisor(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server:
        pids = children(server)
        server.process.kill()
        server.wait_until(lambda: all(map(has_ended, pids)))
    with running(tmp_path / "data", "--processes", "2"):
        pass


def test_store_that_cannot_be_divided_is_refused(tmp_path):
    with running(tmp_path / "one"):
        pass
    assert "this one has 1" in refusal(tmp_path / "one", "--processes", "2")
    assert "2 shards cannot be divided among 3" in refusal(tmp_path / "new", "--processes", "3", "--shards", "2")
    assert "memory of one process" in refusal(tmp_path / "new", "--processes", "2", "--store", "memory:")
    with running(tmp_path / "two", "--processes", "2"):
        for flags in ([], ["--processes", "2"]):
            assert "in use by another process" in refusal(tmp_path / "two", *flags)


@pytest.mark.slow
def test_processes_killed_again_and_again_under_load(tmp_path, capsys):
    scene, dice = Scene(QUEUES), random.Random(4)
    server = Server(tmp_path / "data", "--processes", "2", "--shards", "4")
    scene.born(server.port)
    clients = cast(scene)
    try:
        for queue, terms in QUEUES.items():
            config = {**CONFIGS[queue], "max_retries": terms.max_retries, "backoff": BACKOFF}
            assert server.ask("PUT", f"/v1/queues/{queue}", config).status == 201
            for group in terms.groups:
                ask = {"queue": queue, "group": group, "wait_ms": 0}
                assert server.ask("POST", "/v1/lease", ask).json["messages"] == []
        for client in clients:
            client.start()
        for _ in range(20):
            assert not scene.over.wait(dice.uniform(0.2, 0.6))
            assert not scene.failures, scene.failures
            killed = dice.choice(children(server))
            shards = shards_of(killed)
            os.kill(killed, signal.SIGKILL)
            killed_ms = now_ms()
            server.wait_until(lambda killed=killed: len(children(server)) == 2 and killed not in children(server))
            served = frozenset(queue for queue in QUEUES if home_of(parse_queue(queue), 4) in shards)
            scene.events.append(Restarted(killed_ms, killed_ms, served))
            scene.born(server.port)  # clients whose connection has ended open another one
        scene.stopping.set()
        for client in clients:
            if isinstance(client, Producer):
                client.join(60)
        drain(server)
        scene.end()
        for client in clients:
            client.join(60)
        assert not scene.failures, scene.failures
        assert server.terminate() == 0
        server = Server(tmp_path / "data")
        final = ask_for_everything(server)
        assert server.terminate() == 0
    finally:
        scene.end()
        server.kill()
    verdict = check(scene.events, final, QUEUES)
    with capsys.disabled():
        print(f"\n20 kills: {json.dumps(verdict.counts)}; answers by status: {dict(scene.answers)}")
    assert verdict.violations == [], "\n".join(verdict.violations[:20])
    assert not scene.answers[500], server.log()
