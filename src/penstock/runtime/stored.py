"""Reading stored pieces of the log: checked record by record, and cached.

A record that does not check is damaged. The other records of its piece are read nevertheless: damage of one record must
not take its neighbours away. A read that the disk refuses is no damage: it is tried again with the next request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock import limits
from penstock.core.records import EncryptedPublished, Published
from penstock.encryption.record_cipher import DecryptedRecord, NotDecrypted, RecordCipher
from penstock.errors import Unavailable
from penstock.journal.codec import PREFIX, UnknownRecord, decode_at
from penstock.journal.port import Damaged, ShardJournal


class DamagedMessages(Unavailable):
    """Stored messages that cannot be read again. The text names the file and the offset."""


class Piece(NamedTuple):
    """The records of a stored piece that belong to its partition."""

    records: list[Published]
    problem: str = ""
    """File, offset and kind of the first damage in the piece; messages that `records` and `erased` lack are damaged."""
    erased: Sequence[tuple[int, int]] = ()
    """(first, stop) offsets of messages whose data keys were destroyed."""


class StoredPieces:
    """The pieces of one shard's journal and segments. Those that were read last stay in memory, up to a bound."""

    def __init__(self, journal: ShardJournal, cipher: RecordCipher | None = None):
        self._journal = journal
        self._cipher = cipher
        self._cached: dict[tuple[int, int, int, int, int], Piece] = {}
        """The one that was read longest ago first."""
        self._room = limits.LAST_READ_BYTES_MAX
        self.read_errors = 0
        """Reads that the disk refused, since the start."""

    def read(self, place: tuple[int, int], locator: int, skip: int, length: int) -> Piece:
        """Raises Unavailable if the disk refuses to read."""
        key = (*place, locator, skip, length)
        found = self._cached.pop(key, None)
        if found is None:
            found = self._read(place, locator, skip, length)
            self._room -= length
            while self._room < 0 and self._cached:
                oldest = next(iter(self._cached))
                del self._cached[oldest]
                self._room += oldest[4]
        self._cached[key] = found
        return found

    def raw(self, locator: int, skip: int, length: int) -> bytes:
        """The unchecked bytes; zeros for those that are missing."""
        try:
            return self._bytes(locator, skip, length).ljust(length, b"\0")
        except Damaged:
            return bytes(length)

    def clear(self) -> None:
        self._cached.clear()
        self._room = limits.LAST_READ_BYTES_MAX

    def _read(self, place: tuple[int, int], locator: int, skip: int, length: int) -> Piece:
        try:
            data = self._bytes(locator, skip, length)
        except Damaged as error:
            return Piece([], str(error))
        at, records, problem, erased = 0, list[Published](), "", list[tuple[int, int]]()
        while at < len(data):
            try:
                record, after = decode_at(data, at)
                if isinstance(record, Published) and (record.queue, record.partition) == place:
                    if type(record) is EncryptedPublished:
                        decrypted = self._decrypt(record)
                        records += decrypted.records
                        erased += decrypted.erased
                    else:
                        records.append(record)
            except UnknownRecord as error:
                problem = problem or f"{self.where(locator, skip + at)}: {error}"
                after = _next_record(data, at)
            except NotDecrypted as error:
                problem = problem or f"{self.where(locator, skip + at)}: the record cannot be decrypted: {error}"
            at = after
        if len(data) < length:
            problem = problem or f"{self.where(locator, skip + len(data))}: the file ends here"
        return Piece(records, problem, erased)

    def _decrypt(self, record: EncryptedPublished) -> DecryptedRecord:
        if self._cipher is None:
            raise NotDecrypted("the server has no encryption key")
        return self._cipher.decrypt(record)

    def _bytes(self, locator: int, skip: int, length: int) -> bytes:
        try:
            if locator > 0:
                return self._journal.read(locator, skip, length)
            return self._journal.read_blob(segment_name(-locator), skip, length)
        except FileNotFoundError:
            raise Damaged(f"{self.where(locator, skip)}: the file is missing") from None
        except OSError as error:
            self.read_errors += 1
            raise Unavailable(
                f"{self.where(locator, skip)}: the disk cannot read this now ({error.strerror or error})",
                retry_after_ms=1_000,
            ) from error

    def where(self, locator: int, skip: int) -> str:
        return self._journal.where(locator, skip) if locator > 0 else f"{segment_name(-locator)}, offset {skip}"


def _next_record(data: bytes, after: int) -> int:
    """The position of the next record that checks behind the damaged one at `after`; the end if there is none."""
    # A larger piece is a single record.
    for at in range(after + 1, len(data) - PREFIX.size if len(data) <= limits.SPARSE_INDEX_BYTES else 0):
        meta, attached, _ = PREFIX.unpack_from(data, at)
        if meta and at + PREFIX.size + meta + attached <= len(data):
            try:
                decode_at(data, at)
            except UnknownRecord:
                continue
            return at
    return len(data)


@lru_cache(maxsize=1_024)
def segment_name(number: int) -> str:
    return f"segment-{number:012d}"
