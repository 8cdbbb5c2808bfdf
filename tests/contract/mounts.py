"""Small real file systems for tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted_tmpfs(path: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of this size at `path`. The test is skipped where the user may not mount one."""
    if os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "none", str(path)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def used_bytes(path: Path) -> int:
    """Bytes that the files below `path` take on the disk."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
