"""How far one group is in one partition: a cursor over the log, and the exceptions to it. See `shard.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.core.offsets.ranges import CrumblingSet, RangeSet
from penstock.core.state.retries import Retries

if TYPE_CHECKING:
    from penstock.core.order.dispatcher_adapter import DispatcherAdapter
    from penstock.core.state.shard import Partition

NEVER_MS = 2**62


class Progress:
    """How far one group is in one partition."""

    __slots__ = ("adapter", "armed", "cursor", "done", "floor", "leased", "ready", "retries", "undelayed", "waiting")

    def __init__(self, start: int):
        # Hard.
        self.floor = start
        self.cursor = start
        self.done = CrumblingSet()
        self.leased = RangeSet()
        self.undelayed = RangeSet()
        """Exceptions to `Partition.delayed`, at or above the cursor: their delay was over when the group began, so they
        are on its cursor's path."""
        self.retries = Retries()
        # Soft.
        self.ready: list[int] = []
        """Heap of offsets off the cursor's path whose time has come; may hold stale entries."""
        self.waiting: list[tuple[int, int]] = []
        """Heap of (due, offset) of retries; may hold stale entries."""
        self.adapter: DispatcherAdapter | None = None
        """Where what is ready is reported instead of `ready`, if the queue has a dispatcher."""
        self.armed = NEVER_MS

    def mark_done(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.retries.forget(ranges)
        for first, stop in ranges:
            self.done.add(first, stop)
            if first <= self.floor:
                self.floor = self.done.past(self.floor)
                self.done.remove_below(self.floor)
                if self.cursor < self.floor:
                    self.cursor = self.floor
                    self.undelayed.remove_below(self.floor)
        if self.adapter is not None:
            self.adapter.leave(ranges)

    def make_ready(self, first: int, stop: int) -> None:
        """`[first, stop)`, off the cursor's path, may be delivered from now on."""
        if self.adapter is not None:
            self.adapter.ready(first, stop)
            return
        for offset in range(first, stop):
            heappush(self.ready, offset)

    def on_path(self, partition: Partition, cursor: int) -> int:
        """The next offset on the cursor's own path: neither delayed at its publish nor ended before its delivery."""
        overdue = partition.overdue
        while (past := overdue.past(self.done.past(self._past_delayed(partition, cursor)))) != cursor:
            cursor = past
        return cursor

    def off_path(self, partition: Partition, cursor: int) -> int:
        """Where the path that goes on at `cursor` is interrupted next."""
        end = partition.end
        stop = min(self._next_delayed(partition, cursor), self.done.next_start(cursor, end))
        return min(stop, partition.overdue.next_start(cursor, end)) if partition.overdue.count else stop

    def is_delayed(self, partition: Partition, offset: int) -> bool:
        """True if the cursor passes over this offset, at or above it: published with a delay, or rescheduled."""
        return offset in partition.delayed and offset not in self.undelayed

    def delayed(self, partition: Partition) -> Iterator[tuple[int, int]]:
        """The stretches at or above the cursor that it passes over."""
        for first, stop in partition.delayed.within(self.cursor, partition.end):
            yield from self.undelayed.gaps(first, stop)

    def moves_cursor(self, partition: Partition, first: int, stop: int) -> bool:
        """True if something in `[first, stop)`, at or above the cursor, is on its path."""
        return any(partition.delayed.gaps(first, stop)) or self.undelayed.overlaps(first, stop)

    def _past_delayed(self, partition: Partition, cursor: int) -> int:
        past = partition.delayed.past(cursor)
        if past == cursor or not self.undelayed:
            return past
        return cursor if cursor in self.undelayed else min(past, self.undelayed.next_start(cursor, past))

    def _next_delayed(self, partition: Partition, cursor: int) -> int:
        """Where the cursor, which is on its path, comes to an offset that it passes over; or the end of the log."""
        delayed, end = partition.delayed, partition.end
        if not self.undelayed.count:
            return delayed.next_start(cursor, end)
        while cursor < end and not self.is_delayed(partition, cursor):
            cursor = self.undelayed.past(cursor) if cursor in self.undelayed else delayed.next_start(cursor, end)
        return min(cursor, end)

    def may_deliver(self, partition: Partition, offset: int, now_ms: int | None) -> bool:
        """False for entries that were settled, leased, moved to later or taken away since they were reported ready.

        Without a time, what waits for its next attempt counts as well, and so does what waits for its end.
        """
        # Asked about every message that comes due or back, and about many that are dispatched: most of the sets are
        # empty, and some messages lie beyond all that is done or leased. Both are seen without a search.
        done, leased = self.done.stops, self.leased.stops
        if offset < self.floor or ((offset < done[-1] if done else self.done.count) and offset in self.done):
            return False
        if (offset < leased[-1] if leased else self.leased.count) and offset in self.leased:
            return False
        if partition.scheduled.count and offset in partition.scheduled:
            return False
        if now_ms is None:
            return True
        if partition.overdue.count and offset in partition.overdue:
            return False
        retry = self.retries.get(offset) if self.retries else None
        return retry is None or retry.due <= now_ms

    def untouched_from(self, partition: Partition) -> int:
        """At this offset and behind, nothing has happened to any message but that it was published, to be given at
        once: it may be delivered."""
        return max(
            self.floor,
            self.done.end,
            self.leased.end,
            self.retries.highest + 1,
            partition.scheduled.end if partition.scheduled.count else 0,
            partition.overdue.end,
        )

    def spared(self, partition: Partition, offset: int) -> None:
        """Its time to live was over, and no longer counts: if it was passed over for that, it is to be found again."""
        retry = self.retries.get(offset)
        if retry is None:
            self.push_ready(partition, offset, offset + 1)
        elif offset not in self.leased:
            heappush(self.waiting, (retry.due, offset))

    def mark_undone(self, offset: int) -> None:
        """It was done, and is to be delivered again. Everything else stays as it is."""
        if offset < self.floor:
            self.done.add(offset + 1, self.floor)
            self.floor = offset
        else:
            self.done.remove(offset, offset + 1)

    def is_done(self, offset: int) -> bool:
        return offset < self.floor or offset in self.done

    def undone(self, end: int) -> int:
        return end - self.floor - self.done.count

    def push_ready(self, partition: Partition, first: int, stop: int) -> None:
        """`[first, stop)` came due; what of it is still undelivered in this group becomes ready."""
        for gap_first, gap_stop in self.done.gaps(max(first, self.floor), stop):
            for free_first, free_stop in self.leased.gaps(gap_first, gap_stop):
                for offset in range(free_first, free_stop):
                    if (offset < self.cursor or self.is_delayed(partition, offset)) and offset not in self.retries:
                        self.make_ready(offset, offset + 1)

    def advance_retries(self, now_ms: int) -> None:
        """Messages whose next attempt is due become ready."""
        while self.waiting and self.waiting[0][0] <= now_ms:
            due, offset = heappop(self.waiting)
            retry = self.retries.get(offset)
            if retry is not None and retry.due == due and offset not in self.leased:
                self.make_ready(offset, offset + 1)

    def rebuild(self, partition: Partition) -> None:
        """The soft fields from the hard ones."""
        self.waiting = [(retry.due, offset) for offset, retry in self.retries.items() if offset not in self.leased]
        heapify(self.waiting)
        self.ready = []
        self.armed = NEVER_MS
        if self.adapter is not None:
            return  # `open_dispatcher` has reported all ready messages to the dispatcher
        candidates = RangeSet([(self.floor, min(self.cursor, partition.end))])
        for first, stop in self.delayed(partition):
            candidates.add(first, stop)
        for first, stop in candidates:
            for gap_first, gap_stop in partition.scheduled.gaps(first, stop):
                self.push_ready(partition, gap_first, gap_stop)
