"""Counters per queue since the process started, and rates of the last minute, both fed by the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock import limits
from penstock.core import records
from penstock.core.offsets.ranges import total
from penstock.core.records import Record
from penstock.core.state.leases import Lease
from penstock.runtime.latencies import Latencies
from penstock.runtime.workload import Ring, Work, covered_ms

_NAMES = (
    "acked", "cancelled", "dead_lettered", "delivered", "expired", "lease_expired", "published", "redelivered",
    "redriven", "retried", "session_expired",
)  # fmt: skip
_RECENT = ("published", "delivered", "acked")
"""Columns of a queue's ring."""


class QueueCounters:
    __slots__ = (*_NAMES, "asked", "recent", "waits")

    def __init__(self) -> None:
        for name in _NAMES:
            setattr(self, name, 0)
        self.recent = Ring(len(_RECENT))
        self.asked: dict[str, int] = {}
        """Group -> when a consumer last asked for messages."""
        self.waits: Latencies | None = None
        """From publish to first delivery, of the last minutes."""

    published: int
    delivered: int
    redelivered: int
    acked: int
    retried: int
    lease_expired: int
    """Retried because their lease expired."""
    session_expired: int
    """Retried because the session of their group member expired."""
    redriven: int
    dead_lettered: int
    expired: int
    cancelled: int

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _NAMES}


class Counters:
    def __init__(self, now_ms: int, leases: Mapping[int, Lease] | None = None) -> None:
        self.began_ms = now_ms
        self._scopes_asked: dict[tuple[str, str], int] = {}
        self.by_queue: dict[int, QueueCounters] = {}
        self._work: dict[int, dict[int, Work]] = {}
        self.adopt(now_ms, leases or {})

    def of(self, queue: int) -> QueueCounters:
        found = self.by_queue.get(queue)
        if found is None:
            found = self.by_queue[queue] = QueueCounters()
        return found

    def waited(self, queue: int, ms: int, count: int) -> None:
        """So many messages were delivered for the first time, `ms` after their publish."""
        counters = self.by_queue.get(queue)
        if counters is not None:  # otherwise the queue was deleted
            if counters.waits is None:
                counters.waits = Latencies()
            counters.waits.observe(ms if ms > 0 else 0, count)

    def work(self, queue: int, group: int, now_ms: int) -> Work:
        groups = self._work.get(queue)
        if groups is None:
            groups = self._work[queue] = {}
        found = groups.get(group)
        if found is None:
            found = groups[group] = Work(now_ms)
        return found

    def adopt(self, now_ms: int, leases: Mapping[int, Lease]) -> None:
        """Take exactly these leases as held: after a start, or when the journal was read again."""
        for groups in self._work.values():
            for work in groups.values():
                work.forget_held(now_ms)
        for lease in leases.values():
            count = sum(run.stop - run.first for run in lease.held)
            self.work(lease.queue, lease.group, now_ms).took(now_ms, lease.consumer or lease.id, count)

    def asked(self, queue: int, group: str, now_ms: int) -> None:
        """A consumer asked for messages of this queue."""
        asked = self.of(queue).asked
        # Group names come from callers. A group beyond the limit is refused, so its name need not be kept.
        if group in asked or len(asked) < limits.GROUPS_PER_QUEUE_MAX:
            asked[group] = now_ms

    def asked_scope(self, scope: str, group: str, now_ms: int) -> None:
        """A consumer asked for messages of any queue of this scope."""
        if (scope, group) in self._scopes_asked or len(self._scopes_asked) < limits.GROUPS_PER_QUEUE_MAX:
            self._scopes_asked[scope, group] = now_ms

    def last_asked(self, queue: int, scopes: Iterable[str], group: str) -> int | None:
        """The time of the last lease request for this queue, or for one of these scopes that contain it."""
        times = [self.of(queue).asked.get(group), *(self._scopes_asked.get((scope, group)) for scope in scopes)]
        return max((time for time in times if time is not None), default=None)

    def rates(self, queue: int, now_ms: int) -> dict[str, float]:
        """Messages a second over the last minute, or since the process started if that is less."""
        seconds = covered_ms(now_ms, self.began_ms) / 1000
        recent = self.of(queue).recent
        return {f"{name}_per_s": recent.total(now_ms, column) / seconds for column, name in enumerate(_RECENT)}

    # -- counting records -----------------------------------------------------------------------------------------

    def note(self, record: Record, leases: Mapping[int, Lease]) -> None:
        """Count a record that is about to be applied; `leases` is the state before it."""
        kind = type(record)
        if kind is records.Published:
            count = record.batch.count  # type: ignore[union-attr]
            counters = self.of(record.queue)  # type: ignore[union-attr]
            counters.published += count
            counters.recent.add(record.at, 0, count)
        elif kind is records.Leased:
            self._leased(record)
        elif kind in _BY_RANGES:
            self._ranged(kind, record, leases)
        elif kind is records.QueuePurged:
            for work in self._work.get(record.queue, {}).values():  # type: ignore[union-attr]
                work.forget_held(record.at)
        elif kind is records.GroupDeleted:
            self._group_deleted(record)
        elif kind is records.QueueDeleted:
            self.by_queue.pop(record.queue, None)  # type: ignore[union-attr]
            self._work.pop(record.queue, None)  # type: ignore[union-attr]

    def _group_deleted(self, record: Any) -> None:
        self.of(record.queue).asked.pop(record.name, None)
        self._work.get(record.queue, {}).pop(record.group, None)

    def _leased(self, record: Any) -> None:
        counters = self.of(record.queue)
        runs = record.runs
        count = sum(runs[1::3])
        counters.delivered += count
        counters.recent.add(record.at, 1, count)
        if max(runs[2::3]) > 1:
            counters.redelivered += sum(c for c, attempt in zip(runs[1::3], runs[2::3], strict=True) if attempt > 1)
        work = self.work(record.queue, record.group, record.at)
        if record.settled:
            counters.acked += count
            counters.recent.add(record.at, 2, count)
            work.done(record.at, count, 0)
        else:
            work.took(record.at, record.consumer or record.lease, count)

    def _ranged(self, kind: type, record: Any, leases: Mapping[int, Lease]) -> None:
        counters = self.of(record.queue)
        count = total(record.ranges)
        name = _BY_RANGES[kind]
        if name:
            setattr(counters, name, getattr(counters, name) + count)
        if kind is records.Acked:
            counters.recent.add(record.at, 2, count)
        elif kind is records.Retried and record.reason == "lease_expired":
            counters.lease_expired += count
        elif kind is records.Retried and record.reason == "session_expired":
            counters.session_expired += count
        lease = leases.get(record.lease) if kind in _OF_A_LEASE else None
        if lease is not None:
            work = self.work(record.queue, record.group, record.at)
            work.let_go(record.at, lease.consumer or lease.id, count)
            if kind is records.Acked or kind is records.DeadLettered:
                work.done(record.at, count, max(0, record.at - lease.at))


_BY_RANGES: dict[type, str] = {
    records.Acked: "acked",
    records.Retried: "retried",
    records.Released: "",
    records.DeadLettered: "dead_lettered",
    records.Redriven: "redriven",
    records.Expired: "expired",
    records.Cancelled: "cancelled",
}
_OF_A_LEASE = frozenset({records.Acked, records.Retried, records.Released, records.DeadLettered})
