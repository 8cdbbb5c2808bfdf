"""Space that is held back, and given up when the disk is full: acks still fit then, and make room."""

from __future__ import annotations

from collections.abc import Callable

from penstock import limits
from penstock.engines.local.files import FULL, Files
from penstock.journal.port import OutOfSpace


class Reserve:
    """A file of which only the size matters."""

    def __init__(self, files: Files, path: str):
        self._files = files
        self._path = path
        self.is_missing = False
        """True since it was given up: publishing has to wait."""

    def give_up(self) -> None:
        self.is_missing = True
        self._files.remove(self._path)

    def restore(self) -> None:
        """Take it back if there is room for it."""
        files = self._files
        if files.exists(self._path):
            handle = files.open(self._path)
            size = files.size(handle)
            files.close(handle)
            if size >= limits.DISK_RESERVE_BYTES:
                self.is_missing = False
                return
            files.remove(self._path)  # of an attempt that was interrupted: a reserve of nothing
        try:
            handle = files.open(self._path, create=True)
            try:
                files.allocate(handle, limits.DISK_RESERVE_BYTES)
            finally:
                files.close(handle)
            self.is_missing = False
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.give_up()


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
