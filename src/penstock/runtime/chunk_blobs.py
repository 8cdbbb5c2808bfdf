"""Chunks of state in blobs: client ids, dead letters, far agenda entries. Written once, named by every snapshot since.

A blob has chunks of many queues and begins with a description of them. Each chunk has a checksum of its own, in memory
and in the snapshot. A blob that is named neither by the newest snapshot nor by the state can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import google_crc32c

from penstock import limits
from penstock.core.state.stored_chunk import StoredChunk
from penstock.journal.blobs import (
    AGENDA_MAGIC,
    HEADER,
    IDS_MAGIC,
    LETTERS_MAGIC,
    AgendaDescription,
    IdsDescription,
    LettersDescription,
    encode_description,
    seal_blob,
)
from penstock.journal.port import Damaged, ShardJournal
from penstock.runtime.pace import Pace

BLOB_BYTES_MAX = 4 * limits.MIB
"""A blob is assembled in memory."""
REWRITE_BELOW = 0.5
"""A blob of which a smaller share is in use is written again, together with others."""
SMALL_BLOBS_MAX = 8
"""If there are more blobs than this that are not even half full, they are written again as one."""

Peek = Callable[[str, int, int], bytes | None]
"""(blob, skip, length) -> bytes, as `ShardJournal.peek`."""
BlobKind = Literal["agenda", "ids", "letters"]
KINDS: tuple[BlobKind, ...] = ("agenda", "ids", "letters")
_MAGIC = {"agenda": AGENDA_MAGIC, "ids": IDS_MAGIC, "letters": LETTERS_MAGIC}
_CONTENT = {"agenda": "due times", "ids": "client ids", "letters": "dead letters"}


def blob_name(kind: BlobKind, number: int) -> str:
    return f"{kind}-{number:012d}"


async def blob_sizes(journal: ShardJournal, kind: BlobKind) -> dict[int, int]:
    """Number -> bytes of all blobs of a kind."""
    return {int(name.removeprefix(f"{kind}-")): size for name, size in await journal.list_blobs(f"{kind}-")}


def read_chunk(peek: Peek, kind: BlobKind, stored: StoredChunk, length: int) -> bytes:
    """Raises Damaged with the blob's name and the offset."""
    name = blob_name(kind, stored.blob)
    try:
        data = peek(name, stored.start, length) or b""
    except FileNotFoundError:
        raise Damaged(f"{name}, offset 0: {_CONTENT[kind]} are stored here, but the blob is missing") from None
    if len(data) != length or google_crc32c.value(data) != stored.crc:
        found = "the checksum does not match" if len(data) == length else f"{len(data)} of {length} bytes are left"
        raise Damaged(f"{name}, offset {stored.start}: {found}")
    return data


def sparse_blobs(used: Mapping[int, int], sizes: Mapping[int, int]) -> list[int]:
    """Blobs that are to be written again: `used` has their bytes that are in use, `sizes` all of them."""
    small = sorted(blob for blob, size in used.items() if size < BLOB_BYTES_MAX // 2)
    sparse = [blob for blob in sorted(used) if used[blob] < REWRITE_BELOW * sizes.get(blob, 0)]
    return list(dict.fromkeys([*(small if len(small) > SMALL_BLOBS_MAX else ()), *sparse]))


class ChunkWriter:
    def __init__(self, journal: ShardJournal, take_number: Callable[[], int], pace: Pace):
        self.journal = journal
        self.pace = pace
        self._take_number = take_number

    async def write(
        self,
        kind: BlobKind,
        description: AgendaDescription | IdsDescription | LettersDescription,
        chunks: Sequence[bytes],
    ) -> list[StoredChunk]:
        """Write a blob with these chunks. Returns their places."""
        number = self._take_number()
        prefix = encode_description(description)
        stored, at = [], HEADER.size + len(prefix)
        for chunk in chunks:
            stored.append(StoredChunk(number, at, google_crc32c.value(chunk)))
            at += len(chunk)
        await self.journal.put_blobs([(blob_name(kind, number), seal_blob(_MAGIC[kind], [prefix, *chunks]))])
        self.pace.begin()
        return stored
