"""Looking at messages without leasing them: by position, or what would be delivered next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice

from penstock import limits
from penstock.broker.readers import Readers
from penstock.broker.refusals import not_found
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.core.preview import Newcomer, next_runs
from penstock.core.ranges import RangeSet
from penstock.core.state import Queue
from penstock.errors import InvalidRequest
from penstock.runtime.loop import ShardLoop
from penstock.wire.holds import ExtentReply, PartitionExtent

PREVIEW_STEP = 2048
"""Messages that are put in order between two turns of the event loop: a few milliseconds."""


class Looking:
    def __init__(self, loop: ShardLoop, readers: Readers):
        self._loop = loop
        self._readers = readers
        self._one_at_a_time = asyncio.Lock()
        """Of the looks that cost as much as a queue holds."""

    async def read(
        self, found: Queue, partition: int, offset: str, max: int | None, wait_ms: int, client_id: str | None,
        until: int | None, bytes_max: int,
    ) -> ReadReply:  # fmt: skip
        """See `Broker.read`."""
        if not 0 <= partition < len(found.partitions):
            raise InvalidRequest(
                f"queue {found.path} has partitions 0 to {len(found.partitions) - 1}, not {partition}",
                details={"field": "partition"},
            )
        if client_id is not None:
            await self._readers.get(found, client_id)
        first = self._readers.position(found, partition, offset, client_id)
        if wait_ms and first >= self._readers.stored_end(found, partition) and (until is None or first < until):
            await self._loop.grown(found.number, partition, wait_ms)
        part = found.partitions[partition]
        skipped = part.start - first if first < part.start else 0
        first += skipped
        end = self._readers.stored_end(found, partition)
        most = end if max is None else min(end, first + max)
        stop, _ = self._loop.log.fit(
            found.number, partition, first, most if until is None else min(most, until), bytes_max
        )
        runs: list[DeliveredRun] = []
        at = first
        while at < stop:
            # A large answer is put together between the turns of everybody else.
            upto, _ = self._loop.log.fit(found.number, partition, at, stop, limits.READ_SLICE_BYTES)
            runs += self._runs(found, partition, at, upto, part.gone)
            at = upto
            if at < stop:
                await asyncio.sleep(0)
                if self._loop.shard.queues.get(found.number) is not found or found.partitions[partition] is not part:
                    # Deleted or emptied meanwhile: what was collected is what there was.
                    break
                if part.start > at:
                    # Retention has come past: the next read says how much was skipped.
                    break
        return ReadReply(runs, at, end, part.start, skipped)

    def extent(self, found: Queue, at: str) -> ExtentReply:
        """See `Broker.extent`."""
        extents = []
        for number, part in enumerate(found.partitions):
            end = self._readers.stored_end(found, number)
            offset = min(max(self._readers.position(found, number, at, None), part.start), end)
            index = self._loop.log.indexes.get((found.number, number))
            stored = 0 if index is None else sum(index.sizes[index.at(offset) :])
            extents.append(PartitionExtent(number, part.start, end, offset, stored))
        return ExtentReply(found.path, extents)

    async def peek(self, found: Queue, max: int, group: str) -> list[DeliveredRun]:
        """See `Broker.peek`."""
        now_ms = self._loop.brought_to_now()
        upcoming: Iterable[tuple[int, int, int]]
        if found.config.indexed and group not in found.groups:
            upcoming = await self._upcoming_for_newcomers(found, max)
        else:
            upcoming = next_runs(found, found.groups.get(group), now_ms)
        runs: list[DeliveredRun] = []
        for number, first, stop in upcoming:
            stop = min(stop, first + max, self._readers.stored_end(found, number))
            if first < stop:
                runs += self._runs(found, number, first, stop, RangeSet())
                max -= stop - first
            if max <= 0:
                break
        return runs

    async def _upcoming_for_newcomers(self, found: Queue, max: int) -> list[tuple[int, int, int]]:
        """What the first lease of a group would give. Looks at every message, between the turns of everybody else."""
        async with self._one_at_a_time:
            newcomer = Newcomer(found, PREVIEW_STEP)
            for _ in newcomer.load():
                await asyncio.sleep(0)
            if self._loop.shard.queues.get(found.number) is not found:
                raise not_found(found.path)
            places = islice(newcomer.upcoming(self._loop.brought_to_now()), max)
            return [(number, offset, offset + 1) for number, offset in places]

    def _runs(self, queue: Queue, partition: int, first: int, stop: int, hidden: RangeSet) -> list[DeliveredRun]:
        runs = []
        for record, start, end in self._loop.log.runs(queue.number, partition, first, stop):
            for inside, after in hidden.gaps(start, end):
                row = inside - record.offset
                runs.append(
                    DeliveredRun(
                        queue.path, partition, inside, after - inside, record.id + row, record.at,
                        record.batch.run(row, row + after - inside),
                    )
                )  # fmt: skip
        return runs
