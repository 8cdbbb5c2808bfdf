"""Telling the kernel to begin writing what is about to be synced.

A sync writes the pages and then flushes the cache of the disk: two waits. A caller with other work between the write
and the sync can overlap that work with the first wait. Errors of writing the pages are reported by the sync that
follows, because this call does not wait for them; a failure to start the write is raised here.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

_SYNC_FILE_RANGE_WRITE = 2
_NOT_HERE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ESPIPE, errno.EOPNOTSUPP})
"""A kernel, a file system or a sandbox without it."""


def _begin_writing() -> Callable[[int, int, int], None]:
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return lambda _handle, _at, _length: None  # not Linux
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

    def begin(handle: int, at: int, length: int) -> None:
        if call(handle, at, length, _SYNC_FILE_RANGE_WRITE) and (code := ctypes.get_errno()) not in _NOT_HERE:
            raise OSError(code, os.strerror(code))

    return begin


begin_writing = _begin_writing()
"""(handle, position, length): these bytes of a file, which were written before."""
