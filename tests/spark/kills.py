"""Kill a running stream where it hurts, and count: `python -m tests.spark.kills --runs 20`.

One run: a queue with numbered messages, a Spark query that copies them to another queue (`pipe.py`), and in the middle
of a batch the driver, a worker or the broker is killed -9. What has died is started again, until the query is through.
Then every message must be there once.

Runs share a driver for as long as it lives: starting one is most of what a run would cost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from penstock.sync import Client
from tests.acceptance.http_server import Server
from tests.spark.pipe import BATCH

KINDS = ("worker", "broker", "driver")
MOMENTS = ("staging", "commit", "any")
"""While tasks write; between what a commit decides and its end; whenever it may be."""
BATCHES = 4
STARTS_MAX = 5
RUN_SECONDS_MAX = 300
ROOT = Path(__file__).parent.parent.parent


class Outcome(NamedTuple):
    kind: str
    moment: str
    killed_at: int
    """How many messages were there at that moment."""
    missing: int
    duplicated: int

    @property
    def faulty(self) -> bool:
        return bool(self.missing or self.duplicated)

    def __str__(self) -> str:
        return (
            f"killed at {self.killed_at} ({self.moment}), {self.missing} missing, {self.duplicated} duplicated"
        )  # fmt: skip


class Missed(AssertionError):
    """No process was killed: the moment was over too soon."""


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


class Driver:
    """Spark, with its JVM and workers; another one once it was killed."""

    def __init__(self, log: Path):
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def begin(self, *job: str) -> None:
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.spark.pipe"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=log, start_new_session=True,
                )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(job).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, wait_s: float) -> str | None:
        """What it says about the job: `done`, `failed`, `died`; None if nothing yet."""
        if self._process is None:
            return "died"
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(wait_s):
                return None
        line = self._process.stdout.readline().decode().strip()
        assert line or self._process.poll() is None, f"the driver ended by itself; see {self._log}"
        return line if line in ("done", "failed") else None

    def kill(self) -> None:
        """With its JVM and all workers, at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def workers(self) -> dict[int, str]:
        """Python workers, and what they do: children of the JVM's daemons."""
        found = {}
        for pid in _descendants(self._process.pid if self._process is not None else -1):
            with contextlib.suppress(OSError, IndexError):
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                ours = Path(f"/proc/{pid}/cmdline").read_text(), Path(f"/proc/{parent}/cmdline").read_text()
                if all("pyspark.daemon" in line for line in ours):
                    found[pid] = ours[0]
        return found


class Moment:
    """When to strike: in one of the batches, at a point of it that the broker can see."""

    def __init__(self, broker: Broker, name: str, chance: random.Random):
        self._broker = broker
        self.name = name
        self.in_commit = name == "commit"
        self._batch = chance.randrange(BATCHES - 1)
        self.later_s = chance.uniform(0, {"staging": 0.2, "commit": 0.02, "any": 1.5}[name])

    def stored(self) -> int:
        """Messages that have come through."""
        return _published(self._broker, "out")

    def is_near(self) -> bool:
        if self.name == "any":
            return self.stored() >= self._batch * BATCH
        room = self._broker.server.ask("GET", "/v1/queues?prefix=spark-sink/").json["queues"]
        names = {queue["queue"].rpartition("/")[2] for queue in room}
        if self.name == "staging":
            return f"batch-{self._batch}" in names
        # A manifest and a `done` for each batch.
        noted = next((queue for queue in room if queue["queue"].endswith("/commits")), None)
        return noted is not None and _published(self._broker, noted["queue"]) == 2 * self._batch + 1


def run(kind: str, seed: int, directory: Path, driver: Driver) -> Outcome:
    chance = random.Random(seed)
    broker = Broker(directory / "data")
    try:
        with Client(broker.url) as client:
            source = client.create_queue("in", partitions=2, retention={"mode": "keep"})
            client.create_queue("out", retention={"mode": "keep"})
            for first in range(0, BATCHES * BATCH, 1_000):
                numbers = range(first, first + 1_000)
                source.publish_many(list(numbers), keys=[str(number) for number in numbers])
            moment = Moment(broker, MOMENTS[seed % len(MOMENTS)], chance)
            job = ("pipe", broker.url, str(directory / "checkpoint"))
            killed_at = through(job, kind, moment, broker, driver, chance)
            found = Counter(int(message.payload) for batch in client.queue("out").follow(wait=0) for message in batch)
    finally:
        broker.server.kill()
    missing = BATCHES * BATCH - len(found)
    return Outcome(kind, moment.name, killed_at, missing, sum(found.values()) - len(found))


class Striking(Protocol):
    """When to strike: `later_s` after it `is_near`."""

    in_commit: bool
    later_s: float

    def stored(self) -> int: ...

    def is_near(self) -> bool: ...


def through(
    job: Sequence[str], kind: str, moment: Striking, broker: Broker, driver: Driver, chance: random.Random
) -> int:
    """Start the job as often as it takes, and kill once. How many messages were there at that moment."""
    killed_at = -1
    deadline = time.monotonic() + RUN_SECONDS_MAX
    for _ in range(STARTS_MAX):
        driver.begin(*job)
        while (said := driver.answer(0.005)) is None:
            assert time.monotonic() < deadline, "it never came to an end"
            if killed_at < 0 and moment.is_near():
                time.sleep(moment.later_s)
                there = moment.stored()
                if _kill(kind, broker, driver, chance, in_commit=moment.in_commit):
                    killed_at = there
        if said == "done":
            break
    assert said == "done", f"{kind}: it never got through"
    if killed_at < 0:
        raise Missed(f"{kind}: it was through before the kill")
    return killed_at


def _published(broker: Broker, queue: str) -> int:
    answer: Any = broker.server.ask("GET", f"/v1/stats?queue={queue}").json
    return int(answer["totals"]["published"])


def _kill(kind: str, broker: Broker, driver: Driver, chance: random.Random, *, in_commit: bool) -> bool:
    """True if there was something to kill."""
    if kind == "broker":
        broker.crash()
        return True
    if kind == "driver":
        driver.kill()
        return True
    # In a commit the others have nothing to do.
    workers = [pid for pid, does in driver.workers().items() if not in_commit or "streaming_sink" in does]
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
            return True
    return False


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from _descendants(child)


def campaign(what: str, run: Callable[[str, int, Path, Driver], Outcome]) -> int:
    """So many runs of each kind as the command line says, one after the other with one driver."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as logs, Driver(Path(logs) / "driver.log") as driver:
        for kind in options.kinds:
            counted = 0
            for seed in range(3 * options.runs):
                try:
                    with tempfile.TemporaryDirectory() as directory:
                        outcome = run(kind, seed, Path(directory), driver)
                except Missed as missed:
                    print(f"{missed}: does not count", flush=True)
                    continue
                outcomes.append(outcome)
                print(f"{kind:7} seed {seed}: {outcome}", flush=True)
                counted += 1
                if counted == options.runs:
                    break
    print(
        f"{len(outcomes)} runs, {sum(each.faulty for each in outcomes)} with a fault: "
        f"{sum(each.missing for each in outcomes)} missing, {sum(each.duplicated for each in outcomes)} duplicated"
    )
    return 1 if any(each.faulty for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(campaign("kill a stream where it hurts, and count", run))
