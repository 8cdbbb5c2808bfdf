"""A journal in a store of its own process: requests and replies between the two can be lost.

The store itself is the wrapped engine, with its own faults. An append whose reply is lost was stored; one whose request
is late is stored just before the owner's next term begins, which is the last moment at which a store may accept it; one
whose request is lost never is.
"""

from __future__ import annotations

import asyncio
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

Fault = Literal["lost_reply", "late_request", "lost_request", "unavailable"]
FAULTS: tuple[Fault, ...] = ("lost_reply", "late_request", "lost_request", "unavailable")


READ_S = 0.002
"""A fetch takes this long, or returns in the same turn of the event loop."""


class Link:
    """The faults of the connection to the store: how many of the next calls meet one."""

    def __init__(self, rng: Random):
        self.rng = rng
        self._broken = 0

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
        if self._link.fault() is not None:
            raise StoreUnavailable("the store cannot be reached")
        return await self._inner.fetch(places)

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        if self._unresolved:
            raise Violation("I10", f"frame {index} is appended while the outcome of another append is unknown")
        fault = self._link.fault()
        if fault == "unavailable":
            raise StoreUnavailable("the store cannot be reached")
        if fault in (None, "lost_reply"):
            self._locator = await self._inner.append(index, parts)
        if fault is None:
            return self._locator
        if fault == "late_request":
            self._late = (index, list(parts))
        self._unresolved = True
        raise Ambiguous("the connection to the store was lost")

    async def resolve(self) -> Resolved:
        fault = self._link.fault()
        if fault in ("unavailable", "lost_request", "late_request"):
            raise StoreUnavailable("the store cannot be reached")
        try:
            if self._late is not None:
                self._locator = await self._inner.append(*self._late)
                self._late = None
            self._found = self._found or self._inner.tail
            index, chain = self._inner.tail.index, self._inner.tail.chain
            header = FrameWriter(self._node, self.term, index + 1, chain).seal(self._clock.now_ms(), [])
            await self._inner.append(index + 1, [header])
        except OutOfSpace as error:
            raise StoreUnavailable(str(error)) from error
        if fault == "lost_reply":
            raise Ambiguous("the connection to the store was lost")
        resolved, self._found, self._unresolved = Resolved(self._found, self._locator), None, False
        return resolved


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
        inner = await self._inner.acquire(shard, owner)
        return cast(ShardJournal, RemoteJournal(inner, self._link, owner, self._clock))

    async def close(self) -> None:
        await self._inner.close()
