"""A broker in a process of its own, one connection to it, and its CPU time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

PENSTOCK = (sys.executable, "-m", "penstock")


class BenchServer:
    def __init__(self, data_dir: str, command: tuple[str, ...], *flags: str):
        serve = ["serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--data-dir", data_dir, "--log-level", "error"]
        self.process = subprocess.Popen([*command, *serve, *flags], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[1].removeprefix("http=")
        self._connection = self.connect()

    def connect(self) -> HTTPConnection:
        return HTTPConnection(self.url.removeprefix("http://"))

    def ask(self, method: str, target: str, body: object = None, **headers: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, target, data, {"content-type": "application/json", **headers})
        reply = self._connection.getresponse()
        content = reply.read()
        assert reply.status < 300, content
        return content

    def json(self, method: str, target: str, body: object = None) -> Any:
        return json.loads(self.ask(method, target, body))

    def cpu_s(self) -> float:
        """CPU time of all threads, to the microsecond."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9

    def file_bytes(self) -> int:
        """Bytes that the process has read from files."""
        (line, *_) = Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        return int(line.removeprefix("rchar: "))


@contextlib.contextmanager
def serving(*flags: str, command: tuple[str, ...] = PENSTOCK) -> Iterator[BenchServer]:
    with tempfile.TemporaryDirectory() as place:
        server = BenchServer(f"{place}/data", command, *flags)
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait()
