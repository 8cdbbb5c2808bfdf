"""Reading stored pieces of the log: checked record by record, and cached.

A record that does not check is damaged. The other records of its piece are read nevertheless: damage of one record must
not take its neighbours away. A read that the disk refuses is no damage: it is tried again with the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from typing import NamedTuple, TypeVar

from penstock import limits
from penstock.core.records import EncryptedPublished, Published
from penstock.encryption.record_cipher import DecryptedRecord, NotDecrypted, RecordCipher
from penstock.errors import Unavailable
from penstock.journal.codec import PREFIX, UnknownRecord, decode_at
from penstock.journal.port import Damaged, EngineError, Place, ShardJournal, Source
from penstock.runtime.node_memory import PieceKey, ReadPieces

T = TypeVar("T")


class DamagedMessages(Unavailable):
    """Stored messages that cannot be read again. The text names the file and the offset."""


class NotAtHand(Unavailable):
    """Stored messages that have to be fetched before they can be read: await `fetch`, then read again."""

    def __init__(self, pieces: StoredPieces, keys: list[PieceKey]):
        super().__init__("the messages are being read from the store", retry_after_ms=100)
        self._pieces = pieces
        self._keys = keys

    async def fetch(self) -> None:
        """Raises Unavailable if the store cannot be reached."""
        await self._pieces.fetch(self._keys)

    def pinned(self) -> AbstractContextManager[object]:
        """Keep the messages in memory until the end of this context, from the moment they are fetched."""
        return self._pieces.pinned(self._keys)


async def when_at_hand(read: Callable[[], T]) -> T:
    """The result of `read`, which is called again after each fetch of messages that it did not find at hand. It must
    have no effect before it returns."""
    with ExitStack() as stack:
        while True:
            try:
                return read()
            except NotAtHand as missing:
                # All that `read` needs has to be in memory at once, also if it is more than the cache has room for.
                stack.enter_context(missing.pinned())
                await missing.fetch()


class Piece(NamedTuple):
    """The records of a stored piece that belong to its partition."""

    records: list[Published]
    problem: str = ""
    """File, offset and kind of the first damage in the piece; messages that `records` and `erased` lack are damaged."""
    erased: Sequence[tuple[int, int]] = ()
    """(first, stop) offsets of messages whose data keys were destroyed."""


class StoredPieces:
    """The pieces of one shard's journal and segments. Those that were read last stay in memory, up to a bound."""

    def __init__(self, journal: ShardJournal, cached: ReadPieces, cipher: RecordCipher | None = None):
        self._journal = journal
        self._cipher = cipher
        self._cached = cached
        self.all_at_hand = journal.traits.read_ms == 0
        """True if no piece ever has to be fetched."""
        self._fetching: dict[PieceKey, asyncio.Future[None]] = {}
        self.read_errors = 0
        """Reads that the disk refused, since the start."""

    def read(self, place: tuple[int, int], locator: int, skip: int, length: int, *, keep: bool = True) -> Piece:
        """Raises Unavailable if the disk refuses to read, and NotAtHand if the piece has to be fetched first.

        `keep`: it may be asked for again."""
        key = (*place, locator, skip, length)
        found = self._cached.get(self, key)
        if found is None:
            found = self._read(place, locator, skip, length)
            if keep:
                self._cached.put(self, key, found)
        return found

    def is_at_hand(self, key: PieceKey) -> bool:
        return self.all_at_hand or self._cached.has(self, key) or self._peek(*key[2:]) is not None

    @contextmanager
    def pinned(self, keys: Sequence[PieceKey] = ()) -> Iterator[Callable[[Sequence[PieceKey]], None]]:
        """Pieces of these keys, and of those that the yielded function is called with, are not dropped from memory
        before the end of the context, once they are there."""
        held: set[PieceKey] = set()

        def pin(more: Sequence[PieceKey]) -> None:
            fresh = set(more) - held
            held.update(fresh)
            self._cached.pin(self, fresh)

        pin(keys)
        try:
            yield pin
        finally:
            self._cached.unpin(self, held)

    async def fetch(self, keys: Sequence[PieceKey]) -> None:
        """Bring these pieces into memory. Raises Unavailable if the store cannot be reached."""
        wanted = [key for key in keys if key not in self._fetching and not self._cached.has(self, key)]
        others = [self._fetching[key] for key in keys if key in self._fetching]
        if wanted:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._fetching.update(dict.fromkeys(wanted, done))
            try:
                await self._fetch(wanted)
            finally:
                for key in wanted:
                    del self._fetching[key]
                done.set_result(None)
        for each in others:
            await asyncio.shield(each)

    async def _fetch(self, keys: list[PieceKey]) -> None:
        """Of several pieces one may be missing in the store: then they are fetched one by one, and that one is known to
        be damaged from then on."""
        places = [Place(self._source(locator), skip, length) for _, _, locator, skip, length in keys]
        try:
            found = await self._journal.fetch(places)
        except (Damaged, FileNotFoundError) as error:
            if len(keys) > 1:
                for key in keys:
                    await self._fetch([key])
            else:
                (key,) = keys
                missing = f"{self.where(*key[2:4])}: the file is missing"
                self._cached.put(self, key, Piece([], str(error) if isinstance(error, Damaged) else missing))
            return
        except (EngineError, OSError) as error:
            self.read_errors += 1
            raise Unavailable(f"the store cannot be read now: {error}", retry_after_ms=1_000) from error
        for key, data in zip(keys, found, strict=True):
            self._cached.put(self, key, self._decode(key[:2], *key[2:], data))

    async def raw(self, locator: int, skip: int, length: int) -> bytes:
        """The unchecked bytes; zeros for those that are missing."""
        try:
            data = self._peek(locator, skip, length)
            if data is None:
                data = (await self._journal.fetch([Place(self._source(locator), skip, length)]))[0]
            return data.ljust(length, b"\0")
        except (Damaged, FileNotFoundError):
            return bytes(length)

    def clear(self) -> None:
        self._cached.forget(self)

    def _read(self, place: tuple[int, int], locator: int, skip: int, length: int) -> Piece:
        try:
            data = self._bytes(place, locator, skip, length)
        except Damaged as error:
            return Piece([], str(error))
        return self._decode(place, locator, skip, length, data)

    def _decode(self, place: tuple[int, int], locator: int, skip: int, length: int, data: bytes) -> Piece:
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

    def _bytes(self, place: tuple[int, int], locator: int, skip: int, length: int) -> bytes:
        data = self._peek(locator, skip, length)
        if data is None:
            missing = NotAtHand(self, [(*place, locator, skip, length)])
            # For callers that only pass the error on: the next attempt finds the messages.
            asyncio.ensure_future(missing.fetch()).add_done_callback(_ignore)
            raise missing
        return data

    def _source(self, locator: int) -> Source:
        return locator if locator > 0 else segment_name(-locator)

    def _peek(self, locator: int, skip: int, length: int) -> bytes | None:
        try:
            return self._journal.peek(locator if locator > 0 else segment_name(-locator), skip, length)
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


def _ignore(fetch: asyncio.Future[None]) -> None:
    """Every caller that needs the messages asks for itself, and meets the same failure."""
    if not fetch.cancelled():
        fetch.exception()


@lru_cache(maxsize=1_024)
def segment_name(number: int) -> str:
    return f"segment-{number:012d}"
