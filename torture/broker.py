"""One process of the broker, with or without strace around it, and a plain HTTP client."""

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READY_WITHIN_S = 60


class BrokerGone(Exception):
    """The broker did not answer: the outcome of the request is unknown."""


class Broker:
    """`ready` is False if the process ended before it was ready, as an injected fault may have it."""

    def __init__(
        self, data_dir: Path, log: Path, *, wrapper: Sequence[str] = (), program: str = "torture.small", store: str = ""
    ):
        options = ["--listen", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(data_dir)]
        if store:
            options += ["--store", store]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", program, "serve", *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline().decode() if selector.select(READY_WITHIN_S) else ""
        found = re.match(r"ready http=http://127\.0\.0\.1:(\d+) ", line)
        self.ready = found is not None
        self.port = int(found[1]) if found else 0

    def connect(self) -> Connection:
        return Connection(self.port)

    def signal(self, number: int) -> None:
        """To the broker and to strace, if that is around it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.wait(60)

    def wait(self, seconds: float) -> int:
        """The exit code; raises TimeoutExpired."""
        code = self.process.wait(seconds)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


class Connection:
    def __init__(self, port: int):
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        try:
            self._http.request(method, target, data, {"content-type": "application/json"} if data else {})
            answer = self._http.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BrokerGone(str(error)) from error

    def close(self) -> None:
        self._http.close()
