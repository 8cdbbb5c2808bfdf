"""`penstock pipeline archive --follow` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from penstock.pipeline.lake.tables import Lake
from tests.acceptance.http_server import Server

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 300
"""A JVM takes its time to start where others are busy."""


def is_held(server: Server, lake: Path, queue: str) -> bool:
    """Whether the broker keeps this queue for the lake; not before there is one."""
    if not (lake / "penstock.json").exists():
        return False
    answer = server.ask("GET", f"/v1/holds/lake-{Lake(lake).id[:16]}")
    return answer.status == 200 and f"default/default/{queue}" in answer.json["queues"]


class Following:
    """An archive that goes on until it is told to stop, or killed."""

    def __init__(self, lake: Path, url: str, *more: str):
        self._log = lake.with_suffix(".log")
        command = [sys.executable, "-m", "penstock", "pipeline", "archive", "--follow", "--every", "0.5", "--lake",
                   str(lake), "--url", url, "--master", "local[2]", *more]  # fmt: skip
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def said(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"it ended: {self.said()}"
            assert time.monotonic() < deadline, f"it never came true: {self.said()}"
            time.sleep(0.2)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """The driver, its JVM and all workers, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
