"""Who holds a message, by its id: for callers that settle by id and never saw a receipt.

There is no index of ids. Whatever can be settled is held by a lease, so the leases are looked through: their queues
know the ids that clients gave their messages, and the log finds the ids that we gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock import limits
from penstock.batch import layout
from penstock.core.state import Lease, Queue
from penstock.errors import Conflict, InvalidRequest
from penstock.ids import QueuePath, receipt_prefix, ulid_value
from penstock.runtime.loop import ShardLoop

FIND_STEP = 50
"""Messages looked up between two turns of the event loop."""


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
        held = _Leases(self._loop, None if queue is None else self._queue(queue))
        found: list[str | None] = []
        for step, text in enumerate(ids, 1):
            holders = [each for each in held.holders(text) if group is None or each.group == group]
            found.append(_settled_by(text, holders, consumer))
            if step % FIND_STEP == 0:
                await asyncio.sleep(0)
        return found

    def is_held(self, queue: QueuePath, id: str, receipt: str) -> bool:
        """True if this is the receipt of a lease that holds this message now."""
        return any(each.receipt == receipt for each in _Leases(self._loop, self._queue(queue)).holders(id))


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


class _Leases:
    """The leases of now, by the partition they are in. Made for one call."""

    def __init__(self, loop: ShardLoop, queue: Queue | None):
        self._loop = loop
        self._now_ms = loop.brought_to_now()
        self._places: dict[tuple[int, int], list[Lease]] = {}
        for lease in loop.shard.leases.values():
            if queue is None or lease.queue == queue.number:
                self._places.setdefault((lease.queue, lease.partition), []).append(lease)

    def holders(self, text: str) -> Iterator[Holder]:
        for queue, partition, offset in self._offsets(text):
            for lease in self._places.get((queue, partition), ()):
                if lease.parts(offset, offset + 1):
                    yield self._holder(lease, offset)

    def _offsets(self, text: str) -> set[tuple[int, int, int]]:
        named = set(self._with_client_id(text))
        if named:
            return named
        try:
            message_id = ulid_value(text)
        except InvalidRequest:
            return set()
        return {
            (queue, partition, offset)
            for queue, partition in self._places
            if (offset := self._loop.log.find(queue, partition, message_id)) is not None
        }

    def _with_client_id(self, text: str) -> Iterator[tuple[int, int, int]]:
        client_id = text.encode()
        for number in {queue for queue, _ in self._places}:
            known = self._loop.shard.queues[number].dedup.ids.get(client_id)
            if known is not None:
                yield number, known[1].partition, known[1].offset
            else:
                yield from self._among_the_old(number, client_id)

    def _among_the_old(self, number: int, client_id: bytes) -> Iterator[tuple[int, int, int]]:
        """Ids are known for a day. What was published before that and is held now has its id where it is stored."""
        for (queue, partition), leases in self._places.items():
            if queue != number:
                continue
            for lease in leases:
                for run in lease.held:
                    if not self._may_be_forgotten(queue, partition, run.first):
                        continue
                    for stored in self._loop.log.runs(queue, partition, run.first, run.stop):
                        if not stored.record.batch.has(layout.ID):
                            continue
                        own = stored.record.batch.strings(layout.ID)
                        for offset in range(stored.first, stored.stop):
                            if own[offset - stored.record.offset] == client_id:
                                yield queue, partition, offset

    def _may_be_forgotten(self, queue: int, partition: int, offset: int) -> bool:
        index = self._loop.log.indexes.get((queue, partition))
        if index is None or (piece := index.at(offset)) >= len(index):
            return False
        return index.time_of(piece) < self._now_ms - limits.DEDUP_WINDOW_MS

    def _holder(self, lease: Lease, offset: int) -> Holder:
        queue = self._loop.shard.queues[lease.queue]
        return Holder(
            queue.path,
            queue.group_names[lease.group],
            lease.consumer,
            f"{receipt_prefix(0, lease.id, lease.nonce)}{offset}",
            queue.config.strict_leases,
        )
