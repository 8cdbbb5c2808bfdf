"""Columns of message ids: the text of consecutive ULIDs as one Arrow array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.ids import ULID_CHARS, ulid_text

_PAIRS = np.frombuffer("".join(ulid_text(value)[-2:] for value in range(1024)).encode(), dtype=np.uint16)
"""The two characters of every value of ten bits."""


def ulid_column(firsts: Sequence[int], counts: Any) -> pa.Array:
    """The ids of runs of messages: those of run *i* count up from `firsts[i]`."""
    counts = np.asarray(counts, dtype=np.int64)
    total = int(counts.sum())
    high = np.repeat(np.array([first >> 64 for first in firsts], dtype=np.uint64), counts)
    low = np.repeat(np.array([first & (2**64 - 1) for first in firsts], dtype=np.uint64), counts)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    moved = low + (np.arange(total) - begins).astype(np.uint64)
    high += moved < low  # carry from the lower half
    letters = np.empty((total, ULID_CHARS // 2), dtype=np.uint16)
    for pair in range(ULID_CHARS // 2):
        shift = 120 - 10 * pair
        if shift >= 64:
            bits = high >> np.uint64(shift - 64)
        elif shift > 54:
            bits = (moved >> np.uint64(shift)) | (high << np.uint64(64 - shift))
        else:
            bits = moved >> np.uint64(shift)
        letters[:, pair] = _PAIRS[(bits & np.uint64(1023)).astype(np.int64)]
    offsets = np.arange(0, ULID_CHARS * (total + 1), ULID_CHARS, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), total, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
