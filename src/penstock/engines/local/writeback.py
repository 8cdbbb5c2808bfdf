"""Telling the kernel to begin writing what is about to be synced.

A sync writes the pages and then has the disk empty its cache: two waits. Whoever has something else to do between the
write and the sync can have the first one over with by then. It is a hint: an error in it comes out of the sync that
follows, because only waiting for pages takes notice of what became of them, and this does not wait.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_SYNC_FILE_RANGE_WRITE = 2


def _begin_writing() -> Callable[[int, int, int], object]:
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return lambda _handle, _at, _length: None  # not Linux
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return lambda handle, at, length: call(handle, at, length, _SYNC_FILE_RANGE_WRITE)


begin_writing = _begin_writing()
"""(handle, position, length): these bytes of a file, which were written before."""
