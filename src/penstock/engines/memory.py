"""The reference engine: everything in this process, nothing on disk. Says so: `durable` is false.

It exists for tests and for brokers that may forget. Acquiring a shard again fences the earlier owner, as everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence

from penstock import limits
from penstock.batch import Buffer
from penstock.journal.frame import CHAIN_START, HEADER, Frame, read_frame
from penstock.journal.port import Failed, Fenced, Head, Place, Source, Tail, Traits


class _Store:
    def __init__(self) -> None:
        self.term = 0
        self.first = 1
        self.frames: list[bytes] = []
        self.blobs: dict[str, bytes] = {}
        self.head: Head | None = None


class MemoryJournal:
    durable = False
    traits = Traits("memory", limits.COMMIT_BYTES_MAX, 0.0, shared=False)
    short_of_space = False

    def __init__(self, store: _Store):
        self._store = store
        self._closed = False
        store.term += 1
        self.term = store.term
        chain = store.frames[-1][HEADER.size - 16 : HEADER.size] if store.frames else CHAIN_START
        self.tail = Tail(store.first + len(store.frames) - 1, chain)

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        return self.write(index, parts)

    def can_write_inline(self) -> bool:
        return True

    def write(self, index: int, parts: Sequence[Buffer]) -> int:
        self._check()
        assert index == self.tail.index + 1, "frames are appended in order"
        self._store.frames.append(b"".join(parts))
        self.tail = Tail(index, bytes(parts[0][HEADER.size - 16 : HEADER.size]))
        return index

    def sync(self) -> None:
        return

    async def replay(self, after: int) -> AsyncGenerator[tuple[int, Frame], None]:
        chain, first = CHAIN_START, self._store.first
        for position, data in enumerate(list(self._store.frames)):
            index = first + position
            frame = read_frame(memoryview(data), 0, (index, chain) if position or first == 1 else None)
            chain = frame.chain
            if index > after:
                yield index, frame

    async def read_frames(self, after: int, bytes_max: int) -> list[Frame]:
        found: list[Frame] = []
        first = self._store.first
        for data in self._store.frames[max(0, after + 1 - first) :]:
            found.append(read_frame(memoryview(data), 0))
            bytes_max -= len(data)
            if bytes_max <= 0:
                break
        return found

    def bytes_since(self, index: int) -> int:
        return sum(map(len, self._store.frames[max(0, index - self._store.first) :]))

    async def index_before(self, at_ms: int) -> int:
        frames = self._store.frames
        older = bisect_left(frames, at_ms, key=lambda data: read_frame(memoryview(data), 0).at_ms)
        return self._store.first + older - 1

    def peek(self, source: Source, skip: int, length: int) -> bytes:
        if isinstance(source, int):
            return self._store.frames[source - self._store.first][skip : skip + length]
        blob = self._store.blobs.get(source)
        if blob is None:
            raise FileNotFoundError(source)
        return blob[skip : skip + length]

    async def fetch(self, places: Sequence[Place]) -> list[bytes]:
        return [self.peek(*place) for place in places]

    def has(self, locator: int, size: int) -> bool:
        at = locator - self._store.first
        return 0 <= at < len(self._store.frames) and size <= len(self._store.frames[at])

    def where(self, locator: int, skip: int) -> str:
        return f"frame {locator} in memory, offset {skip}"

    async def first_kept(self) -> int:
        return self._store.first

    async def trim(self, upto: int) -> None:
        self._check()
        drop = max(0, min(upto, self.tail.index - 1) - self._store.first + 1)
        del self._store.frames[:drop]
        self._store.first += drop

    async def roll(self) -> None:
        self._check()

    async def scrub(self) -> None:
        self._check()

    def file_ends(self) -> list[tuple[int, int]]:
        last = self.tail.index - 1
        return [(last, last)] if last >= self._store.first else []

    async def put_blobs(self, blobs: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        self._check()
        self._store.blobs.update({name: b"".join(parts) for name, parts in blobs})

    async def head(self) -> Head | None:
        return self._store.head

    async def commit_head(self, head: Head) -> None:
        self._check()
        self._store.head = head

    async def list_blobs(self, prefix: str) -> list[tuple[str, int]]:
        return sorted((name, len(data)) for name, data in self._store.blobs.items() if name.startswith(prefix))

    async def delete_blobs(self, names: Sequence[str]) -> None:
        self._check()
        for name in names:
            self._store.blobs.pop(name, None)

    async def check_space(self) -> None:
        return

    def free_bytes(self) -> int:
        return 1 << 40

    async def hold_room_for(self, blob_bytes: int) -> None:  # noqa: ARG002  there is no disk
        self._check()

    def _check(self) -> None:
        if self._closed:
            raise Failed("the journal is closed")
        if self._store.term != self.term:
            raise Fenced(f"term {self.term} ended; the shard is in term {self._store.term}")

    async def close(self) -> None:
        self._closed = True


class MemoryEngine:
    def __init__(self) -> None:
        self._stores: dict[int, _Store] = {}

    def node_id(self, fresh: bytes) -> bytes:
        return fresh

    def shard_count(self, fresh: int) -> int:
        return fresh

    async def check(self) -> None:
        return

    def missing(self) -> str | None:
        return None

    async def acquire(self, shard: int, owner: bytes) -> MemoryJournal:  # noqa: ARG002  the store is private to the process
        return MemoryJournal(self._stores.setdefault(shard, _Store()))

    async def close(self) -> None:
        return
