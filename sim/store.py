"""A journal in a store of its own process: requests and replies between the two can be lost.

The store itself is the wrapped engine, with its own faults. An append whose reply is lost was stored; one whose request
is late is stored just before the owner's next term begins, which is the last moment at which a store may accept it; one
whose request is lost never is. An append that is answered with a warning is on the primary and not on the standby: it
is stored if the standby receives it before the next term begins, and gone after a failover.

A put or a delete whose request is late is done at any later moment, also after the next process has begun, and so is a
put that a process had sent when it was killed: at the worst moment, which is behind a put of the same name. Keyrings
are left out: their puts need a store that fences them. A frame that a killed process had sent is stored at any later
moment, if its index is free.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any, Literal, cast

from penstock import limits
from penstock.batch import Buffer
from penstock.clock import Clock
from penstock.journal.frame import FrameWriter
from penstock.journal.port import (
    Ambiguous,
    Engine,
    Head,
    OutOfSpace,
    Place,
    Resolved,
    ShardJournal,
    Source,
    StoreUnavailable,
    Tail,
    Traits,
)
from sim.violation import Violation

Fault = Literal["lost_reply", "late_request", "lost_request", "unavailable", "warning"]
FAULTS: tuple[Fault, ...] = ("lost_reply", "late_request", "lost_request", "unavailable", "warning")


LATE_ARRIVES = 0.5
"""How often an append without an answer is stored before the next term begins."""
LATE_PUT_ARRIVES = 0.05
"""How often puts of earlier terms arrive with a put that has another name."""
READ_S = 0.002
"""A fetch takes this long, or returns in the same turn of the event loop."""


class Link:
    """The faults of the connection to the store: how many of the next calls meet one."""

    def __init__(self, rng: Random):
        self.rng = rng
        self._broken = 0
        self.head: Head | None = None
        self.late_deletes: list[list[str]] = []
        self.late_puts: list[tuple[int, str, list[Buffer]]] = []
        """Term, name and parts of blobs."""
        self.late_frames: list[int] = []
        """Indexes of frames that killed processes had sent."""
        self.first_frames: set[int] = set()
        """Indexes of the first frames of terms. The store keeps them when frames are trimmed."""

    def break_for(self, calls: int) -> None:
        self._broken = calls

    def heal(self) -> None:
        self._broken = 0

    def fault(self) -> Fault | None:
        if not self._broken:
            return None
        self._broken -= 1
        return self.rng.choice(FAULTS)


class RemoteJournal:
    """Satisfies `ShardJournal` and `ResolvableJournal`; all but the calls below is the wrapped journal's."""

    traits = Traits("replicated", 4 * limits.MIB, 1.0, shared=True)

    def __init__(self, inner: ShardJournal, link: Link, node: bytes, clock: Clock):
        self._inner = inner
        self._link = link
        self._node = node
        self._clock = clock
        self._rng = link.rng
        self._late: tuple[int, Sequence[Buffer]] | None = None
        self._recovered = False
        """A process whose store cannot be reached while it recovers ends, and is started again."""
        self._unresolved = False
        self._found: Tail | None = None
        """The last frame before the frames with which this owner began its new terms."""
        self._locator = 0
        self.term = inner.term

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def tail(self) -> Tail:
        return self._inner.tail

    def can_write_inline(self) -> bool:
        return False

    def peek(self, source: Source, skip: int, length: int) -> bytes | None:  # noqa: ARG002  nothing is at hand
        return None

    async def fetch(self, places: Sequence[Place]) -> list[bytes]:
        await asyncio.sleep(self._rng.choice((0.0, READ_S)))
        if self._recovered and self._link.fault() is not None:
            raise StoreUnavailable("the store cannot be reached")
        return await self._inner.fetch(places)

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        if self._unresolved:
            raise Violation("I10", f"frame {index} is appended while the outcome of another append is unknown")
        self._recovered = True
        fault = self._link.fault()
        if fault == "unavailable":
            raise StoreUnavailable("the store cannot be reached")
        if fault in (None, "lost_reply"):
            self._locator = await self._inner.append(index, parts)
        if fault is None:
            return self._locator
        if fault in ("late_request", "warning"):
            self._late = (index, list(parts))
            self._link.late_frames.append(index)
        if fault == "warning":
            return self._warned()
        self._unresolved = True
        raise Ambiguous("the connection to the store was lost")

    def _warned(self) -> int:
        """The store has answered with success and a warning: the standby may not have the frame."""
        self._unresolved = True
        raise Ambiguous("the store warned: canceling wait for synchronous replication")

    async def resolve(self) -> Resolved:
        fault = self._link.fault()
        if fault in ("unavailable", "lost_request", "late_request"):
            raise StoreUnavailable("the store cannot be reached")
        try:
            if self._late is not None and (self._found is not None or self._rng.random() < LATE_ARRIVES):
                self._locator = await self._inner.append(*self._late)
                self._link.late_frames.remove(self._late[0])
            self._late = None
            self._found = self._found or self._inner.tail
            await self.begin_term()
        except OutOfSpace as error:
            raise StoreUnavailable(str(error)) from error
        if fault == "lost_reply":
            raise Ambiguous("the connection to the store was lost")
        resolved, self._found, self._unresolved = Resolved(self._found, self._locator), None, False
        return resolved

    async def begin_term(self) -> None:
        """Store a frame without records at the next index, which no late append can take from now on."""
        index, chain = self._inner.tail.index, self._inner.tail.chain
        header = FrameWriter(self._node, self.term, index + 1, chain).seal(self._clock.now_ms(), [])
        await self._inner.append(index + 1, [header])
        self._link.first_frames.add(index + 1)

    # -- blobs --------------------------------------------------------------------------------------------------------

    def _meet(self) -> Fault | None:
        """A fault of a call that may be repeated."""
        fault = self._link.fault()
        if fault in ("unavailable", "lost_request"):
            raise StoreUnavailable("the store cannot be reached")
        return fault

    async def head(self) -> Head | None:
        return self._link.head

    async def commit_head(self, head: Head) -> None:
        fault = self._meet()
        if fault != "late_request":
            self._link.head = head
        if fault is not None:
            raise Ambiguous("the connection to the store was lost")

    async def put_blobs(self, blobs: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        fault = self._meet()
        sent = [(self.term, name, list(parts)) for name, parts in blobs if not name.startswith("keyring-")]
        self._link.late_puts += sent
        if fault != "late_request" or not sent:
            await self._inner.put_blobs(blobs)  # a process that is killed here does not come back
            for each in sent:
                self._link.late_puts.remove(each)
        await self._let_late_requests_arrive({name for name, _ in blobs})
        if fault is not None:
            raise Ambiguous("the connection to the store was lost")

    async def _let_late_requests_arrive(self, stored: set[str]) -> None:
        """Puts of earlier terms, first those whose names were used again, and deletes."""
        due = self._rng.random() < LATE_PUT_ARRIVES
        for late in [late for late in self._link.late_puts if late[0] < self.term and (due or late[1] in stored)]:
            self._link.late_puts.remove(late)
            await self._inner.delete_blobs([late[1]])
            await self._inner.put_blobs([late[1:]])
        for names in self._link.late_deletes:
            await self._inner.delete_blobs(names)

    async def delete_blobs(self, names: Sequence[str]) -> None:
        fault = self._meet()
        if fault == "late_request":
            self._link.late_deletes.append(list(names))
        else:
            await self._inner.delete_blobs(names)
        if fault is not None:
            raise Ambiguous("the connection to the store was lost")

    async def trim(self, upto: int) -> None:
        self._meet()
        await self._inner.trim(upto)
        kept = await self._inner.first_kept()
        for index in self._link.late_frames:
            if index < kept and index not in self._link.first_frames:
                raise Violation("I10", f"frame {index} of an earlier term is accepted: its index is free again")


class RemoteEngine:
    """Satisfies `Engine`."""

    def __init__(self, inner: Engine, link: Link, clock: Clock):
        self._inner = inner
        self._link = link
        self._clock = clock

    def node_id(self, fresh: bytes) -> bytes:
        return self._inner.node_id(fresh)

    def shard_count(self, fresh: int) -> int:
        return self._inner.shard_count(fresh)

    async def check(self) -> None:
        await self._inner.check()

    def missing(self) -> str | None:
        return self._inner.missing()

    async def acquire(self, shard: int, owner: bytes) -> ShardJournal:
        journal = RemoteJournal(await self._inner.acquire(shard, owner), self._link, owner, self._clock)
        with contextlib.suppress(OutOfSpace):
            await journal.begin_term()
        return cast(ShardJournal, journal)

    async def close(self) -> None:
        await self._inner.close()
