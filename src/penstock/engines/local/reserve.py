"""Space that is held back, and given up when the disk is full: acks and the next snapshot still fit then.

Both make room: an ack ends the need for a message, and the snapshot is what lets its bytes be removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from penstock import limits
from penstock.engines.local.files import FULL, Files
from penstock.journal.port import OutOfSpace

STEP_BYTES = 1 * limits.MIB
"""The reserve grows by so much at a time: most snapshots are about as large as the one before."""


class Reserve:
    """A file of which only the size matters."""

    def __init__(self, files: Files, path: str):
        self._files = files
        self._path = path
        self._size = limits.DISK_RESERVE_BYTES
        self.is_missing = False
        """True since it was given up: publishing has to wait."""

    def grow_for(self, blob_bytes: int) -> None:
        """Hold back room for one more blob of this size, now or when there is room for that."""
        self._size = limits.DISK_RESERVE_BYTES + blob_bytes // STEP_BYTES * STEP_BYTES
        if self.is_missing:
            return
        # No frame depends on this file: if the directory was moved away, the reserve keeps its size until it is back.
        with contextlib.suppress(FileNotFoundError):
            if (held := self._size_now()) > self._size:
                self._shrink()
            elif held < self._size:
                # Publishing need not wait for this: what is held back already is enough for acks.
                self._allocate()

    def give_up(self) -> None:
        self.is_missing = True
        self._files.remove(self._path)

    def restore(self) -> None:
        """Take it back if there is room for it."""
        if self._size_now() < self._size:
            self._files.remove(self._path)  # allocated in part, by an attempt that was interrupted
            if not self._allocate():
                self.give_up()
                return
        self.is_missing = False

    def _size_now(self) -> int:
        files = self._files
        if not files.exists(self._path):
            return 0
        handle = files.open(self._path)
        try:
            return files.size(handle)
        finally:
            files.close(handle)

    def _shrink(self) -> None:
        handle = self._files.open(self._path)
        try:
            self._files.truncate(handle, self._size)
        finally:
            self._files.close(handle)

    def _allocate(self) -> bool:
        """False if there is no room."""
        files = self._files
        handle = files.open_cell(self._path)
        before = files.size(handle)
        try:
            files.allocate(handle, self._size)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if files.size(handle) > before:
                files.truncate(handle, before)  # some file systems allocate what they can and then fail
            return False
        finally:
            files.close(handle)
        return True


def with_room(work: Callable[[], None], *ways: Callable[[], object]) -> None:
    """Do it; where the disk is full, make room in one way after the other, and do it again. If that does not do,
    say so."""
    for make_room in ways:
        try:
            return work()
        except OSError as error:
            if error.errno not in FULL:
                raise
        make_room()
    try:
        work()
    except OSError as error:
        if error.errno in FULL:
            raise OutOfSpace("the disk is full") from error
        raise
