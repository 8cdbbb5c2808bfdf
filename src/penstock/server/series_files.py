"""Blocks of minute series as files of the data directory. They are statistics: a crash may lose the last minutes."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[md]-[0-9]{1,12}")


class SeriesFiles:
    def __init__(self, directory: Path):
        self._directory = directory

    def names(self) -> list[str]:
        return [path.name for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]

    def load(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except OSError:
            return None

    def save(self, name: str, data: bytes) -> None:
        """Replaces the file whole: a reader finds the old content or the new."""
        self._directory.mkdir(exist_ok=True)
        partial = self._directory / f"{name}.new"
        partial.write_bytes(data)
        partial.replace(self._directory / name)

    def remove(self, name: str) -> None:
        (self._directory / name).unlink(missing_ok=True)
