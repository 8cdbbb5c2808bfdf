"""Messages that wait, found by id or by key: to be cancelled, or moved to another time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.batch import layout
from penstock.broker.types import Touched
from penstock.core import commands
from penstock.core.publishing import partition_of
from penstock.core.state import Queue
from penstock.errors import InvalidRequest
from penstock.ids import ulid_text, ulid_value
from penstock.runtime.loop import ShardLoop

FIND_STEP = 50
"""Messages looked up by id between two turns of the event loop."""


class WaitingMessages:
    def __init__(self, loop: ShardLoop):
        self._loop = loop

    async def touch(
        self,
        queue: Queue,
        ids: Sequence[str] | None,
        key: str | None,
        status: str,
        make: Callable[[int, list[tuple[int, int]]], commands.Command],
    ) -> tuple[int, list[Touched]]:
        if (ids is None) == (key is None):
            raise InvalidRequest("give either ids or key", details={"field": "ids"})
        named: Sequence[tuple[str, tuple[int, int] | None]]
        named = await self._with_ids(queue, ids) if ids is not None else await self._with_key(queue, key or "")
        # Who names a message twice is answered twice, but there is one.
        found = list(dict.fromkeys(place for _, place in named if place is not None))
        statuses = dict(zip(found, await self._loop.submit(make(queue.number, found)), strict=True))
        results = [Touched(text, statuses[place] if place is not None else "not_found") for text, place in named]
        return sum(became == status for became in statuses.values()), results

    async def _with_ids(self, queue: Queue, ids: Sequence[str]) -> list[tuple[str, tuple[int, int] | None]]:
        named: list[tuple[str, tuple[int, int] | None]] = []
        for step, text in enumerate(ids, 1):
            named.append((text, self._place_of(queue, ulid_value(text, "ids"))))
            if step % FIND_STEP == 0:
                await asyncio.sleep(0)
        return named

    def _place_of(self, queue: Queue, message_id: int) -> tuple[int, int] | None:
        for number in range(len(queue.partitions)):
            offset = self._loop.log.find(queue.number, number, message_id)
            if offset is not None:
                return number, offset
        return None

    async def _with_key(self, queue: Queue, key: str) -> list[tuple[str, tuple[int, int]]]:
        """Unfinished messages with this key, delayed or not."""
        wanted = key.encode()
        # Where it goes now, and where it went while there were fewer partitions.
        counts = {len(queue.partitions), *(len(ends) for ends in queue.growths)}
        found = []
        for number in sorted({partition_of(wanted, count) for count in counts}):
            found += await self._with_key_in(queue, number, wanted)
        return found

    async def _with_key_in(self, queue: Queue, number: int, wanted: bytes) -> list[tuple[str, tuple[int, int]]]:
        partition = queue.partitions[number]
        first = min([progress.floor for progress in partition.progress.values()], default=partition.start)
        found = []
        for record in self._loop.log.with_key(queue.number, number, wanted, first):
            if record is None:
                await asyncio.sleep(0)
            elif record.batch.has(layout.KEY):
                unfinished = partition.live_in(record.offset, record.offset + record.batch.count, keeps=False)
                keys = record.batch.strings(layout.KEY)
                found += [
                    (ulid_text(record.id + offset - record.offset), (number, offset))
                    for inside, after in unfinished
                    for offset in range(inside, after)
                    if keys[offset - record.offset] == wanted
                ]
        return found
