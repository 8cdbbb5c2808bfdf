"""A real server in a process of its own, and a client that is nothing but the standard library."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

READY_WITHIN_S = 30


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`penstock serve`, started and ready."""

    def __init__(self, data_dir: Path, *flags: str, program: Sequence[str] = ("-m", "penstock")):
        """`program` is what Python runs instead of the broker as it is shipped."""
        command = [
            sys.executable,
            *program,
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--data-dir",
            str(data_dir),
            *flags,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.log_path = data_dir.with_suffix(".log")
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        try:
            self.ready_line = self._read_line()
            found = re.fullmatch(r"ready http=(https?://127\.0\.0\.1:(\d+)) grpc=(\S+)\n", self.ready_line)
            assert found, f"not ready: {self.ready_line!r}\n{self.log()}"
        except BaseException:
            self.kill()
            raise
        self.url, self.port, self.grpc = found[1], int(found[2]), found[3]

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(READY_WITHIN_S), f"nothing after {READY_WITHIN_S} s\n{self.log()}"
        return self.process.stdout.readline().decode()

    def log(self) -> str:
        return self.log_path.read_text()

    def connect(self, timeout: float = 30) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own; a body that is not bytes is sent as JSON."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given.setdefault("content-type", "application/json")
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, target, body, given)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def publish(self, queue: str, *payloads: Any, **fields: Any) -> list[dict[str, Any]]:
        messages = [{"payload": payload, **fields} for payload in payloads]
        answer = self.ask("POST", "/v1/publish", {"queue": queue, "messages": messages})
        assert answer.status == 201, answer.body
        return answer.json["messages"]

    def lease(self, queue: str, **more: Any) -> list[dict[str, Any]]:
        answer = self.ask("POST", "/v1/lease", {"queue": queue, "max": 100, **more})
        assert answer.status == 200, answer.body
        return answer.json["messages"]

    def wait_until(self, condition, timeout: float = 10) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"it never came true\n{self.log()}"
            time.sleep(0.01)

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """Like a crash: nothing gets a chance to be finished."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def wait(self) -> int:
        code = self.process.wait(timeout=30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@contextlib.contextmanager
def running(data_dir: Path, *flags: str) -> Iterator[Server]:
    server = Server(data_dir, *flags)
    try:
        yield server
    finally:
        server.kill()
