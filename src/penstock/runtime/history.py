"""The history of one message: every record of the journal that names it, as far back as the journal goes.

A search reads the journal from the time in the message's id on, a few hundred records per turn of the event loop. One
search runs at a time; a bounded number of others waits. A search sees the journal as it was at its start, whatever is
appended and trimmed meanwhile. It never decodes payloads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import Any

import msgspec

from penstock import limits
from penstock.batch import Batch, layout
from penstock.core import records
from penstock.core.offsets.ranges import pairs
from penstock.core.records import Published, Record
from penstock.core.state import Queue
from penstock.errors import Unavailable
from penstock.ids import MessageId
from penstock.journal.codec import PublishedHead, decode_heads
from penstock.runtime.loop import ShardLoop

SLICE_RECORDS = 500
"""Records between two turns of the event loop, about a millisecond. Other costs are counted in records."""
FRAME_COST = 10
BYTES_COST = 4096
"""Reading and checking this many bytes costs as much as a record."""
CLOCK_SLACK_MS = 60_000
"""The time of a frame may exceed that of the frame behind it across a restart, by the duration of a commit."""


class HistoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transition. Fields that do not apply to its kind are omitted."""

    kind: str
    at_ms: int
    group: str | None = None
    consumer: str | None = None
    lease: int | None = None
    attempt: int | None = None
    reason: str | None = None
    error: str | None = None
    due_at_ms: int | None = None
    deadline_at_ms: int | None = None


class Found(msgspec.Struct, frozen=True):
    partition: int | None
    """None, with no events, if the message is unknown."""
    offset: int | None
    complete: bool
    """True if nothing can be missing: the journal goes back to the message's own publishing, or to before it would have
    been published."""
    events: list[HistoryEvent]


class _Held(msgspec.Struct):
    """A lease that holds the message."""

    group: int
    consumer: str
    attempt: int
    lease_ms: int
    deadline: int


class Trail:
    """Follows one message through the records of a shard, in order."""

    def __init__(self, queue: Queue, message_id: MessageId):
        self._queue = queue
        self._id = message_id
        self.place: tuple[int, int] | None = None
        self.seen_publishing = False
        self.dropped = False
        """True if there were more events than are kept; the oldest were dropped."""
        self.events: deque[HistoryEvent] = deque(maxlen=limits.HISTORY_EVENTS_MAX)
        self._held: dict[int, _Held] = {}

    def begin_at(self, partition: int, offset: int, record: Published) -> None:
        """The log has the message at this place; the journal may no longer contain its publish."""
        self.place = (partition, offset)
        self._published(record.at, record.batch, offset - record.offset)

    def assume_lease(self, lease: int, held: _Held) -> None:
        """This lease holds the message now; the journal may no longer contain its start."""
        self._held[lease] = held

    def follow(self, record: Record | PublishedHead) -> None:
        if type(record) is PublishedHead:
            if record.queue == self._queue.number and record.id <= self._id < record.id + record.messages:
                # Nothing precedes the publish: the records that follow replace the assumptions made so far.
                self.seen_publishing = True
                self.events.clear()
                self._held.clear()
                row = self._id - record.id
                self.place = (record.partition, record.offset + row)
                self._published(record.at, Batch.open(record.frame), row)
        elif self.place is None:
            return
        elif type(record) is records.Opened:
            self._opened(record)
        elif type(record) is records.Extended:
            self._extended(record)
        elif getattr(record, "queue", None) == self._queue.number:
            self._in_queue(record)

    def _in_queue(self, record: Any) -> None:
        assert self.place is not None
        partition, offset = self.place
        kind = type(record)
        if kind is records.QueuePurged:
            if offset < record.ends[partition]:
                self._add("purged", record.at)
        elif kind is records.QueueDeleted:
            self._add("deleted", record.at)
        elif kind is records.GroupMoved:
            if partition < len(record.offsets) and record.offsets[partition] >= 0:
                reason = "again" if offset >= record.offsets[partition] else "skipped"
                self._add("group_moved", record.at, group=self._group(record.group), reason=reason)
        elif kind is records.GroupDeleted:
            self._add("group_deleted", record.at, group=record.name)
        elif getattr(record, "partition", None) != partition:
            return
        elif kind is records.Trimmed:
            if offset < record.start and (not self.events or self.events[-1].kind != "trimmed"):
                self._add("trimmed", record.at)
        elif kind is records.Leased:
            self._leased(record, offset)
        elif any(first <= offset < stop for first, stop in pairs(getattr(record, "ranges", []))):
            self._touched(record)

    def _published(self, at_ms: int, batch: Batch, row: int) -> None:
        due = 0
        if batch.has(layout.DELAY_MS):
            due = at_ms + batch.integers(layout.DELAY_MS)[row]
        if batch.has(layout.DELIVER_AT_MS):
            due = max(due, batch.integers(layout.DELIVER_AT_MS)[row])
        self._add("published", at_ms, due_at_ms=due if due > at_ms else None)

    def _leased(self, record: records.Leased, offset: int) -> None:
        runs = record.runs
        for first, count, attempt in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
            if first <= offset < first + count:
                deadline = record.at + record.lease_ms
                if not record.settled:
                    self._held[record.lease] = _Held(record.group, record.consumer, attempt, record.lease_ms, deadline)
                self._add(
                    "leased", record.at, group=self._group(record.group), consumer=record.consumer or None,
                    lease=record.lease, attempt=attempt, reason="at_most_once" if record.settled else None,
                    deadline_at_ms=None if record.settled else deadline,
                )  # fmt: skip

    def _extended(self, record: records.Extended) -> None:
        assert self.place is not None
        held = self._held.get(record.lease)
        if held is not None and any(first <= self.place[1] < stop for first, stop in pairs(record.ranges)):
            held.lease_ms, held.deadline = record.lease_ms, record.at + record.lease_ms
            self._of_lease("extended", record.at, record.lease, held)

    def _opened(self, record: records.Opened) -> None:
        """A node acquired the shard: running leases start over."""
        for lease, held in self._held.items():
            held.deadline = max(held.deadline, record.at + held.lease_ms)
            self._of_lease("lease_restarted", record.at, lease, held)

    def _of_lease(self, kind: str, at_ms: int, lease: int, held: _Held) -> None:
        self._add(
            kind, at_ms, group=self._group(held.group), consumer=held.consumer or None, lease=lease,
            attempt=held.attempt, deadline_at_ms=held.deadline,
        )  # fmt: skip

    def _touched(self, record: Any) -> None:
        """Any record that names messages by ranges becomes an event in the same way, including future kinds."""
        lease = getattr(record, "lease", None)
        held = self._held.pop(lease, None) if lease is not None else None
        group = getattr(record, "group", None)
        self._add(
            record.__struct_config__.tag,
            record.at,
            group=None if group is None else self._group(group),
            consumer=(held.consumer or None) if held is not None else None,
            lease=lease,
            attempt=held.attempt if held is not None else None,
            reason=getattr(record, "reason", None),
            error=getattr(record, "error", None) or None,
            due_at_ms=getattr(record, "due", None),
        )

    def _group(self, number: int) -> str:
        name = self._queue.group_names.get(number) or self._queue.former_groups.get(number)
        return name or str(number)

    def _add(self, kind: str, at_ms: int, **values: Any) -> None:
        self.dropped |= len(self.events) == self.events.maxlen
        self.events.append(HistoryEvent(kind, at_ms, **values))


class MessageHistory:
    """Searches of one shard's journal."""

    def __init__(self, loop: ShardLoop):
        self._loop = loop
        self._one_at_a_time = asyncio.Lock()
        self._in_line = 0

    async def of(self, queue: Queue, message_id: MessageId) -> Found:
        if self._in_line >= limits.HISTORY_SEARCHES_MAX:
            raise Unavailable(f"{self._in_line} searches of the journal are in line already", retry_after_ms=1_000)
        self._in_line += 1
        try:
            async with self._one_at_a_time:
                return await self._search(queue, message_id)
        finally:
            self._in_line -= 1

    async def _search(self, queue: Queue, message_id: MessageId) -> Found:
        loop, born_ms = self._loop, message_id >> 80
        if message_id > loop.shard.last_id:
            return Found(None, None, complete=True, events=[])
        trail = Trail(queue, message_id)
        self._look_into_log(queue, message_id, trail)
        upto, reaches_back, looked = loop.durable_index, False, 0
        after = await loop.journal.index_before(born_ms - CLOCK_SLACK_MS)
        async with aclosing(loop.journal.replay(after)) as frames:
            async for _, frame in frames:
                reaches_back = reaches_back or frame.index == 1 or frame.at_ms < born_ms
                if frame.index > upto:
                    break
                looked += FRAME_COST + len(frame.body) // BYTES_COST
                for record in decode_heads(frame.body):
                    trail.follow(record)
                    looked += 1
                    if looked >= SLICE_RECORDS:
                        looked = 0
                        await self._let_others()
        complete = (trail.seen_publishing or (trail.place is None and reaches_back)) and not trail.dropped
        partition, offset = trail.place or (None, None)
        return Found(partition, offset, complete, list(trail.events))

    async def _let_others(self) -> None:
        await asyncio.sleep(0)
        if self._loop.closing or self._loop.failed is not None:
            raise Unavailable("the broker is shutting down", retry_after_ms=1_000)

    def _look_into_log(self, queue: Queue, message_id: MessageId, trail: Trail) -> None:
        """Find the message in the log, if it is still stored: its publish may be too old for the journal."""
        for number in range(len(queue.partitions)):
            offset = self._loop.log.find(queue.number, number, message_id)
            if offset is not None:
                for run in self._loop.log.runs(queue.number, number, offset, offset + 1):
                    trail.begin_at(number, offset, run.record)
                for lease in self._loop.shard.leases.values():
                    if (lease.queue, lease.partition) == (queue.number, number):
                        for part in lease.parts(offset, offset + 1):
                            held = _Held(lease.group, lease.consumer, part.attempt, lease.lease_ms, part.deadline)
                            trail.assume_lease(lease.id, held)
                return
