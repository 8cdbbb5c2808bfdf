"""Locks on files of a lake: one process at a time. The kernel releases a lock when its process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from penstock.pipeline.options import PipelineError


@contextlib.contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Raises PipelineError with `refusal`, and with the process that has the lock, if that is another one."""
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip()
            raise PipelineError(f"{refusal} ({owner})" if owner else refusal) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        yield
