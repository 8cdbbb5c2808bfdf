"""Journal files that are not needed any more, kept for the next ones: their space is there already.

A file that grows costs its file system a second write for every sync: the new size, and where the new blocks are. A
file that is overwritten costs the bytes alone (210 KB: 310 µs against 200; docs/adr/0027).

Their old content stays in them until it is overwritten. Frames carry their index, which never falls, so old content is
never taken for a frame of the file's present use.
"""

from __future__ import annotations

import threading

from penstock.engines.local.files import FULL, Files

SPARES_MAX = 2
"""More would only help a journal whose upkeep falls behind by that many files."""


class Spares:
    """Filled by the thread that removes files, emptied by the one that begins new ones."""

    def __init__(self, files: Files, directory: str):
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self._ready: list[str] = []
        self._empty = [f"{directory}/spare-{number}" for number in range(SPARES_MAX)]

    def find(self) -> None:
        """Those of an earlier process. Its directory entries are durable by now."""
        for path in [path for path in self._empty if self._files.exists(path)]:
            self._empty.remove(path)
            self._ready.append(path)

    def keep(self, paths: list[str]) -> list[str]:
        """Take what is wanted of these closed files; the rest is the caller's to remove.

        None is handed out before its new name is durable: after a crash it would stand under the old one, with
        something else in it.
        """
        with self._lock:
            places, self._empty = self._empty[: len(paths)], self._empty[len(paths) :]
        renamed = 0
        try:
            for path, place in zip(paths, places, strict=False):
                self._files.rename(path, place)
                renamed += 1
        except OSError as error:
            if error.errno not in FULL:
                raise
        if renamed:
            self._files.sync_dir(self._directory)
        with self._lock:
            self._ready += places[:renamed]
            self._empty += places[renamed:]
        return paths[renamed:]

    def take(self) -> str | None:
        """The caller's own from now on; to be renamed, and then reported as `used`."""
        with self._lock:
            return self._ready.pop() if self._ready else None

    def used(self, path: str | None) -> None:
        """The spare that was taken no longer exists under this name."""
        if path is not None:
            with self._lock:
                self._empty.append(path)

    def drop(self) -> bool:
        """The disk is full: their space is worth more than their speed. False if there are none."""
        dropped = False
        while (path := self.take()) is not None:
            self._files.remove(path)
            self.used(path)
            dropped = True
        return dropped
