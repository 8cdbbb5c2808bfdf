"""beanstalkd with its write-ahead log synced at every write; commands pipelined on one connection.

It has no batches and no Python client that pipelines, so this module implements its line protocol. It needs the binary
(Debian: `beanstalkd`).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.process import ServerProcess, free_port


class Beanstalkd(Peer):
    name = "beanstalkd"
    promise = "on disk"

    async def start(self, directory: Path) -> None:
        binary = shutil.which("beanstalkd")
        if not binary:
            raise NotInstalled("not installed: beanstalkd")
        port = free_port()
        log = directory / "log"
        log.mkdir()
        self._version = _version(binary)
        self.server = ServerProcess([binary, "-l", "127.0.0.1", "-p", str(port), "-b", str(log), "-f0"], directory)
        self._closing.callback(self.server.stop)
        self.server.wait_for_port(port)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._closing.callback(self._socket.close)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb", buffering=1 << 18)
        self._closing.callback(self._replies.close)

    def versions(self) -> dict[str, str]:
        return {"beanstalkd": self._version}

    async def create(self, queue: str) -> None:
        self._ask([b"use %s\r\n" % queue.encode(), b"watch %s\r\n" % queue.encode()], b"")

    async def drop(self, queue: str) -> None:
        while self._reserve(1000):
            pass
        self._ask([b"use default\r\n", b"ignore %s\r\n" % queue.encode()], b"")

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:  # noqa: ARG002 - `create` chose the tube
        self._ask([b"put 0 0 30 %d\r\n%s\r\n" % (len(content), content) for content in payloads], b"INSERTED")

    async def drain(self, queue: str, batch: int, count: int) -> None:  # noqa: ARG002 - `create` chose the tube
        taken = 0
        while taken < count:
            taken += self._reserve(batch)

    def _reserve(self, batch: int) -> int:
        """Reserve up to `batch` ready jobs and delete them; returns their number."""
        self._socket.sendall(b"reserve-with-timeout 0\r\n" * batch)
        jobs, contents = [], []
        for _ in range(batch):
            words = self._replies.readline().split()
            if words[0] == b"TIMED_OUT":
                continue
            assert words[0] == b"RESERVED", words
            jobs.append(words[1])
            contents.append(self._replies.read(int(words[2]) + 2)[:-2])
        self._ask([b"delete %s\r\n" % job for job in jobs], b"DELETED")
        return len(contents)

    def _ask(self, commands: Sequence[bytes], expected: bytes) -> None:
        self._socket.sendall(b"".join(commands))
        for _ in commands:
            reply = self._replies.readline()
            assert reply.startswith(expected), reply


def _version(binary: str) -> str:
    return subprocess.run([binary, "-v"], capture_output=True, text=True, check=True, timeout=10).stdout.split()[-1]
