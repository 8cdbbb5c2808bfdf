"""A real broker, killed fifty times under load: nothing promised is lost, nothing done is done again.

`load.py` makes the load and writes down what its clients saw, `history.py` says whether that can be true.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from history import Final, Place, Restarted, Terms, check
from http_server import Server
from load import Producer, Scene, cast, now_ms, payload_of

DRAINED_WITHIN_S = 60
QUEUES = {"orders": Terms(("billing", "audit"), max_retries=100), "jobs": Terms(("workers", "audit"), max_retries=3)}
BACKOFF = {"kind": "fixed", "base_ms": 20, "cap_ms": 20, "jitter": 0.0}
CONFIGS: dict[str, dict[str, Any]] = {
    # Kept, so that the log itself can be asked at the end what was stored; more than one partition.
    "orders": {"partitions": 3, "retention": {"mode": "keep"}},
    # Messages are removed when acked, and retries are few: dead letters arise by themselves.
    "jobs": {},
}
SMALL_FILES = """
from penstock import limits
# Before anything reads it: files are then closed, sealed and trimmed all the time.
limits.JOURNAL_SEGMENT_BYTES = 256 * limits.KIB
from penstock.__main__ import main
main()
"""


class Mortal:
    """A broker that is killed and comes back on the same data, at another address."""

    def __init__(self, path: Path, scene: Scene, program: tuple[str, ...]):
        self._path, self._scene, self._program = path, scene, program
        self.server = self._start()

    def _start(self) -> Server:
        server = Server(self._path, program=self._program)
        self._scene.born(server.port)
        return server

    def restart(self, *, orderly: bool = False) -> None:
        if orderly:
            assert self.server.terminate() == 0
        else:
            self.server.kill()
        killed_ms = now_ms()
        self._scene.events.append(Restarted(killed_ms, now_ms()))
        self.server = self._start()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "kills"), [(("-m", "penstock"), 50), (("-c", SMALL_FILES), 10)], ids=["as shipped", "small files"]
)
def test_killed_again_and_again_under_load(tmp_path, capsys, program, kills):
    began = time.monotonic()
    scene = Scene(QUEUES)
    dice = random.Random(9)
    mortal = Mortal(tmp_path / "data", scene, program)
    clients = cast(scene)
    try:
        for queue, terms in QUEUES.items():
            config = {**CONFIGS[queue], "max_retries": terms.max_retries, "backoff": BACKOFF}
            assert mortal.server.ask("PUT", f"/v1/queues/{queue}", config).status == 201
            for group in terms.groups:
                # A group is there from its first lease on, and what all others have finished before is not for it.
                ask = {"queue": queue, "group": group, "wait_ms": 0}
                assert mortal.server.ask("POST", "/v1/lease", ask).json["messages"] == []
        for client in clients:
            client.start()
        for number in range(1, kills + 1):
            assert not scene.over.wait(dice.uniform(0.2, 0.6))
            assert not scene.failures, scene.failures
            mortal.restart()
            if number % 10 == 0:
                # In between it may finish its work and leave a snapshot, so that recovery begins with one.
                mortal.restart(orderly=True)
        scene.stopping.set()
        for client in clients:
            if isinstance(client, Producer):
                client.join(60)
        drain(mortal.server)
        scene.end()
        for client in clients:
            client.join(60)
        assert not scene.failures, scene.failures
        # The stats must come from the disk.
        mortal.restart()
        final = ask_for_everything(mortal.server)
        assert mortal.server.terminate() == 0
    finally:
        scene.end()
        mortal.server.kill()
    verdict = check(scene.events, final, QUEUES)
    with capsys.disabled():
        print(f"\n{kills} kills in {time.monotonic() - began:.0f} s: {json.dumps(verdict.counts)}")
        print(f"answers by status: {dict(scene.answers)}, bytes on disk: {disk_usage(tmp_path / 'data')}")
    assert verdict.violations == [], "\n".join(verdict.violations[:20])
    assert not scene.answers[500], mortal.server.log()
    for what in ("redeliveries", "ended acked", "ended dead", "stale", "retrying", "released", "extended"):
        assert verdict.counts.get(what), f"the load never led to: {what}"


def drain(server: Server) -> None:
    """Until every group has finished everything."""

    def drained() -> bool:
        return not any(
            group["lag"] for queue in QUEUES for group in server.ask("GET", f"/v1/groups?queue={queue}").json["groups"]
        )

    server.wait_until(drained, timeout=DRAINED_WITHIN_S)


def ask_for_everything(server: Server) -> Final:
    stored: dict[str, int] = {}
    logs: dict[str, list[tuple[str, str]]] = {}
    dead: list[Place] = []
    left: list[Place] = []
    for queue, terms in QUEUES.items():
        stats = server.ask("GET", f"/v1/stats?queue={queue}").json
        stored[queue] = sum(partition["end_offset"] for partition in stats["partitions"])
        assert {group["group"]: group["lag"] for group in stats["groups"]} == dict.fromkeys(terms.groups, 0)
        dead += dead_letters(server, queue)
    logs["orders"] = [entry for number in range(3) for entry in read_log(server, "orders", number)]
    return Final(stored, logs, dead, left)


def read_log(server: Server, queue: str, partition: int) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    offset, end = 0, 1
    while offset < end:
        query = urlencode({"queue": queue, "partition": partition, "offset": offset, "max": 2_000})
        reply = server.ask("GET", f"/v1/read?{query}").json
        for message in reply["messages"]:
            assert message["offset"] == len(entries), "the log has a gap"
            assert message["payload"] == payload_of(message["payload"]["token"])
            entries.append((message["payload"]["token"], message["id"]))
        assert reply["next_offset"] > offset or not reply["end_offset"]
        offset, end = reply["next_offset"], reply["end_offset"]
    return entries


def dead_letters(server: Server, queue: str) -> list[Place]:
    found: list[Place] = []
    while True:
        query = urlencode({"queue": queue, "limit": 500, "page": len(found) // 500 + 1})
        reply = server.ask("GET", f"/v1/dlq?{query}").json
        for letter in reply["messages"]:
            token = letter["payload"]["token"]
            assert letter["payload"] == payload_of(token)
            found.append(Place(queue, letter["group"], token))
        if len(found) >= reply["total"]:
            return found


def disk_usage(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
