"""Lives of a broker, each ended by a fault. Every life begins with a check of all that earlier lives have promised."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from torture.broker import Broker, BrokerGone
from torture.disk import CuttableDisk
from torture.oracle import Oracle
from torture.workload import Clients, check, create_queue, drain

OFTEN = ("pwritev", "fdatasync", "sync_file_range", "write", "epoll_pwait")
RARE = ("fsync", "rename", "unlink", "ftruncate", "openat", "fallocate")
"""System calls that a fault is injected at, by the number of times that a life makes them."""
FAILING = ("pwritev", "fdatasync", "fsync", "pread64", "sync_file_range", "rename", "ftruncate")
LIFE_S = (0.05, 0.6)


class Campaign:
    def __init__(self, kind: str, root: Path, seed: int):
        self._kind = kind
        self._root = root
        self._rng = random.Random(seed)
        self._seed = seed
        self._oracle = Oracle()
        self._disk = CuttableDisk(root / "disk.img", root / "disk") if kind == "cut" else None
        self._data = (self._disk.path if self._disk else root) / "data"
        self.ends: Counter[str] = Counter()
        """Lives by how they ended."""

    def run(self, lives: int, seconds: float) -> dict[str, object]:
        """At most so many lives, and about so many seconds."""
        deadline = time.monotonic() + seconds
        try:
            done = 0
            while done < lives and time.monotonic() < deadline and not self._oracle.violations:
                self._life(done)
                done += 1
            self._last_life()
        finally:
            if self._disk is not None:
                self._disk.unmount()
        return {
            "kind": self._kind, "lives": done, "ends": dict(sorted(self.ends.items())), "seed": self._seed,
            **self._oracle.counts, "violations": self._oracle.violations,
        }  # fmt: skip

    def _start(self, wrapper: Sequence[str] = ()) -> Broker:
        return Broker(self._data, self._root / "broker.log", wrapper=wrapper)

    def _life(self, number: int) -> None:
        broker = self._start(self._wrapper())
        clients = None
        try:
            if broker.ready:
                with contextlib.suppress(BrokerGone), contextlib.closing(broker.connect()) as connection:
                    create_queue(connection)
                    check(connection, self._oracle)
                clients = Clients(broker, self._oracle, self._seed + number)
                time.sleep(self._rng.uniform(*LIFE_S))
            self._end(broker)
        finally:
            broker.kill()
            if clients is not None:
                clients.join()
        if self._disk is not None:
            self._disk.restore()

    def _wrapper(self) -> Sequence[str]:
        if self._kind == "kill":
            often = self._rng.random() < 0.7
            call, most = self._rng.choice(OFTEN if often else RARE), 150 if often else 12
            fault = f"{call}:signal=KILL:when={self._rng.randint(1, most)}"
        elif self._kind == "error":
            call = self._rng.choice(FAILING)
            fault = f"{call}:error=EIO:when={self._rng.randint(1, 200 if call in OFTEN else 10)}"
        else:
            return ()
        # Without --seccomp-bpf, which leaves signals out.
        return ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={fault}")

    def _end(self, broker: Broker) -> None:
        if self._disk is not None:
            self._disk.cut()
            self.ends["cut"] += 1
        elif self._kind == "stop":
            for _ in range(2):
                broker.signal(signal.SIGSTOP)
                time.sleep(self._rng.uniform(0.1, 2.5))
                broker.signal(signal.SIGCONT)
                time.sleep(self._rng.uniform(*LIFE_S))
            self.ends["stopped and continued"] += 1
        else:
            try:
                code = broker.wait(1 if broker.ready else 60)
                self.ends["killed at a system call" if code == -signal.SIGKILL else f"exit {code}"] += 1
            except subprocess.TimeoutExpired:
                self.ends["killed by the clock"] += 1

    def _last_life(self) -> None:
        broker = self._start()
        try:
            assert broker.ready, (self._root / "broker.log").read_text()[-2000:]
            with contextlib.closing(broker.connect()) as connection:
                create_queue(connection)
                check(connection, self._oracle)
                drain(connection, self._oracle)
        finally:
            broker.kill()


def unusable(kind: str) -> str:
    """Why a campaign of this kind cannot run here; empty: it can."""
    if kind in ("kill", "error") and shutil.which("strace") is None:
        return "strace is not installed"
    return ""
