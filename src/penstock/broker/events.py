"""Reading events: in bulk for programs, and one by one as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from penstock.batch import layout
from penstock.broker.finding import find_message
from penstock.broker.identity import Identity
from penstock.core import records
from penstock.core.offsets.ranges import pairs
from penstock.core.state import FormerQueue, Queue
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath, ulid_text
from penstock.journal.codec import PublishedMeta, decode_meta
from penstock.runtime.events import EventLog, EventRecord
from penstock.runtime.history import MessageHistory
from penstock.runtime.pace import Slices
from penstock.runtime.stored import when_at_hand
from penstock.runtime.view import ShardView
from penstock.wire.events import (
    RECORD,
    WHOLE_FRAME,
    Event,
    EventRange,
    EventRangesQuery,
    EventRangesReply,
    EventsMeta,
    EventsQuery,
    EventsReply,
    Missing,
    Names,
    Position,
)

LOOKED_MAX = 100_000
"""Records that one call looks at, found or not; the answer then says where to go on."""

SEARCH_COST = 5
QUEUES_OF_MAX = 10


class Bulk(NamedTuple):
    meta: EventsMeta
    records: list[bytes | memoryview]


class Events:
    """The records of the journal as events, as far back as the journal goes."""

    def __init__(self, view: ShardView, log: EventLog, history: MessageHistory, identity: Identity):
        self._view = view
        self._log = log
        self._history = history
        self._identity = identity

    async def history(self, path: QueuePath, *, id: str) -> dict[str, Any]:
        """The events of a message, by its id or its client id."""
        queue = self._view.queue(path)
        handle = await when_at_hand(lambda: find_message(self._view.log, queue, id))
        if handle is None:
            return {"queue": path, "id": id, "partition": None, "offset": None, "complete": False, "events": []}
        found = await self._history.of(queue, handle.id)
        return {
            "queue": path,
            "id": ulid_text(handle.id),
            "partition": found.partition,
            "offset": found.offset,
            "complete": found.complete,
            "events": msgspec.to_builtins(found.events),
        }

    async def queues_of(self, id: str) -> list[str]:
        """The queue that stores the message with this id, or the first few that know it as the id of their client."""
        slices, found = Slices(self._view.give_way), []
        for queue in list(self._view.queues()):
            handle = await when_at_hand(partial(find_message, self._view.log, queue, id))
            if handle is not None and handle.offset is not None:
                found.append(queue.path)
                if len(found) == QUEUES_OF_MAX or not handle.client_id:
                    break
            await slices.spend(SEARCH_COST * len(queue.partitions))
        return found

    async def read(self, query: EventsQuery, path: QueuePath | None = None) -> EventsReply:
        """Event by event. All events of a record are in one answer."""
        found: list[Event] = []

        def take(record: EventRecord) -> bool:
            if len(found) >= query.max:
                return False
            found.extend(self._events(record))
            return True

        at, missing, start = await self._read(query, path, take)
        return EventsReply(self._identity.shard, found, str(at), start, self._view.durable_index, missing)

    async def read_bulk(self, query: EventsQuery, path: QueuePath | None = None) -> Bulk:
        """Records as they are stored, without their messages."""
        parts: list[bytes | memoryview] = []
        room = query.max_bytes
        numbers: set[int] = set()

        def take(record: EventRecord) -> bool:
            nonlocal room
            if room <= 0:
                return False
            meta, about = record.record
            parts.extend((RECORD.pack(record.frame, record.number, len(meta), len(about)), meta, about))
            room -= RECORD.size + len(meta) + len(about)
            numbers.add(record.queue)
            return True

        at, missing, start = await self._read(query, path, take)
        names = {str(number): self._names(number) for number in sorted(numbers) if number}
        end, broker = self._view.durable_index, self._identity.broker
        return Bulk(EventsMeta(self._identity.shard, str(at), start, end, missing, names, broker), parts)

    async def _read(
        self, query: EventsQuery, path: QueuePath | None, take: Callable[[EventRecord], bool]
    ) -> tuple[Position, Missing | None, int]:
        """Give the records to `take` until it refuses one. Returns the last position, what of the journal is gone, and
        where the journal begins."""
        self._identity.check_shard(query.shard)
        queue = None if path is None else self._view.queue(path).number
        at, missing, start = await self._begin(query.after)
        async with aclosing(self._log.records(*at, query.until)) as found:
            looked = 0
            async for record in found:
                looked += 1
                if queue in (None, record.queue) and not take(record):
                    break
                at = Position(record.frame, record.number)
                if looked == LOOKED_MAX:
                    break
            else:
                at = self._caught_up(at, query.until)
        return at, missing, start

    async def ranges(self, query: EventRangesQuery) -> EventRangesReply:
        """Where to cut what is asked for, so that each part tells of about as much."""
        self._identity.check_shard(query.shard)
        after, missing, start = await self._begin(query.after)
        ranges: list[EventRange] = []
        rows = size = 0
        open_range: EventRange | None = None
        at = after.frame
        async with aclosing(self._log.sizes(after.frame, query.until)) as weighed:
            async for frame in weighed:
                full = (query.max is not None and rows + frame.rows > query.max) or (
                    query.max_bytes is not None and size + frame.bytes > query.max_bytes
                )
                if full and rows:
                    break
                rows, size = rows + frame.rows, size + frame.bytes
                if open_range is None or open_range.rows + frame.rows > query.each:
                    open_range = EventRange(at, frame.frame, 0, 0)
                    ranges.append(open_range)
                open_range.until = at = frame.frame
                open_range.rows += frame.rows
                open_range.bytes += frame.bytes
        return EventRangesReply(
            self._identity.shard, ranges, at, start, self._view.durable_index, missing, self._identity.broker
        )

    async def _begin(self, text: str) -> tuple[Position, Missing | None, int]:
        """Where to begin, what of that is gone, and where the journal begins."""
        start, end = await self._log.ends()
        if text == "earliest":
            return Position(start), None, start
        if text == "latest":
            return Position(end), None, start
        if text.startswith("at:"):
            return Position(max(start, await self._log.frame_at(int(text[3:])))), None, start
        after = Position.parse(text)
        if after.frame > end:
            raise InvalidRequest(
                f"after: the journal ends with frame {end}; there is no frame {after.frame} yet",
                details={"field": "after", "end": end},
            )
        first = after.frame + (after.number == WHOLE_FRAME)
        if first <= start:
            return Position(start), Missing(first, start, start - first + 1), start
        return after, None, start

    def _caught_up(self, at: Position, until: int | None) -> Position:
        """Nothing more is to be told up to there: what is about no message need not be looked at again."""
        last = self._view.durable_index if until is None else min(until, self._view.durable_index)
        return max(at, Position(last)) if last >= at.frame else at

    # -- names ------------------------------------------------------------------------------------------------

    def _names(self, number: int) -> Names:
        known, uuid = self._known(number), self._identity.uuid_of(number)
        if known is None:
            return Names(f"#{number}", {}, uuid)
        groups = {**known.former_groups, **known.group_names} if isinstance(known, Queue) else known.groups
        return Names(known.path, {str(group): name for group, name in groups.items()}, uuid)

    def _known(self, number: int) -> Queue | FormerQueue | None:
        return self._view.queue_numbered(number) or self._view.former_queue(number)

    # -- one by one -------------------------------------------------------------------------------------------

    def _events(self, told: EventRecord) -> Iterator[Event]:
        record: Any = decode_meta(told.record.meta)
        names = self._names(told.queue) if told.queue else None
        group = getattr(record, "group", None) if hasattr(record, "group") else None
        event = Event(
            str(Position(told.frame, told.number)),
            _KINDS.get(type(record), record.__struct_config__.tag),
            record.at,
            queue=names.queue if names is not None else UNSET,
            queue_id=told.queue or UNSET,
            partition=getattr(record, "partition", UNSET),
            group=UNSET if group is None or names is None else names.groups.get(str(group), f"#{group}"),
            consumer=getattr(record, "consumer", "") or UNSET,
            lease=getattr(record, "lease", UNSET),
            reason=getattr(record, "reason", UNSET),
            error=getattr(record, "error", "") or UNSET,
            due_at_ms=getattr(record, "due", UNSET),
        )
        if type(record) is PublishedMeta:
            event.offset, event.count = record.offset, int(layout.HEADER.unpack_from(told.record.about)[3])
            event.id = ulid_text(int.from_bytes(record.id, "big"))
            yield event
        elif type(record) is records.Leased:
            if record.settled:
                event.reason = "at_most_once"
            else:
                event.deadline_at_ms = record.at + record.lease_ms
            runs = record.runs
            for first, count, attempt in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
                yield _replaced(event, offset=first, count=count, attempt=attempt)
        elif type(record) is records.QueuePurged:
            for partition, end in enumerate(record.ends):
                yield _replaced(event, partition=partition, until_offset=end)
        elif type(record) is records.Trimmed:
            yield _replaced(event, until_offset=record.start)
        elif hasattr(record, "ranges"):
            if type(record) is records.Extended:
                event.deadline_at_ms = record.at + record.lease_ms
            for first, stop in pairs(record.ranges):
                yield _replaced(event, offset=first, count=stop - first)
        else:
            if type(record) is records.GroupCreated:
                event.group = record.name
            yield event


_KINDS: dict[type, str] = {
    records.QueueConfigured: "queue_configured",
    records.GroupCreated: "group_created",
    records.QueuePurged: "purged",
}
"""Names of events that differ from the tag of their record."""


def _replaced(event: Event, **values: Any) -> Event:
    return replace(event, **values)
