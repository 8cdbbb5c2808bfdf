"""Kill a running stream where it hurts, and count: `python -m tests.spark.kills --runs 20`.

One run: a queue with numbered messages, a Spark query that copies them to another queue (`pipe.py`), and in the middle
of a batch the driver, a worker or the broker is killed -9. What has died is started again, until the query is through.
Then every message must be there once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.sync import Client
from tests.acceptance.http_server import Server

KINDS = ("driver", "worker", "broker")
MESSAGES = 20_000
STARTS_MAX = 5
RUN_SECONDS_MAX = 300
ROOT = Path(__file__).parent.parent.parent


class Outcome(NamedTuple):
    kind: str
    killed_at: int
    """How many messages were there at that moment."""
    missing: int
    duplicated: int


class Broker:
    """A server that may be killed and started again at the same address."""

    def __init__(self, data: Path):
        self._data = data
        self.server = Server(data)
        self.url = self.server.url

    def crash(self) -> None:
        port = self.server.port
        self.server.kill()
        self.server = Server(self._data, "--listen", f"127.0.0.1:{port}")


def run(kind: str, seed: int, directory: Path) -> Outcome:
    chance = random.Random(seed)
    broker = Broker(directory / "data")
    pipe: subprocess.Popen[bytes] | None = None
    try:
        with Client(broker.url) as client:
            source = client.create_queue("in", partitions=2, retention={"mode": "keep"})
            client.create_queue("out", retention={"mode": "keep"})
            for first in range(0, MESSAGES, 1_000):
                numbers = range(first, first + 1_000)
                source.publish_many(list(numbers), keys=[str(number) for number in numbers])
            goal = chance.randrange(1, MESSAGES - 5_000)
            killed_at = -1
            deadline = time.monotonic() + RUN_SECONDS_MAX
            for _ in range(STARTS_MAX):
                pipe = _start(broker.url, directory)
                while pipe.poll() is None:
                    assert time.monotonic() < deadline, "it never came to an end"
                    if killed_at < 0 and (there := _stored(client)) >= goal:
                        time.sleep(chance.uniform(0, 0.3))
                        if _kill(kind, broker, pipe, chance):
                            killed_at = there
                    time.sleep(0.02)
                if pipe.returncode == 0 and killed_at >= 0:
                    break
            assert killed_at >= 0 and pipe is not None and pipe.returncode == 0, f"{kind}: it never got through"
            found = Counter(int(message.payload) for batch in client.queue("out").follow(wait=0) for message in batch)
    finally:
        if pipe is not None:
            _end(pipe)
        broker.server.kill()
    return Outcome(kind, killed_at, MESSAGES - len(found), sum(found.values()) - len(found))


def _start(url: str, directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.pipe", url, str(directory / "checkpoint")]
    with (directory / "pipe.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def _stored(client: Client) -> int:
    with contextlib.suppress(PenstockError):
        return int(client.queue("out").stats()["totals"]["published"])
    return 0


def _kill(kind: str, broker: Broker, pipe: subprocess.Popen[bytes], chance: random.Random) -> bool:
    """True if there was something to kill."""
    if kind == "broker":
        broker.crash()
        return True
    if kind == "driver":
        _end(pipe)
        return True
    workers = list(_workers(pipe.pid))
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
            return True
    return False


def _workers(driver: int) -> Iterator[int]:
    """Python workers of this driver: children of its daemon."""
    for pid in _descendants(driver):
        with contextlib.suppress(OSError, IndexError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            ours = Path(f"/proc/{pid}/cmdline").read_text(), Path(f"/proc/{parent}/cmdline").read_text()
            if all("pyspark.daemon" in line for line in ours):
                yield pid


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from _descendants(child)


def _end(pipe: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and all workers, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pipe.pid, signal.SIGKILL)
    pipe.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="kill a stream where it hurts, and count")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    bad = 0
    for kind in options.kinds:
        for seed in range(options.runs):
            with tempfile.TemporaryDirectory() as directory:
                outcome = run(kind, seed, Path(directory))
            bad += bool(outcome.missing or outcome.duplicated)
            print(f"{kind:7} seed {seed}: killed at {outcome.killed_at}, {outcome.missing} missing, "
                  f"{outcome.duplicated} duplicated", flush=True)  # fmt: skip
    print(f"{len(options.kinds) * options.runs} runs, {bad} with a fault")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
