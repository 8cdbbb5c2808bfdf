"""Looking at messages without leasing them: by position, or what would be delivered next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from penstock import limits
from penstock.broker.identity import Identity
from penstock.broker.readers import Readers
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.core.offsets.ranges import RangeSet
from penstock.core.preview import Newcomer, next_runs
from penstock.core.state import Queue
from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import QueuePath
from penstock.runtime.stored import DamagedMessages, when_at_hand
from penstock.runtime.view import ShardView, queue_not_found
from penstock.runtime.watchers import Changed
from penstock.wire.holds import ExtentReply, PartitionExtent

PREVIEW_STEP = 2048
"""Messages that are put in order between two turns of the event loop: a few milliseconds."""


class LogReads:
    def __init__(self, view: ShardView, readers: Readers, identity: Identity):
        self._view = view
        self._readers = readers
        self._identity = identity
        self._one_at_a_time = asyncio.Lock()
        """Of the looks that cost as much as a queue holds."""

    async def read(
        self,
        path: QueuePath,
        *,
        partition: int = 0,
        offset: str = "earliest",
        max: int | None = 100,
        wait_ms: int = 0,
        client_id: str | None = None,
        until: int | None = None,
        bytes_max: int = limits.LEASE_REPLY_BYTES_MAX,
        uuid: str | None = None,
    ) -> ReadReply:
        """Stored messages by position, whatever became of them in any group; at the end, wait for more.

        Reading under a `client_id` counts as a use of what is kept under it. With `until` the reply ends before that
        offset, and the call does not wait for it. With `uuid` another incarnation of the queue is refused (Conflict).
        """
        found = self._view.queue(path)
        self._identity.check(found, uuid)
        if not 0 <= partition < len(found.partitions):
            raise InvalidRequest(
                f"queue {found.path} has partitions 0 to {len(found.partitions) - 1}, not {partition}",
                details={"field": "partition"},
            )
        if client_id is not None:
            await self._readers.get(path, client_id)
        first = await when_at_hand(lambda: self._readers.position(found, partition, offset, client_id))
        if wait_ms and first >= self._readers.stored_end(found, partition) and (until is None or first < until):
            await self._view.grown(found.number, partition, wait_ms)
        part = found.partitions[partition]
        skipped = part.start - first if first < part.start else 0
        first += skipped
        end = self._readers.stored_end(found, partition)
        most = end if max is None else min(end, first + max)
        stop, _ = self._view.log.fit(
            found.number, partition, first, most if until is None else min(most, until), bytes_max
        )
        runs: list[DeliveredRun] = []
        at = first
        while at < stop:
            # A large reply is assembled in slices, so that other requests run in between.
            upto, _ = self._view.log.fit(found.number, partition, at, stop, limits.READ_SLICE_BYTES)
            runs += await when_at_hand(partial(self._runs, found, partition, at, upto, part.gone))
            at = upto
            if at < stop:
                await asyncio.sleep(0)
                if self._view.queue_numbered(found.number) is not found or found.partitions[partition] is not part:
                    # Deleted or emptied meanwhile: what was collected is what there was.
                    break
                if part.start > at:
                    # Retention has come past: the next read says how much was skipped.
                    break
        return ReadReply(runs, at, end, part.start, skipped)

    def watch(self, path: QueuePath, changed: Changed) -> Callable[[], None]:
        """Call `changed` with the partition that has grown, after each commit, or with None: the queue was deleted.

        Several commits may be one call, made from the event loop. Returns a function that ends it.
        """
        return self._view.watch(self._view.queue(path).number, changed)

    def watch_end(self, path: QueuePath, deleted: Callable[[PenstockError], None]) -> Callable[[], None]:
        """Call `deleted` when the queue is deleted, with the error that it has from then on. Returns a function that
        ends it."""
        return self._view.watch_end(self._view.queue(path).number, lambda: deleted(queue_not_found(path)))

    def extent(self, path: QueuePath, at: str = "earliest") -> ExtentReply:
        """From where to where the log of each partition goes, and where in it `at` is."""
        found = self._view.queue(path)
        extents = []
        for number, part in enumerate(found.partitions):
            end = self._readers.stored_end(found, number)
            offset = min(max(self._readers.position(found, number, at, None), part.start), end)
            index = self._view.log.indexes.get((found.number, number))
            stored = 0 if index is None else sum(index.sizes[index.at(offset) :])
            extents.append(PartitionExtent(number, part.start, end, offset, stored))
        return ExtentReply(found.path, extents, self._identity.uuid_of(found.number), self._identity.broker)

    async def peek(self, path: QueuePath, *, max: int = 10, group: str = "default") -> list[DeliveredRun]:
        """The messages that a lease of `max` messages would deliver to the group next, in that order, without leasing
        them. The group need not exist yet."""
        found = self._view.queue(path)
        now_ms = self._view.advance()
        upcoming: Iterable[tuple[int, int, int]]
        if found.config.indexed and group not in found.groups:
            upcoming = await self._upcoming_for_newcomers(found, max)
        else:
            upcoming = next_runs(found, found.groups.get(group), now_ms)
        runs: list[DeliveredRun] = []
        for number, first, stop in upcoming:
            stop = min(stop, first + max, self._readers.stored_end(found, number))
            if first < stop:
                runs += await when_at_hand(partial(self._healthy_runs, found, number, first, stop))
                max -= stop - first
            if max <= 0:
                break
        return runs

    def has_next(self, path: QueuePath, *, group: str) -> bool:
        """Whether a lease of this group would deliver something now. False for a group that does not exist."""
        found = self._view.queue(path)
        if group not in found.groups:
            return False
        upcoming = next_runs(found, found.groups[group], self._view.advance())
        return any(first < min(stop, self._readers.stored_end(found, number)) for number, first, stop in upcoming)

    async def _upcoming_for_newcomers(self, found: Queue, max: int) -> list[tuple[int, int, int]]:
        """The runs that the first lease of a new group would deliver. Reads every message, in steps that yield."""
        async with self._one_at_a_time:
            newcomer = Newcomer(found, PREVIEW_STEP)
            for _ in newcomer.load():
                await self._view.give_way()
            if self._view.queue_numbered(found.number) is not found:
                raise queue_not_found(found.path)
            places = islice(newcomer.upcoming(self._view.advance()), max)
            return [(number, offset, offset + 1) for number, offset in places]

    def _healthy_runs(self, queue: Queue, partition: int, first: int, stop: int) -> list[DeliveredRun]:
        """Without damaged messages, which a lease sets aside as dead letters."""
        try:
            return self._runs(queue, partition, first, stop, RangeSet())
        except DamagedMessages:
            damaged = list(self._view.log.damaged(queue.number, partition, first, stop))
        runs = []
        for begin, end, _ in [*damaged, (stop, stop, "")]:
            runs += self._runs(queue, partition, first, begin, RangeSet())
            first = end
        return runs

    def _runs(self, queue: Queue, partition: int, first: int, stop: int, hidden: RangeSet) -> list[DeliveredRun]:
        runs = []
        for record, start, end in self._view.log.runs(queue.number, partition, first, stop):
            for inside, after in hidden.gaps(start, end):
                row = inside - record.offset
                runs.append(
                    DeliveredRun(
                        queue.path, partition, inside, after - inside, record.id + row, record.at,
                        record.batch.run(row, row + after - inside),
                    )
                )  # fmt: skip
        return runs
