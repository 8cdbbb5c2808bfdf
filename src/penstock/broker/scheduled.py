"""Messages that wait to be delivered: listed, and found by id or by key to be cancelled or moved to another time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from penstock.batch import layout
from penstock.batch.check import is_long_past, long_past
from penstock.broker.explain import own_due_ms
from penstock.broker.finding import find_message
from penstock.broker.types import CancelResult, Submit
from penstock.core import commands
from penstock.core.decide.settling import ERASED
from penstock.core.explain import due_times
from penstock.core.records import Published
from penstock.core.state import Partition, Queue
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath, ulid_text
from penstock.runtime.stored import DamagedMessages, NotAtHand, when_at_hand
from penstock.runtime.view import ShardView
from penstock.wire.diagnostics import ScheduledMessage, ScheduledReply

FIND_STEP = 50
"""Messages looked up by id between two turns of the event loop."""


class Named(NamedTuple):
    """A message that was asked for."""

    text: str
    """Its handle, as it was given or as it is shown."""
    place: tuple[int, int] | None
    """(partition, offset); None if there is no such message."""
    client_id: bytes = b""


class ScheduledMessages:
    def __init__(self, view: ShardView, submit: Submit):
        self._view = view
        self._submit = submit

    async def page(self, path: QueuePath, *, limit: int, after: tuple[int, int] = (0, -1)) -> ScheduledReply:
        """The messages behind the position (partition, offset) whose time has not come, in that order.

        Reads the messages of this page alone: `OffsetBits` continues at the position, and the due times come from the
        messages themselves where the state does not have them at hand.
        """
        queue = self._view.queue(path)
        self._view.advance()
        messages: list[ScheduledMessage] = []
        number, first = after[0], after[1] + 1
        while number < len(queue.partitions) and len(messages) < limit:
            partition = queue.partitions[number]
            found = _scheduled_from(partition, first, limit - len(messages))
            messages += await self._described(queue, number, found)
            number, first = number + 1, 0
        last = messages[-1] if len(messages) == limit else None
        total = sum(partition.scheduled.count for partition in queue.partitions)
        return ScheduledReply(queue.path, messages, total, None if last is None else f"{last.partition}:{last.offset}")

    async def _described(self, queue: Queue, number: int, offsets: list[int]) -> list[ScheduledMessage]:
        """Damaged messages are listed without what only they themselves say."""
        known = due_times(queue.partitions[number], offsets)
        try:
            damaged: dict[int, int] = {}
            records = await when_at_hand(lambda: list(self._records(queue, number, offsets)))
        except DamagedMessages:
            damaged = await when_at_hand(lambda: self._damaged(queue, number, offsets))
            healthy = sorted({*offsets}.difference(damaged))
            records = await when_at_hand(lambda: list(self._records(queue, number, healthy)))
        messages = [_damaged_message(number, offset, id, known.get(offset)) for offset, id in damaged.items()]
        for record, held in records:
            dues = [known.get(offset) or own_due_ms(queue, record, offset) for offset in held]
            messages += map(partial(_described, number, record), held, dues)
            await self._view.give_way()
        return sorted(messages, key=attrgetter("offset")) if damaged else messages

    def _damaged(self, queue: Queue, number: int, offsets: list[int]) -> dict[int, int]:
        """Offset -> message id of those that are damaged."""
        log, found = self._view.log, dict[int, int]()
        for first, stop, problem in log.damaged(queue.number, number, offsets[0], offsets[-1] + 1):
            if problem == ERASED:
                continue
            for offset in offsets[bisect_left(offsets, first) : bisect_left(offsets, stop)]:
                found[offset] = log.id_at(queue.number, number, offset)
        return found

    def _records(
        self, queue: Queue, number: int, offsets: Sequence[int]
    ) -> Iterator[tuple[Published, Sequence[int]]]:  # fmt: skip
        """The records that hold these offsets, which ascend, each with those that it holds."""
        at = 0
        while at < len(offsets):
            for run in self._view.log.runs(queue.number, number, offsets[at], offsets[at] + 1):
                stop = bisect_left(offsets, run.record.offset + run.record.batch.count)
                yield run.record, offsets[at:stop]
                at = stop - 1
            at += 1

    async def cancel(
        self, path: QueuePath, *, ids: Sequence[str] | None = None, key: str | None = None
    ) -> tuple[int, list[CancelResult]]:
        """A message that answers `cancelled` will not be delivered. `ids` are message ids, or ids of the client's own,
        which a cancelled message frees."""
        queue = self._view.queue(path)
        named = await self._named(queue, ids, key)
        own = {each.place: each.client_id for each in named if each.place is not None}
        return await self._results(named, "cancelled", commands.Cancel(queue.number, list(own), list(own.values())))

    async def reschedule(
        self,
        path: QueuePath,
        *,
        ids: Sequence[str] | None = None,
        key: str | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> tuple[int, list[CancelResult]]:
        due, queue = self._due(deliver_at_ms, delay_ms), self._view.queue(path)
        named = await self._named(queue, ids, key)
        places = list(dict.fromkeys(each.place for each in named if each.place is not None))
        return await self._results(named, "rescheduled", commands.Reschedule(queue.number, places, due))

    def _due(self, deliver_at_ms: int | None, delay_ms: int | None) -> int:
        if (deliver_at_ms is None) == (delay_ms is None):
            raise InvalidRequest("give either deliver_at_ms or delay_ms", details={"field": "deliver_at_ms"})
        now_ms = self._view.now_ms()
        if deliver_at_ms is not None and is_long_past(deliver_at_ms, now_ms):
            raise InvalidRequest(
                f"deliver_at_ms: {long_past(deliver_at_ms, now_ms)}", details={"field": "deliver_at_ms"}
            )
        return deliver_at_ms if deliver_at_ms is not None else now_ms + (delay_ms or 0)

    async def _results(
        self, named: Sequence[Named], status: str, command: commands.Cancel | commands.Reschedule
    ) -> tuple[int, list[CancelResult]]:
        """A message that was named twice is answered twice and counted once."""
        statuses = dict(zip(command.messages, await self._submit(command), strict=True))
        results = [
            CancelResult(each.text, statuses[each.place] if each.place is not None else "not_found") for each in named
        ]
        return sum(became == status for became in statuses.values()), results

    async def _named(self, queue: Queue, ids: Sequence[str] | None, key: str | None) -> list[Named]:
        if (ids is None) == (key is None):
            raise InvalidRequest("give either ids or key", details={"field": "ids"})
        return await self._with_ids(queue, ids) if ids is not None else await self._with_key(queue, key or "")

    async def _with_ids(self, queue: Queue, ids: Sequence[str]) -> list[Named]:
        named: list[Named] = []
        for step, text in enumerate(ids, 1):
            found = await when_at_hand(partial(find_message, self._view.log, queue, text))
            if found is None or found.partition is None or found.offset is None:
                named.append(Named(text, None))
            else:
                own = found.client_id or await when_at_hand(
                    partial(self._client_id, queue, found.partition, found.offset)
                )
                named.append(Named(text, (found.partition, found.offset), own))
            if step % FIND_STEP == 0:
                await self._view.give_way()
        return named

    def _client_id(self, queue: Queue, number: int, offset: int) -> bytes:
        if queue.dedup.ids:
            for run in self._view.log.runs(queue.number, number, offset, offset + 1):
                return run.record.batch.string(layout.ID, offset - run.record.offset)
        return b""

    async def _with_key(self, queue: Queue, key: str) -> list[Named]:
        """Unfinished messages with this key, delayed or not."""
        wanted = key.encode()
        # Where it goes now, and where it went while there were fewer partitions.
        counts = {len(queue.partitions), *(len(ends) for ends in queue.growths)}
        found = []
        for number in sorted({queue.partition_of(wanted, count) for count in counts}):
            found += await self._with_key_in(queue, number, wanted)
        return found

    async def _with_key_in(self, queue: Queue, number: int, wanted: bytes) -> list[Named]:
        partition = queue.partitions[number]
        first = min([progress.floor for progress in partition.progress.values()], default=partition.start)
        found: list[Named] = []
        while True:
            try:
                for match in self._view.log.keys.find(queue.number, number, wanted, first):
                    if match is None:
                        await self._view.give_way()
                        continue
                    record, offset = match
                    row, first = offset - record.offset, offset + 1
                    if partition.live_in(offset, offset + 1, keeps=False):
                        own = record.batch.string(layout.ID, row)
                        found.append(Named(ulid_text(record.id + row), (number, offset), own))
                return found
            except NotAtHand as missing:
                await missing.fetch()


def _scheduled_from(partition: Partition, first: int, most: int) -> list[int]:
    lowest = partition.scheduled.first()
    if lowest is None:
        return []
    return list(islice(partition.scheduled.within(max(first, lowest), partition.scheduled.end), most))


def _damaged_message(number: int, offset: int, message_id: int, due_ms: int | None) -> ScheduledMessage:
    published_ms = message_id >> 80
    return ScheduledMessage(ulid_text(message_id), number, offset, due_ms or published_ms, published_ms, None, None)


def _described(number: int, record: Published, offset: int, due_ms: int) -> ScheduledMessage:
    row = offset - record.offset
    key, client_id = (record.batch.string(column, row).decode() or None for column in (layout.KEY, layout.ID))
    return ScheduledMessage(ulid_text(record.id + row), number, offset, due_ms, record.at, key, client_id)
