"""Writing files of secrets."""

from __future__ import annotations

import os
from pathlib import Path


def replace_secret_file(path: Path, data: bytes) -> None:
    """Replace the file as a whole, readable by its owner only. Durable on return: nothing may be encrypted with a key
    that a crash could lose."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
