"""Who holds a message, by its id: for callers that settle by id and never saw a receipt.

There is no index of ids. Whatever can be settled is held by a lease, so ids are looked up where there are leases: the
queues know the ids that clients gave their messages, the log finds the ids that we gave, and one pass over the leases
says who holds what was found.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock import limits
from penstock.batch import layout
from penstock.core.lease import Lease
from penstock.core.state import Queue
from penstock.errors import Conflict, InvalidRequest
from penstock.ids import QueuePath, receipt_prefix, ulid_value
from penstock.runtime.loop import ShardLoop

FIND_STEP = 50
"""Messages looked up between two turns of the event loop."""


class Place(NamedTuple):
    queue: int
    partition: int
    offset: int


class Holder(NamedTuple):
    """One delivery of a message that is under way."""

    queue: str
    group: str
    consumer: str
    receipt: str
    strict: bool
    """The queue lets nobody else settle it by id."""


class InFlight:
    def __init__(self, loop: ShardLoop, queue: Callable[[str], Queue]):
        self._loop = loop
        self._queue = queue

    async def receipts(
        self, ids: Sequence[str], *, queue: QueuePath | None = None, group: str | None = None, consumer: str = ""
    ) -> list[str | None]:
        """For each id the receipt of the lease that holds it, None if nobody holds it, or somebody else.

        An id is the message's own, or the one that its publisher gave it. Raises Conflict if several leases fit.
        """
        search = self._search(queue)
        places: list[set[Place]] = []
        for step, text in enumerate(ids, 1):
            places.append(search.places(text))
            if step % FIND_STEP == 0:
                await asyncio.sleep(0)
        holders = self._holders({place for found in places for place in found})
        return [
            _settled_by(
                text, [each for place in found for each in holders[place] if group in (None, each.group)], consumer
            )
            for text, found in zip(ids, places, strict=True)
        ]

    def is_held(self, queue: QueuePath, id: str, receipt: str) -> bool:
        """True if this is the receipt of a lease that holds this message now."""
        holders = self._holders(self._search(queue).places(id))
        return any(each.receipt == receipt for found in holders.values() for each in found)

    def _search(self, queue: QueuePath | None) -> _Search:
        return _Search(self._loop, None if queue is None else self._queue(queue).number)

    def _holders(self, places: Collection[Place]) -> dict[Place, list[Holder]]:
        """One pass over the leases, however many places."""
        holders: dict[Place, list[Holder]] = {place: [] for place in places}
        offsets: dict[tuple[int, int], list[int]] = {}
        for queue, partition, offset in sorted(places):
            offsets.setdefault((queue, partition), []).append(offset)
        for lease in self._loop.shard.leases.values() if places else ():
            wanted = offsets.get((lease.queue, lease.partition))
            if wanted is not None and lease.held[0].first <= wanted[-1] and lease.held[-1].stop > wanted[0]:
                for run in lease.held:
                    for offset in wanted[bisect_left(wanted, run.first) : bisect_left(wanted, run.stop)]:
                        place = Place(lease.queue, lease.partition, offset)
                        holders[place].append(self._holder(lease, offset))
        return holders

    def _holder(self, lease: Lease, offset: int) -> Holder:
        queue = self._loop.shard.queues[lease.queue]
        return Holder(
            queue.path,
            queue.group_names[lease.group],
            lease.consumer,
            f"{receipt_prefix(0, lease.id, lease.nonce)}{offset}",
            queue.config.strict_leases,
        )


def _settled_by(text: str, holders: Sequence[Holder], consumer: str) -> str | None:
    """The receipt that this caller may use. Whoever says a name is taken by it; who says none, where that is enough."""
    if consumer:
        may = [each for each in holders if each.consumer == consumer]
        may = may or [each for each in holders if not each.consumer and not each.strict]
    else:
        may = [each for each in holders if not each.strict]
    if len(may) > 1:
        raise Conflict(
            f"{text[:128]!r} is held {len(may)} times; say which queue, group or consumer is meant",
            details={"held": [{"queue": each.queue, "group": each.group, "consumer": each.consumer} for each in may]},
        )
    return may[0].receipt if may else None


class _Search:
    """Finds where messages are, in the partitions of which something is leased. Made for one call."""

    def __init__(self, loop: ShardLoop, queue: int | None):
        self._loop = loop
        now_ms = loop.brought_to_now()
        self._partitions = {
            (lease.queue, lease.partition)
            for lease in loop.shard.leases.values()
            if queue is None or lease.queue == queue
        }
        self._queues = {number for number, _ in self._partitions}
        self._known_since_ms = now_ms - limits.DEDUP_WINDOW_MS
        self._old: dict[bytes, list[Place]] | None = None

    def places(self, text: str) -> set[Place]:
        client_id = text.encode()
        named = set(self._with_client_id(client_id)) or set(self._old_ids().get(client_id, ()))
        if named:
            return named
        try:
            message_id = ulid_value(text)
        except InvalidRequest:
            return set()
        return {
            Place(queue, partition, offset)
            for queue, partition in self._partitions
            if (offset := self._loop.log.find(queue, partition, message_id)) is not None
        }

    def _with_client_id(self, client_id: bytes) -> Iterator[Place]:
        for number in self._queues:
            known = self._loop.shard.queues[number].dedup.ids.get(client_id)
            if known is not None:
                yield Place(number, known[1].partition, known[1].offset)

    def _old_ids(self) -> dict[bytes, list[Place]]:
        """Queues know ids for a day. What was published before that and is held now has its id where it is stored."""
        if self._old is None:
            self._old = {}
            for queue, partition in self._partitions:
                for first, stop in self._leased_before(queue, partition):
                    for client_id, place in self._stored_ids(queue, partition, first, stop):
                        self._old.setdefault(client_id, []).append(place)
        return self._old

    def _leased_before(self, queue: int, partition: int) -> Iterator[tuple[int, int]]:
        """What is leased of this partition and may be older than ids are known."""
        index = self._loop.log.indexes.get((queue, partition))
        if index is None:
            return
        for progress in self._loop.shard.queues[queue].partitions[partition].progress.values():
            for first, stop in progress.leased:
                piece = index.at(first)
                if piece >= len(index) or index.time_of(piece) >= self._known_since_ms:
                    break  # what comes behind is younger
                yield first, stop

    def _stored_ids(self, queue: int, partition: int, first: int, stop: int) -> Iterable[tuple[bytes, Place]]:
        for record, inside, after in self._loop.log.runs(queue, partition, first, stop):
            if record.batch.has(layout.ID):
                own = record.batch.strings(layout.ID)
                for offset in range(inside, after):
                    if own[offset - record.offset]:
                        yield own[offset - record.offset], Place(queue, partition, offset)
