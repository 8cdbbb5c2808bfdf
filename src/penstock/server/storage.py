"""The bytes of a data directory by kind of file, and the room on its disk."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from penstock.clock import Clock
from penstock.transports.http.edge import StoredBytes

KEPT_S = 10.0
"""A measurement is used for so long: any number of scrapes and pages looks at the files once."""


class DataDirectory:
    def __init__(self, root: str, fsync: str, clock: Clock):
        self._root = Path(root)
        self._fsync = fsync
        self._clock = clock
        self._measured: tuple[float, StoredBytes] | None = None

    async def measure(self) -> StoredBytes:
        now = self._clock.monotonic()
        if self._measured is None or now - self._measured[0] >= KEPT_S:
            self._measured = now, await asyncio.to_thread(self._measure)
        return self._measured[1]

    def _measure(self) -> StoredBytes:
        journal = segments = snapshots = 0
        try:
            for shard in self._root.glob("shard-*"):
                journal += sum(size for _, size in _files(shard / "journal"))
                for name, size in _files(shard / "blobs"):
                    if name.startswith("segment"):
                        segments += size
                    else:
                        snapshots += size
            disk = shutil.disk_usage(self._root)
        except OSError:
            return StoredBytes("local:", self._fsync)  # the directory is missing, which `/readyz` reports
        return StoredBytes("local:", self._fsync, journal, segments, snapshots, disk.free, disk.total)


def _files(directory: Path) -> list[tuple[str, int]]:
    """(name, bytes) of the files of a directory. A file that is removed meanwhile is left out."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat().st_blocks * 512))
            except FileNotFoundError:
                continue
    return found
