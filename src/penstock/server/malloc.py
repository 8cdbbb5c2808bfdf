"""Return freed heap memory to the operating system.

An upkeep round allocates and frees megabytes between long-lived objects, and glibc keeps the freed chunks: with a
million pending delays, 80 MiB were resident of which 27 were in use.
"""

from __future__ import annotations

import asyncio
import ctypes
from typing import Any


class MallocTrim:
    """Calls `malloc_trim` if the C library has it."""

    def __init__(self) -> None:
        self._trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def trim(self) -> None:
        """Trim the heap in an executor thread; ctypes releases the GIL. Must be called from the event loop."""
        if self._trim is not None:
            asyncio.get_running_loop().run_in_executor(None, self._trim, 0)
