"""A server process: wait until it is ready, measure its costs, stop it by its pid."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
IDLE_SECONDS, IDLE_CPU = 0.5, 0.1
"""The process is idle if it uses less than this share of a core for this long."""
_POLL_SECONDS = 0.005
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ServerProcess:
    """One process tree, with its output in a file: a full pipe would block the server."""

    def __init__(
        self, command: Sequence[str], directory: Path, *, user: str | None = None, env: Mapping[str, str] | None = None
    ):
        self.output = directory / f"{Path(command[0]).name}-{time.monotonic_ns()}.log"
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                user=user,
                env=env,
            )
        self.pid = self._process.pid

    # -- life -----------------------------------------------------------------------------------------------

    def wait_for_port(self, port: int) -> None:
        def accepts() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        self._wait_until(accepts, f"port {port}")

    def wait_for_line(self, pattern: str, seconds: float = START_SECONDS_MAX) -> re.Match[str]:
        found: list[re.Match[str]] = []

        def printed() -> bool:
            match = re.search(pattern, self.output.read_text(errors="replace"), re.MULTILINE)
            if match:
                found.append(match)
            return bool(found)

        self._wait_until(printed, f"a line like {pattern!r}", seconds)
        return found[0]

    def stop(self) -> None:
        """SIGTERM, then SIGKILL. Returns when the process has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _wait_until(self, condition: Callable[[], bool], what: str, seconds: float = START_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}: {self._last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"no {what} within {seconds:.0f} s: {self._last_words()}")
            time.sleep(_POLL_SECONDS)

    def _last_words(self) -> str:
        return self.output.read_text(errors="replace").strip()[-200:]

    # -- cost -----------------------------------------------------------------------------------------------

    def cpu_seconds(self) -> float:
        """User and system time of all threads and all children, running or waited for. Resolution: 10 ms."""
        return sum(_cpu_seconds(pid) for pid in _tree(self.pid))

    def wait_until_idle(self, seconds: float = START_SECONDS_MAX) -> None:
        """Wait until the process has finished its background work after a load."""

        def is_idle() -> bool:
            before = self.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            return self.cpu_seconds() - before < IDLE_CPU * IDLE_SECONDS

        self._wait_until(is_idle, "rest", seconds)

    def rss_bytes(self) -> int:
        """Resident memory of the process itself."""
        match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert match, "a running process has a resident size"
        return int(match[1]) * 1024


def free_port() -> int:
    """A port without a listener. The server binds it shortly after."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tree(pid: int) -> list[int]:
    found, unseen = [], [pid]
    while unseen:
        found.append(unseen.pop())
        try:
            unseen += map(int, Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text().split())
        except FileNotFoundError:
            continue
    return found


def _cpu_seconds(pid: int) -> float:
    try:
        # The name in field 2 may hold spaces; everything after its closing bracket is numbers.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
