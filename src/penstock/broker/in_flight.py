"""The lease that holds a message, by the message's id: for callers that settle by id and have no receipt.

There is no index of ids. A message that can be settled is held by a lease, so ids are looked up where there are leases:
the queues know the ids that clients gave their messages, the log finds the ids that the broker gave, and one pass over
the leases finds the lease of each message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from penstock import limits
from penstock.batch import layout
from penstock.core.state.leases import Lease
from penstock.errors import Conflict, InvalidRequest
from penstock.ids import QueuePath, parse_receipt_prefix, receipt_prefix, ulid_value
from penstock.runtime.stored import when_at_hand
from penstock.runtime.view import ShardView

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
    """The queue lets only the lease's consumer settle it by id."""


class InFlight:
    def __init__(self, view: ShardView, shard: int = 0):
        self._view = view
        self._shard = shard

    def count(self, queue: str) -> int:
        """The messages of a queue that leases hold, of all groups; 0 if there is no such queue."""
        found = self._view.find_queue(queue)
        partitions = found.partitions if found is not None else ()
        return sum(progress.leased.count for each in partitions for progress in each.progress.values())

    def held(self, prefixes: Sequence[str]) -> list[int]:
        """How many messages the lease of each prefix of receipts holds now; 0 for a lease that has ended."""
        return [self._view.held_by(*prefix) for prefix in map(self._lease_of, prefixes)]

    def _lease_of(self, prefix: str) -> tuple[int, int]:
        """Number and nonce; those of no lease for a prefix of another shard."""
        parsed = parse_receipt_prefix(prefix[:-1])
        return (0, 0) if parsed is None or parsed[0] != self._shard else parsed[1:]

    async def receipts(
        self, ids: Sequence[str], *, queue: QueuePath | None = None, group: str | None = None, consumer: str = ""
    ) -> list[str | None]:
        """For each id the receipt of the lease that holds it, None if no lease or another consumer's lease holds it.

        An id is the message's own, or the one that its publisher gave it. Raises Conflict if several leases fit.
        """
        search = self._search(queue)
        places: list[set[Place]] = []
        for step, text in enumerate(ids, 1):
            places.append(await when_at_hand(partial(search.places, text)))
            if step % FIND_STEP == 0:
                await self._view.give_way()
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
        return _Search(self._view, None if queue is None else self._view.queue(queue).number)

    def _holders(self, places: Collection[Place]) -> dict[Place, list[Holder]]:
        """One pass over the leases, however many places."""
        holders: dict[Place, list[Holder]] = {place: [] for place in places}
        offsets: dict[tuple[int, int], list[int]] = {}
        for queue, partition, offset in sorted(places):
            offsets.setdefault((queue, partition), []).append(offset)
        for lease in self._view.leases() if places else ():
            wanted = offsets.get((lease.queue, lease.partition))
            if wanted is not None and lease.held[0].first <= wanted[-1] and lease.held[-1].stop > wanted[0]:
                for run in lease.held:
                    for offset in wanted[bisect_left(wanted, run.first) : bisect_left(wanted, run.stop)]:
                        place = Place(lease.queue, lease.partition, offset)
                        holders[place].append(self._holder(lease, offset))
        return holders

    def _holder(self, lease: Lease, offset: int) -> Holder:
        queue = self._view.queue_numbered(lease.queue)
        assert queue is not None, "a queue that is deleted has no leases"
        return Holder(
            queue.path,
            queue.group_names[lease.group],
            lease.consumer,
            f"{receipt_prefix(self._shard, lease.id, lease.nonce)}{offset}",
            queue.config.strict_leases,
        )


def _settled_by(text: str, holders: Sequence[Holder], consumer: str) -> str | None:
    """The receipt that this caller may use. A caller with a consumer name gets the lease of that consumer, or one
    without a consumer; a caller without a name gets a lease of a queue that is not strict."""
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

    def __init__(self, view: ShardView, queue: int | None):
        self._view = view
        now_ms = view.advance()
        self._partitions = {
            (lease.queue, lease.partition) for lease in view.leases() if queue is None or lease.queue == queue
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
            if (offset := self._view.log.find(queue, partition, message_id)) is not None
        }

    def _with_client_id(self, client_id: bytes) -> Iterator[Place]:
        for number in self._queues:
            queue = self._view.queue_numbered(number)  # None: deleted since the search began
            known = queue.dedup.place_of(client_id) if queue is not None else None
            if known is not None:
                yield Place(number, known.partition, known.offset)

    def _old_ids(self) -> dict[bytes, list[Place]]:
        """Ids of leased messages that are older than the queues' id index (one day), read from the log."""
        if self._old is None:
            old: dict[bytes, list[Place]] = {}
            for queue, partition in self._partitions:
                for first, stop in self._leased_before(queue, partition):
                    for client_id, place in self._stored_ids(queue, partition, first, stop):
                        old.setdefault(client_id, []).append(place)
            self._old = old
        return self._old

    def _leased_before(self, queue: int, partition: int) -> Iterator[tuple[int, int]]:
        """Leased runs of this partition that may be older than the queue's id index."""
        index, found = self._view.log.indexes.get((queue, partition)), self._view.queue_numbered(queue)
        if index is None or found is None:
            return
        for progress in found.partitions[partition].progress.values():
            for first, stop in progress.leased:
                piece = index.at(first)
                if piece >= len(index) or index.time_of(piece) >= self._known_since_ms:
                    break  # what comes behind is younger
                yield first, stop

    def _stored_ids(self, queue: int, partition: int, first: int, stop: int) -> Iterable[tuple[bytes, Place]]:
        for record, inside, after in self._view.log.runs(queue, partition, first, stop):
            if record.batch.has(layout.ID):
                own = record.batch.strings(layout.ID)
                for offset in range(inside, after):
                    if own[offset - record.offset]:
                        yield own[offset - record.offset], Place(queue, partition, offset)
