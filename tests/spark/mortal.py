"""A broker under load that is killed again and again; `python -m tests.spark.mortal --kills 50` audits it each time.

The load is that of the crash tests: producers that repeat themselves, consumers that ack, nack, reject, release, dawdle
and forget.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "acceptance"))

from history import Terms
from load import Scene, cast

from tests.acceptance.http_server import Server
from tests.spark.quick import be_quick

QUEUES = {"orders": Terms(("billing", "audit"), max_retries=100), "jobs": Terms(("workers", "audit"), max_retries=3)}
CONFIGS = {"orders": {"partitions": 3, "retention": {"mode": "keep"}}, "jobs": {}}
BACKOFF = {"kind": "fixed", "base_ms": 20, "cap_ms": 20, "jitter": 0.0}


class Mortal:
    """A broker under load."""

    def __init__(self, data: Path, scene: Scene, seed: int):
        self._data, self._scene = data, scene
        self._dice = random.Random(seed)
        self.server = self._start()

    def _start(self) -> Server:
        server = Server(self._data)
        self._scene.born(server.port)
        return server

    def die(self) -> None:
        """After a moment it is killed, and comes back on the same data."""
        assert not self._scene.over.wait(self._dice.uniform(0.2, 0.6))
        assert not self._scene.failures, self._scene.failures
        self.server.kill()
        self.server = self._start()


@contextlib.contextmanager
def under_load(data: Path, seed: int) -> Iterator[Mortal]:
    scene = Scene(QUEUES)
    mortal = Mortal(data, scene, seed)
    clients = cast(scene)
    try:
        # Nothing of the history may be left behind.
        assert mortal.server.ask("PUT", "/v1/holds/all", {"events": 0, "queues": {}}).status == 200
        for queue, terms in QUEUES.items():
            config = {**CONFIGS[queue], "max_retries": terms.max_retries, "backoff": BACKOFF}
            assert mortal.server.ask("PUT", f"/v1/queues/{queue}", config).status == 201
        for client in clients:
            client.start()
        yield mortal
    finally:
        scene.stopping.set()
        scene.over.set()
        for client in clients:
            client.join(30)
        mortal.server.kill()


@contextlib.contextmanager
def kill_under_load(data: Path, *, kills: int, seed: int) -> Iterator[Server]:
    with under_load(data, seed) as mortal:
        for _ in range(kills):
            mortal.die()
        yield mortal.server


def campaign(kills: int, balances: Callable[[str], bool]) -> int:
    """How many of the audits did not balance."""
    wrong = 0
    with tempfile.TemporaryDirectory() as directory, under_load(Path(directory) / "data", seed=1) as mortal:
        for number in range(1, kills + 1):
            mortal.die()
            good = balances(mortal.server.url)
            wrong += not good
            print(f"kill {number}: {'balances' if good else 'DOES NOT BALANCE'}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="kill a broker under load, and audit it each time")
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    from penstock.pipeline.audit import audit
    from penstock.pipeline.session import spark_session

    be_quick()
    spark = spark_session("campaign", master="local[2]", spark_sql_shuffle_partitions="2")
    spark.sparkContext.setLogLevel("OFF")

    def balances(url: str) -> bool:
        report = audit(spark, url)
        for discrepancy in report.discrepancies:
            print(f"  {discrepancy}")
        return report.balances

    wrong = campaign(kills, balances)
    print(f"{kills} kills, {wrong} audits that did not balance")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
