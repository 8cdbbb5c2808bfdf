"""Messages that wait, found by id or by key: to be cancelled, or moved to another time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from penstock.batch import layout
from penstock.broker.finding import find_message
from penstock.broker.types import Touched
from penstock.core import commands
from penstock.core.publishing import partition_of
from penstock.core.state import Queue
from penstock.errors import InvalidRequest
from penstock.ids import ulid_text
from penstock.runtime.loop import ShardLoop

FIND_STEP = 50
"""Messages looked up by id between two turns of the event loop."""


class Named(NamedTuple):
    """A message that was asked for."""

    text: str
    """Its handle, as it was given or as it is shown."""
    place: tuple[int, int] | None
    """(partition, offset); None if there is no such message."""
    client_id: bytes = b""


class WaitingMessages:
    def __init__(self, loop: ShardLoop):
        self._loop = loop

    async def cancel(self, queue: Queue, ids: Sequence[str] | None, key: str | None) -> tuple[int, list[Touched]]:
        named = await self._named(queue, ids, key)
        own = {each.place: each.client_id for each in named if each.place is not None}
        return await self._touched(named, "cancelled", commands.Cancel(queue.number, list(own), list(own.values())))

    async def reschedule(
        self, queue: Queue, ids: Sequence[str] | None, key: str | None, due: int
    ) -> tuple[int, list[Touched]]:
        named = await self._named(queue, ids, key)
        places = list(dict.fromkeys(each.place for each in named if each.place is not None))
        return await self._touched(named, "rescheduled", commands.Reschedule(queue.number, places, due))

    async def _touched(
        self, named: Sequence[Named], status: str, command: commands.Cancel | commands.Reschedule
    ) -> tuple[int, list[Touched]]:
        """A message that was named twice is answered twice and counted once."""
        statuses = dict(zip(command.messages, await self._loop.submit(command), strict=True))
        results = [
            Touched(each.text, statuses[each.place] if each.place is not None else "not_found") for each in named
        ]
        return sum(became == status for became in statuses.values()), results

    async def _named(self, queue: Queue, ids: Sequence[str] | None, key: str | None) -> list[Named]:
        if (ids is None) == (key is None):
            raise InvalidRequest("give either ids or key", details={"field": "ids"})
        return await self._with_ids(queue, ids) if ids is not None else await self._with_key(queue, key or "")

    async def _with_ids(self, queue: Queue, ids: Sequence[str]) -> list[Named]:
        named: list[Named] = []
        for step, text in enumerate(ids, 1):
            found = find_message(self._loop.log, queue, text)
            if found is None or found.partition is None or found.offset is None:
                named.append(Named(text, None))
            else:
                own = found.client_id or self._client_id(queue, found.partition, found.offset)
                named.append(Named(text, (found.partition, found.offset), own))
            if step % FIND_STEP == 0:
                await asyncio.sleep(0)
        return named

    def _client_id(self, queue: Queue, number: int, offset: int) -> bytes:
        if queue.dedup.ids or queue.dedup.handles:
            for run in self._loop.log.runs(queue.number, number, offset, offset + 1):
                return run.record.batch.string(layout.ID, offset - run.record.offset)
        return b""

    async def _with_key(self, queue: Queue, key: str) -> list[Named]:
        """Unfinished messages with this key, delayed or not."""
        wanted = key.encode()
        # Where it goes now, and where it went while there were fewer partitions.
        counts = {len(queue.partitions), *(len(ends) for ends in queue.growths)}
        found = []
        for number in sorted({partition_of(wanted, count) for count in counts}):
            found += await self._with_key_in(queue, number, wanted)
        return found

    async def _with_key_in(self, queue: Queue, number: int, wanted: bytes) -> list[Named]:
        partition = queue.partitions[number]
        first = min([progress.floor for progress in partition.progress.values()], default=partition.start)
        found: list[Named] = []
        for record in self._loop.log.with_key(queue.number, number, wanted, first):
            if record is None:
                await asyncio.sleep(0)
            elif record.batch.has(layout.KEY):
                unfinished = partition.live_in(record.offset, record.offset + record.batch.count, keeps=False)
                keys = record.batch.strings(layout.KEY)
                found += [
                    Named(
                        ulid_text(record.id + offset - record.offset),
                        (number, offset),
                        record.batch.string(layout.ID, offset - record.offset),
                    )
                    for inside, after in unfinished
                    for offset in range(inside, after)
                    if keys[offset - record.offset] == wanted
                ]
        return found
