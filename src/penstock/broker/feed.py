"""A live feed of message events for watchers.

Events are sent when their records are durable, in the next turn of the event loop, from the frame that was just
written; without watchers the cost is one check. The feed is a sample: of a large batch the first messages are named and
the rest are counted, and of a frame with very many records the last ones are left out. A client that needs every
message reads the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from penstock.batch import layout
from penstock.core import records
from penstock.core.offsets.ranges import pairs, total
from penstock.core.records import Record
from penstock.ids import ulid_text
from penstock.journal.codec import decode
from penstock.runtime.stored import NotAtHand
from penstock.runtime.view import ShardView

NAMED_MAX = 100
"""Messages that one happening names."""
RECORDS_MAX = 1_000
"""Records of one frame that are told."""

Kind: TypeAlias = Literal[
    "published", "leased", "acked", "retried", "dead_lettered", "expired", "cancelled", "queue_created", "queue_deleted"
]


class Happening(NamedTuple):
    kind: Kind
    queue: str
    at_ms: int
    total: int = 0
    """How many messages it happened to."""
    messages: tuple[str, ...] = ()
    """The first of them, by the ids that their publishers gave them, or else by their own."""
    consumer: str = ""
    error: str = ""


Told: TypeAlias = Callable[[list[Happening]], None]


class Feed:
    def __init__(self, view: ShardView):
        self._view = view
        self._watchers: dict[object, Told] = {}
        self._frames: list[bytes] = []
        self._queues: dict[int, str] = {}

    def watch(self, told: Told) -> Callable[[], None]:
        """From now on `told` hears what happens, until the function that is returned is called."""
        if not self._watchers:
            self._queues = {queue.number: queue.path for queue in self._view.queues()}
            self._view.follow_records(self._on_facts)
        key = object()
        self._watchers[key] = told

        def stop() -> None:
            self._watchers.pop(key, None)
            if not self._watchers:
                self._view.follow_records(None)

        return stop

    def _on_facts(self, parts: Iterable[bytes]) -> None:
        if not self._frames:
            asyncio.get_running_loop().call_soon(self._tell)
        self._frames.append(b"".join(parts))

    def _tell(self) -> None:
        frames, self._frames = self._frames, []
        happenings = [happening for frame in frames for happening in self._told(frame)]
        for told in list(self._watchers.values()) if happenings else ():
            told(happenings)

    def _told(self, frame: bytes) -> Iterator[Happening]:
        for number, (_, record) in enumerate(decode(memoryview(frame))):
            if number == RECORDS_MAX:
                return
            found = self._happening(record)
            if found is not None:
                yield found

    def _happening(self, record: Record) -> Happening | None:
        if isinstance(record, records.QueueConfigured):
            known = record.queue in self._queues
            self._queues[record.queue] = record.path
            return None if known else Happening("queue_created", record.path, record.at)
        if isinstance(record, records.QueueDeleted):
            path = self._queues.pop(record.queue, None)
            return None if path is None else Happening("queue_deleted", path, record.at)
        if isinstance(record, records.Published):
            end = record.offset + record.batch.count
            return self._about(record, "published", [record.offset, end])
        if isinstance(record, records.Leased):
            runs = record.runs
            ranges = [bound for at in range(0, len(runs), 3) for bound in (runs[at], runs[at] + runs[at + 1])]
            return self._about(record, "leased", ranges, consumer=record.consumer)
        kind = _BY_RANGES.get(type(record))
        if kind is None:
            return None
        ranged: Any = record
        return self._about(ranged, kind, ranged.ranges, error=getattr(record, "error", ""))

    def _about(self, record: Any, kind: Kind, ranges: list[int], *, consumer: str = "", error: str = "") -> Happening:
        names = tuple(self._names(record.queue, record.partition, ranges))
        path = self._queues.get(record.queue, "")
        return Happening(kind, path, record.at, total(ranges), names, consumer, error)

    def _names(self, queue: int, partition: int, ranges: list[int]) -> Iterator[str]:
        room = NAMED_MAX
        for first, stop in pairs(ranges):
            stop = min(stop, first + room)
            try:
                runs = list(self._view.log.runs(queue, partition, first, stop))
            except NotAtHand:  # a name is not worth a fetch
                yield from (ulid_text(self._view.log.id_at(queue, partition, offset)) for offset in range(first, stop))
                room -= stop - first
                continue
            for record, inside, after in runs:
                for offset in range(inside, after):
                    row = offset - record.offset
                    yield record.batch.string(layout.ID, row).decode() or ulid_text(record.id + row)
                room -= after - inside
            if room <= 0:
                return


_BY_RANGES: dict[type, Kind] = {
    records.Acked: "acked",
    records.Retried: "retried",
    records.DeadLettered: "dead_lettered",
    records.Expired: "expired",
    records.Cancelled: "cancelled",
}
