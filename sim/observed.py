"""An engine that reports durable frames to the ledger, and delegates everything else to the wrapped engine.

Every record passes the journal port, so observing the port observes all records, without a hook in the product.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from penstock.batch import Buffer
from penstock.core import snapshot
from penstock.core.apply import apply
from penstock.core.state import Shard
from penstock.journal.codec import decode
from penstock.journal.frame import HEADER, Frame
from penstock.journal.port import (
    Engine,
    Head,
    InlineJournal,
    Place,
    ResolvableJournal,
    Resolved,
    ShardJournal,
    Source,
    Tail,
)
from sim.ledger import Ledger
from sim.nonces import NonceOracle
from sim.violation import Violation

SLEW = 0.1
"""Journal time may run this much faster or slower than real time, but never jumps."""


class History:
    """All durable records: in the ledger, and as a state without snapshots."""

    def __init__(self, ledger: Ledger, seconds: Callable[[], float], report: Callable[[Violation], None]):
        self.ledger = ledger
        self.nonces = NonceOracle(report)
        self.genesis = Shard()
        self.genesis.replaying = True
        """The state after all records, applied one by one. It never decides."""
        self.frames = 0
        self._seconds = seconds
        self._report = report
        self._last_time: tuple[int, float] | None = None

    def add(self, index: int, chain: bytes, body: memoryview) -> None:
        facts = [record for _, record in decode(body)]
        self.frames += 1
        try:
            self.ledger.feed(index, chain, [self.nonces.decrypted(record) for record in facts])
            for record in facts:
                apply(self.genesis, record)
        except Violation as violation:
            self._report(violation)
        except Exception as error:
            # A record names an object that no earlier record created: the ledger or the state machine cannot apply it.
            self._report(Violation("I8", f"frame {index} does not follow from those before it: {error!r}"))

    async def catch_up(self, journal: ShardJournal) -> None:
        """Add the frames that are durable although no append reported it. No other frame may differ."""
        ledger = self.ledger
        if journal.tail.index < ledger.index:
            raise Violation(
                "I1", f"frame {ledger.index} was durable, and after recovery the journal ends with {journal.tail.index}"
            )
        async for _, frame in journal.replay(ledger.index - 1 if ledger.index else 0):
            if frame.index == ledger.index:
                if frame.chain != ledger.chain:
                    raise Violation("I10", f"frame {frame.index} is not the one that was written")
            elif frame.index > ledger.index:
                self.add(frame.index, frame.chain, frame.body)

    def new_process(self) -> None:
        """A process starts with a clock of its own."""
        self._last_time = None

    def check_clock(self, at_ms: int) -> None:
        """A frame is stamped with this journal time, now."""
        seconds = self._seconds()
        if self._last_time is not None:
            then_ms, then = self._last_time
            elapsed_ms, journal_ms = (seconds - then) * 1000, at_ms - then_ms
            if abs(journal_ms - elapsed_ms) > elapsed_ms * SLEW + 2:
                self._report(Violation("I5", f"journal time moved by {journal_ms} ms in {elapsed_ms:.0f} ms"))
        self._last_time = (at_ms, seconds)

    def digest_at(self, by_ms: int) -> str:
        """A digest of the state at this time. The time is not stored: a process may crash after it."""
        advanced_ms, self.genesis.advanced_ms = self.genesis.advanced_ms, by_ms
        try:
            return snapshot.digest(self.genesis)
        finally:
            self.genesis.advanced_ms = advanced_ms


class ObservedJournal:
    """Satisfies `ShardJournal`."""

    def __init__(self, inner: ShardJournal, history: History):
        self._inner = inner
        self._history = history
        self.term = inner.term
        self.traits = inner.traits
        self.tail: Tail = inner.tail
        self._note_written: Callable[[], None] = lambda: None

    @property
    def durable(self) -> bool:
        return self._inner.durable

    @property
    def short_of_space(self) -> bool:
        return self._inner.short_of_space

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        note = self._noting(index, parts)
        locator = await self._inner.append(index, parts)
        self.tail = self._inner.tail
        note()
        return locator

    async def resolve(self) -> Resolved:
        assert isinstance(self._inner, ResolvableJournal)
        resolved = await self._inner.resolve()
        self.term, self.tail = self._inner.term, self._inner.tail
        await self._history.catch_up(self._inner)
        return resolved

    def can_write_inline(self) -> bool:
        return isinstance(self._inner, InlineJournal) and self._inner.can_write_inline()

    def write(self, index: int, parts: Sequence[Buffer]) -> int:
        assert isinstance(self._inner, InlineJournal)
        self._note_written = self._noting(index, parts)
        locator = self._inner.write(index, parts)
        self.tail = self._inner.tail
        return locator

    def sync(self) -> None:
        assert isinstance(self._inner, InlineJournal)
        self._inner.sync()
        self._note_written()

    def _noting(self, index: int, parts: Sequence[Buffer]) -> Callable[[], None]:
        """A function that adds the frame to the history; called when the frame is durable, before any reply is sent."""
        header = HEADER.unpack(parts[0])
        self._history.check_clock(header[8])
        return lambda: self._history.add(index, header[10], memoryview(b"".join(parts[1:])))

    async def replay(self, after: int) -> AsyncGenerator[tuple[int, Frame], None]:
        async with aclosing(self._inner.replay(after)) as frames:
            async for located in frames:
                yield located

    def peek(self, source: Source, skip: int, length: int) -> bytes | None:
        return self._inner.peek(source, skip, length)

    async def fetch(self, places: Sequence[Place]) -> list[bytes]:
        return await self._inner.fetch(places)

    async def head(self) -> Head | None:
        return await self._inner.head()

    async def commit_head(self, head: Head) -> None:
        await self._inner.commit_head(head)

    def has(self, locator: int, size: int) -> bool:
        return self._inner.has(locator, size)

    def where(self, locator: int, skip: int) -> str:
        return self._inner.where(locator, skip)

    async def trim(self, upto: int) -> None:
        await self._inner.trim(upto)

    async def read_frames(self, after: int, bytes_max: int) -> list[Frame]:
        return await self._inner.read_frames(after, bytes_max)

    def bytes_since(self, index: int) -> int:
        return self._inner.bytes_since(index)

    async def index_before(self, at_ms: int) -> int:
        return await self._inner.index_before(at_ms)

    async def first_kept(self) -> int:
        return await self._inner.first_kept()

    async def put_blobs(self, blobs: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        await self._inner.put_blobs(blobs)

    async def list_blobs(self, prefix: str) -> list[tuple[str, int]]:
        return await self._inner.list_blobs(prefix)

    async def delete_blobs(self, names: Sequence[str]) -> None:
        await self._inner.delete_blobs(names)

    async def roll(self) -> None:
        await self._inner.roll()

    async def scrub(self) -> None:
        await self._inner.scrub()

    def file_ends(self) -> list[tuple[int, int]]:
        return self._inner.file_ends()

    def free_bytes(self) -> int:
        return self._inner.free_bytes()

    async def check_space(self) -> None:
        await self._inner.check_space()

    async def hold_room_for(self, blob_bytes: int) -> None:
        await self._inner.hold_room_for(blob_bytes)

    async def close(self) -> None:
        await self._inner.close()


class ObservedEngine:
    """Satisfies `Engine`."""

    def __init__(self, inner: Engine, history: History):
        self._inner = inner
        self._history = history

    def node_id(self, fresh: bytes) -> bytes:
        return self._inner.node_id(fresh)

    def shard_count(self, fresh: int) -> int:
        return self._inner.shard_count(fresh)

    async def check(self) -> None:
        await self._inner.check()

    def missing(self) -> str | None:
        return self._inner.missing()

    async def acquire(self, shard: int, owner: bytes) -> ObservedJournal:
        journal = await self._inner.acquire(shard, owner)
        await self._history.catch_up(journal)
        self._history.new_process()
        return ObservedJournal(journal, self._history)

    async def close(self) -> None:
        await self._inner.close()
