"""The place of a chunk of state that was written to a blob: client ids, dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


class StoredChunk(NamedTuple):
    blob: int
    start: int
    crc: int


ChunkKind = Literal["ids", "letters"]
"""The name of a blob begins with the kind of its chunks."""
ReadStored = Callable[[ChunkKind, StoredChunk, int], bytes]
"""Reads a chunk of this kind and length."""


def nothing_stored(kind: ChunkKind, stored: StoredChunk, length: int) -> bytes:
    """For states whose chunks are all part of the snapshot."""
    raise ValueError(f"{length} bytes of {kind} lie in blob {stored.blob}")
