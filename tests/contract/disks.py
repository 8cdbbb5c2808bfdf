"""Real files for tests: quick ones, and ones that fail when told."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from penstock.engines.local.files import OsFiles


class QuickFiles(OsFiles):
    """Real files without the waiting: nothing is synced, and no reserve is really allocated.

    For tests that open the same journal tens of thousands of times. Handles that a refused opening leaves behind are
    closed by `close_all`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.handles: set[int] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        self.handles.add(handle)
        return handle

    def open_cell(self, path: str) -> int:
        handle = super().open_cell(path)
        self.handles.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self.handles.discard(handle)
        super().close(handle)

    def close_all(self) -> None:
        for handle in list(self.handles):
            self.close(handle)

    def sync(self, handle: int) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def drop_cache(self, handle: int) -> None: ...

    def allocate(self, handle: int, size: int) -> None: ...


class FailAt:
    """The n-th operation of this kind on a journal file fails, once."""

    def __init__(self, operation: str, number: int):
        self.operation = operation
        self.left = number
        self.armed = False

    def __call__(self, operation: str, path: str) -> int | None:
        if not self.armed or operation != self.operation or not path.endswith(".log"):
            return None
        self.left -= 1
        return errno.EIO if self.left == 0 else None


class FailingFiles(OsFiles):
    """Real files; `fails(operation, path)` may return an error to raise before the operation is done.

    Of a write that fails, half has been written: what counts is that it is neither all nor nothing.
    """

    def __init__(self, fails: Callable[[str, str], int | None]):
        super().__init__()
        self.fails = fails

    def _ask(self, operation: str, handle: int) -> int | None:
        return self.fails(operation, str(Path(f"/proc/self/fd/{handle}").readlink()))

    def sync(self, handle: int) -> None:
        if (number := self._ask("sync", handle)) is not None:
            raise OSError(number, os.strerror(number))
        super().sync(handle)

    def write(self, handle, at, parts) -> None:
        if (number := self._ask("write", handle)) is not None:
            data = b"".join(parts)
            super().write(handle, at, [data[: len(data) // 2]])
            raise OSError(number, os.strerror(number))
        super().write(handle, at, parts)

    def allocate(self, handle: int, size: int) -> None:
        if (number := self._ask("allocate", handle)) is not None:
            raise OSError(number, os.strerror(number))
        super().allocate(handle, size)


class SmallDisk(OsFiles):
    """Real files on a disk with `room` bytes left. Files give back what they took when they shrink or go."""

    def __init__(self, room: int):
        super().__init__()
        self.room = room

    def write(self, handle, at, parts) -> None:
        data = b"".join(parts)
        growth = max(0, at + len(data) - self.size(handle))
        fits = len(data) - max(0, growth - self.room)
        self.room -= min(growth, self.room)
        super().write(handle, at, [data[:fits]])
        if fits < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, handle: int, size: int) -> None:
        self.room += max(0, self.size(handle) - size)
        super().truncate(handle, size)

    def allocate(self, handle: int, size: int) -> None:
        growth = size - self.size(handle)
        if growth > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= growth
        super().truncate(handle, size)

    def free(self, path: str) -> int:
        return self.room

    def remove(self, path: str) -> None:
        if Path(path).exists():
            self.room += Path(path).stat().st_size
        super().remove(path)
