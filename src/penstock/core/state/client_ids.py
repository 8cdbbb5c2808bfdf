"""The client ids that a queue remembers, in about 30 to 60 bytes each.

The ids are a *log*: entries in the order in which they became known, numbered without a gap, in chunks of columns. An
entry is the 128-bit BLAKE2b digest of an id; entries of one published run share one row with time, partition, first
offset and first message id. Nothing in the log changes: an id that is freed, or used again, gets another entry, and the
latest one counts. Entries leave at the front, in bounded steps. So a chunk that was written to a blob stays valid, and
later snapshots only name it (`runtime/stored_ids.py`).

The *index* finds the latest entry of an id. It is a linear hash: buckets of 8-byte pairs (first 4 bytes of the digest,
number of the entry), searched with `bytes.rfind`, and split one at a time as the log grows, so that no step has to move
all of them. A pair only says where to look; the digest in the log decides.

Two ids with the same digest would make one a duplicate of the other. With five million ids in the window the chance is
4e-26; a client that searches for such a pair needs 2**64 digests and harms its own queue (ADR 0037).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from operator import and_
from struct import Struct
from typing import Any, NamedTuple

from penstock.core.state.stored_chunk import StoredChunk

CHUNK_IDS = 16_384
"""A chunk with so many entries is closed; the next run begins another one."""
BUCKET_IDS = 48
"""Entries of a bucket, at most, on average."""
SWEEP_EVERY = 8
"""One bucket is swept for so many entries that are dropped."""
DIGEST_BYTES = 16
NUMBERS = 1 << 32
"""The index has numbers modulo this; far fewer entries are remembered at a time."""
KEPT = 0x8000
"""Added to the partition of an entry that is beyond the window: a handle of an unfinished message, not a duplicate."""
FREED = 0xFFFF
"""The partition of an entry that frees its id."""
_HASH = Struct("<I").unpack_from
_PAIR = Struct("<II").pack
_EIGHT_BYTES = Struct("8s").iter_unpack
_COLUMNS = {"starts": "I", "ats": "I", "partitions": "H", "offsets": "Q", "highs": "Q", "lows": "Q"}
RUN_BYTES = sum(array(kind).itemsize for kind in _COLUMNS.values())
_LOW = 2**64 - 1


class Place(NamedTuple):
    """Where a message was stored."""

    partition: int
    offset: int
    id: int


@lru_cache(maxsize=10_240)
def digest_of(client_id: bytes) -> bytes:
    """An id is looked up when its publish is decided and added when that is applied: the second time it is cached."""
    return blake2b(client_id, digest_size=DIGEST_BYTES).digest()


class IdChunk:
    """A stretch of the log. Columns only grow, and no longer once the chunk is closed."""

    __slots__ = ("ats", "base", "digests", "first", "highs", "lows", "offsets", "partitions", "starts", "stored")

    def __init__(self, first: int, base: int):
        self.first = first
        """The number of its first entry."""
        self.base = base
        """Times are milliseconds since then."""
        self.digests: bytes | bytearray = bytearray()
        self.starts = array("I")
        """Of each run, its first entry, counted from the beginning of the chunk."""
        self.ats = array("I")
        self.partitions = array("H")
        self.offsets = array("Q")
        self.highs = array("Q")
        self.lows = array("Q")
        self.stored: StoredChunk | None = None
        """Soft: where the chunk was written. A chunk that is stored is closed."""

    def __len__(self) -> int:
        return len(self.digests) // DIGEST_BYTES

    def begin_run(self, at_ms: int, mark: int, offset: int, message_id: int) -> None:
        """The entries that follow are of messages that lie side by side. `mark` is the partition, with its flag."""
        self.starts.append(len(self))
        self.ats.append(at_ms - self.base)
        self.partitions.append(mark)
        self.offsets.append(offset)
        self.highs.append(message_id >> 64)
        self.lows.append(message_id & _LOW)

    def run_of(self, entry: int) -> int:
        return bisect_right(self.starts, entry) - 1

    def digest(self, entry: int) -> bytes:
        return bytes(self.digests[DIGEST_BYTES * entry : DIGEST_BYTES * (entry + 1)])

    def place(self, entry: int, run: int) -> Place:
        row = entry - self.starts[run]
        first_id = self.highs[run] << 64 | self.lows[run]
        return Place(self.partitions[run] & ~KEPT, self.offsets[run] + row, first_id + row)

    @property
    def is_open(self) -> bool:
        return isinstance(self.digests, bytearray)

    @property
    def run_bytes(self) -> int:
        return RUN_BYTES * len(self.starts)

    def close(self) -> None:
        """Give up the room for more."""
        self.digests = bytes(self.digests)
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[:])

    def encode(self, entries: int, runs: int) -> bytes:
        """The first so many entries and runs; what is added meanwhile is left out."""
        columns = [getattr(self, name)[:runs].tobytes() for name in _COLUMNS]
        return b"".join([self.digests[: DIGEST_BYTES * entries], *columns])

    @classmethod
    def load(cls, first: int, base: int, entries: int, runs: int, data: bytes) -> IdChunk:
        if len(data) != DIGEST_BYTES * entries + RUN_BYTES * runs:
            raise ValueError(f"{entries} ids in {runs} runs do not have {len(data)} bytes")
        chunk = cls(first, base)
        at = DIGEST_BYTES * entries
        chunk.digests = data[:at]
        for name in _COLUMNS:
            column: array[int] = getattr(chunk, name)
            column.frombytes(data[at : at + runs * column.itemsize])
            at += runs * column.itemsize
        return chunk


class ClientIds:
    """The log of one queue and its index. The log is hard state, the index follows from it."""

    __slots__ = ("_buckets", "_firsts", "_mask", "chunks", "first", "next")

    def __init__(self) -> None:
        self.first = 0
        """The number of the first entry that is remembered."""
        self.next = 0
        self.chunks: list[IdChunk] = []
        self._firsts: list[int] = []
        self._buckets: list[bytearray] = []
        """None before the first id."""
        self._mask = 0
        """Buckets before the current round of splits, minus one."""

    def __len__(self) -> int:
        """Entries, of which some may be superseded."""
        return self.next - self.first

    # -- questions ----------------------------------------------------------------------------------------------------

    def get(self, client_id: bytes) -> tuple[int, Place] | None:
        """The latest message with this id and when it was stored; -1 for the time if that is beyond the window."""
        number = self._find(digest_of(client_id)) if self.chunks else None
        if number is None:
            return None
        chunk = self._chunk(number)
        entry = number - chunk.first
        run = chunk.run_of(entry)
        mark = chunk.partitions[run]
        if mark == FREED:
            return None
        return -1 if mark & KEPT else chunk.base + chunk.ats[run], chunk.place(entry, run)

    def closed_chunks(self, ids_min: int) -> list[IdChunk]:
        """The chunks that do not change any more. The last one is closed now if it has at least so many ids."""
        if self.chunks and self.chunks[-1].is_open:
            if len(self.chunks[-1]) < ids_min:
                return self.chunks[:-1]
            self.chunks[-1].close()
        return self.chunks[:]

    def rows(self) -> Iterator[tuple[bytes, int, int, int, bytes]]:
        """Every entry as (digest, time, partition with its flag, offset, message id), in the order of the log."""
        for number in range(self.first, self.next):
            chunk = self._chunk(number)
            entry = number - chunk.first
            run = chunk.run_of(entry)
            row, mark = entry - chunk.starts[run], chunk.partitions[run]
            message_id = (chunk.highs[run] << 64 | chunk.lows[run]) + row
            at_ms = chunk.base + chunk.ats[run]
            yield chunk.digest(entry), at_ms, mark, chunk.offsets[run] + row, message_id.to_bytes(16, "big")

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(self, client_ids: Sequence[bytes], at_ms: int, place: Place, flag: int = 0) -> None:
        """The ids of messages that were stored side by side from `place` on; empty for a message without one."""
        partition, offset, message_id = place
        if all(client_ids):
            self._add_run([digest_of(each) for each in client_ids], at_ms, partition | flag, offset, message_id)
            return
        for row, each in enumerate(client_ids):
            if each:
                self._add_run([digest_of(each)], at_ms, partition | flag, offset + row, message_id + row)

    def free(self, client_id: bytes, at_ms: int) -> None:
        if self.get(client_id) is not None:
            self._add_run([digest_of(client_id)], at_ms, FREED, 0, 0)

    def restore(self, row: Sequence[Any]) -> None:
        """Add what `rows` yielded."""
        digest, at_ms, mark, offset, message_id = row
        self._add_run([digest], at_ms, mark, offset, int.from_bytes(message_id, "big"))

    def forget_before(self, before_ms: int, now_ms: int, is_unfinished: Callable[[Place], bool], most: int) -> None:
        """Drop entries from before this time, but for the latest one of an unfinished message: it is added again, as a
        handle, and looked at again when that entry has become as old. Costs a look at up to `most` entries."""
        while most and self.chunks:
            most -= 1
            chunk = self.chunks[0]
            entry = self.first - chunk.first
            run = chunk.run_of(entry)
            if chunk.base + chunk.ats[run] >= before_ms:
                return
            if chunk.partitions[run] != FREED and is_unfinished(place := chunk.place(entry, run)):
                digest = chunk.digest(entry)
                if self._find(digest) == self.first:
                    self._add_run([digest], now_ms, place.partition | KEPT, place.offset, place.id)
            self.first += 1
            if entry + 1 == len(chunk):
                del self.chunks[0], self._firsts[0]
            if not self.first % SWEEP_EVERY:
                self._sweep()
            if len(self._buckets) > 1 and len(self) < BUCKET_IDS // 4 * len(self._buckets):
                self._merge()

    def load(self, first: int, chunks: list[IdChunk]) -> None:
        """Take over these chunks, which the log consisted of, and build the index."""
        self.first, self.chunks = first, chunks
        self._firsts = [chunk.first for chunk in chunks]
        self.next = chunks[-1].first + len(chunks[-1]) if chunks else first
        size = 1
        while BUCKET_IDS * size < len(self):
            size *= 2
        self._mask = mask = size - 1
        self._buckets = buckets = [bytearray() for _ in range(size)] if chunks else []
        for chunk in chunks:
            lows = array("I", chunk.digests)[::4]
            pairs = array("I", bytes(8 * len(chunk)))
            pairs[::2] = lows
            numbers = range(chunk.first, chunk.first + len(chunk))
            pairs[1::2] = array("I", map(and_, numbers, repeat(NUMBERS - 1)))
            for low, (pair,) in zip(lows, _EIGHT_BYTES(pairs), strict=True):
                buckets[low & mask] += pair
        if chunks and chunks[-1].stored is None and len(chunks[-1]) < CHUNK_IDS:
            chunks[-1].digests = bytearray(chunks[-1].digests)

    def _add_run(self, digests: list[bytes], at_ms: int, mark: int, offset: int, message_id: int) -> None:
        chunk = self._open_chunk(at_ms)
        chunk.begin_run(at_ms, mark, offset, message_id)
        chunk.digests += b"".join(digests)
        buckets = self._buckets
        for digest in digests:
            (low,) = _HASH(digest)
            at = low & (2 * self._mask + 1)
            buckets[at if at < len(buckets) else low & self._mask] += _PAIR(low, self.next % NUMBERS)
            self.next += 1
            if self.next - self.first > BUCKET_IDS * len(buckets):
                self._split()

    def _open_chunk(self, at_ms: int) -> IdChunk:
        """The chunk that the next run goes to."""
        if self.chunks:
            last = self.chunks[-1]
            if last.is_open and len(last) < CHUNK_IDS and 0 <= at_ms - last.base < NUMBERS:
                return last
            if last.is_open:
                last.close()
        self._buckets = self._buckets or [bytearray()]
        self.chunks.append(IdChunk(self.next, at_ms))
        self._firsts.append(self.next)
        return self.chunks[-1]

    # -- the index ----------------------------------------------------------------------------------------------------

    def _chunk(self, number: int) -> IdChunk:
        return self.chunks[bisect_right(self._firsts, number) - 1]

    def _find(self, digest: bytes) -> int | None:
        """The number of the latest entry with this digest."""
        (low,) = _HASH(digest)
        at = low & (2 * self._mask + 1)
        bucket = self._buckets[at if at < len(self._buckets) else low & self._mask]
        wanted = digest[:4]
        at = bucket.rfind(wanted)
        while at >= 0:
            if not at & 7:
                number = self._number(int.from_bytes(bucket[at + 4 : at + 8], "little"))
                if number < self.next:
                    chunk = self._chunk(number)
                    if chunk.digest(number - chunk.first) == digest:
                        return number
            at = bucket.rfind(wanted, 0, at + 3)
        return None

    def _number(self, low: int) -> int:
        """The number with these low bits; `next` or more if the entry has been dropped."""
        return self.first + (low - self.first) % NUMBERS

    def _living(self, bucket: bytearray) -> list[int]:
        """The pairs of a bucket whose entries have not been dropped."""
        first, count = self.first, self.next - self.first
        return [pair for pair in array("Q", bytes(bucket)) if ((pair >> 32) - first) % NUMBERS < count]

    def _sweep(self) -> None:
        """Remove dropped entries from the index, one bucket at a time."""
        at = self.first // SWEEP_EVERY % len(self._buckets)
        self._buckets[at] = _bucket(self._living(self._buckets[at]))

    def _split(self) -> None:
        """One more bucket: it gets the pairs of an earlier one whose digests have one more bit set."""
        bit = self._mask + 1
        at = len(self._buckets) - bit
        pairs = self._living(self._buckets[at])
        self._buckets[at] = _bucket([pair for pair in pairs if not pair & bit])
        self._buckets.append(_bucket([pair for pair in pairs if pair & bit]))
        if len(self._buckets) == 2 * bit:
            self._mask = 2 * bit - 1

    def _merge(self) -> None:
        """One bucket less: the opposite of `_split`."""
        if len(self._buckets) == self._mask + 1:
            self._mask >>= 1
        pairs = self._living(self._buckets.pop())
        at = len(self._buckets) - self._mask - 1
        pairs += self._living(self._buckets[at])
        # The latest entry of an id comes last.
        self._buckets[at] = _bucket(sorted(pairs, key=lambda pair: self._number(pair >> 32)))


def _bucket(pairs: list[int]) -> bytearray:
    return bytearray(array("Q", pairs).tobytes())
