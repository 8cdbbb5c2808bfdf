"""The immutable files beside a journal: snapshots, sealed segments, far agenda entries. Blocking, all of it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.batch import Buffer
from penstock.engines.local.files import FULL, Files
from penstock.journal.port import OutOfSpace

HANDLES_MAX = 256
"""Blobs that stay open. A heap takes its messages from everywhere: a gigabyte of them is in as many segments."""


class BlobFiles:
    """A directory. A blob has its name when it is complete and durable, and not before."""

    def __init__(self, files: Files, root: str):
        self._files = files
        self._root = root
        self._handles: dict[str, int] = {}
        """Open for reading, the longest open one first."""

    def write(self, name: str, at: int, parts: Sequence[Buffer]) -> None:
        """A portion of a blob that is being made; the first is at 0."""
        files, path = self._files, f"{self._root}/{name}.tmp"
        if not at:
            files.remove(path)
        handle = files.open(path, create=not at)
        try:
            files.write(handle, at, parts)
            files.sync(handle)
        except OSError as error:
            if error.errno in FULL:
                raise OutOfSpace("the disk is full") from error
            raise
        finally:
            files.close(handle)

    def discard(self, names: Sequence[str]) -> None:
        """Of blobs that are being made."""
        for name in names:
            self._files.remove(f"{self._root}/{name}.tmp")

    def finish(self, names: Sequence[str]) -> None:
        for name in names:
            path = f"{self._root}/{name}"
            self._files.rename(f"{path}.tmp", path)
        self._files.sync_dir(self._root)

    def read(self, name: str, start: int, length: int) -> bytes:
        handle = self._handles.get(name)
        if handle is None:
            if len(self._handles) >= HANDLES_MAX:
                self._files.close(self._handles.pop(next(iter(self._handles))))
            handle = self._handles[name] = self._files.open(f"{self._root}/{name}")
        return self._files.read(handle, start, length)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """(name, size), by name."""
        found = []
        for name in self._files.list_dir(self._root):
            if name.startswith(prefix) and not name.endswith(".tmp"):
                handle = self._files.open(f"{self._root}/{name}")
                found.append((name, self._files.size(handle)))
                self._files.close(handle)
        return sorted(found)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            handle = self._handles.pop(name, None)
            if handle is not None:
                self._files.close(handle)
            self._files.remove(f"{self._root}/{name}")
        self._files.sync_dir(self._root)

    def close(self) -> None:
        for handle in self._handles.values():
            self._files.close(handle)
        self._handles = {}
