"""What happened since the process started, counted per queue from the records themselves."""

from __future__ import annotations

from typing import Any

from penstock.core import records
from penstock.core.ranges import total
from penstock.core.records import Record


class QueueCounters:
    __slots__ = (
        "acked", "cancelled", "dead_lettered", "delivered", "expired", "published", "redelivered", "redriven",
        "retried",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    published: int
    delivered: int
    redelivered: int
    acked: int
    retried: int
    redriven: int
    dead_lettered: int
    expired: int
    cancelled: int

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


class Counters:
    def __init__(self) -> None:
        self.by_queue: dict[int, QueueCounters] = {}

    def of(self, queue: int) -> QueueCounters:
        found = self.by_queue.get(queue)
        if found is None:
            found = self.by_queue[queue] = QueueCounters()
        return found

    def note(self, record: Record) -> None:
        kind = type(record)
        if kind is records.Published:
            self.of(record.queue).published += record.batch.count  # type: ignore[union-attr]
        elif kind is records.Leased:
            self._leased(record)
        elif kind in _BY_RANGES:
            ranged: Any = record
            counters = self.of(ranged.queue)
            name = _BY_RANGES[kind]
            setattr(counters, name, getattr(counters, name) + total(ranged.ranges))

    def _leased(self, record: Any) -> None:
        counters = self.of(record.queue)
        runs = record.runs
        count = sum(runs[1::3])
        counters.delivered += count
        if max(runs[2::3]) > 1:
            counters.redelivered += sum(c for c, attempt in zip(runs[1::3], runs[2::3], strict=True) if attempt > 1)
        if record.settled:
            counters.acked += count


_BY_RANGES: dict[type, str] = {
    records.Acked: "acked",
    records.Retried: "retried",
    records.DeadLettered: "dead_lettered",
    records.Redriven: "redriven",
    records.Expired: "expired",
    records.Cancelled: "cancelled",
}
