"""Looking at messages without leasing them: by position, or what would be delivered next."""

from __future__ import annotations

import asyncio
from itertools import islice

from penstock import limits
from penstock.broker.readers import Readers
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.core.ranges import RangeSet
from penstock.core.state import Queue
from penstock.errors import InvalidRequest
from penstock.runtime.loop import ShardLoop
from penstock.wire.holds import ExtentReply, PartitionExtent


class Looking:
    def __init__(self, loop: ShardLoop, readers: Readers):
        self._loop = loop
        self._readers = readers

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

    def peek(self, found: Queue, max: int, group: str) -> list[DeliveredRun]:
        group_number = found.groups.get(group)
        runs: list[DeliveredRun] = []
        if group_number in found.dispatchers:
            for number, offset in islice(found.dispatchers[group_number].upcoming(self._loop.now_ms()), max):
                runs += self._runs(found, number, offset, offset + 1, RangeSet())
            return runs
        for number, partition in enumerate(found.partitions):
            progress = partition.progress.get(group_number) if group_number is not None else None
            first, taken = partition.start, [*partition.gone, *partition.overdue]
            if progress is not None:
                first = progress.floor
                taken += [*progress.done, *progress.leased]
                taken += [(offset, offset + 1) for offset in progress.waiting_for_retry(self._loop.now_ms())]
            elif found.config.retention.mode == "until_acked":
                taken += partition.finished(first, partition.end)
            for free, busy in RangeSet(taken).gaps(first, self._readers.stored_end(found, number)):
                for start, stop in partition.scheduled.gaps(free, busy):
                    if max <= 0:
                        return runs
                    ready = self._runs(found, number, start, min(stop, start + max), RangeSet())
                    runs += ready
                    max -= sum(run.count for run in ready)
        return runs

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
