"""Which queue of a scope is next: the highest `queue_priority`, and among equals the oldest message that is ready.

A scope is the beginning of a path: a namespace, or a namespace and a task. Asking every queue of it at every lease
would cost what the scope has queues, so for each scope and group that has been leased from there is a heap of the
queues that *may* have something ready. A queue gets in when something happens to it (a record, or time), and is thrown
out when it turns out to have nothing; both cost the logarithm of the heap. Entries may be too optimistic, never too
pessimistic: the one on top is looked at again before it is believed.

All of it is soft, and belongs to the loop that runs the shard.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import TypeAlias

from penstock import limits
from penstock.core import records
from penstock.core.decide.rebalancing import is_assigned
from penstock.core.order.oldest import oldest_ready
from penstock.core.records import Record
from penstock.core.state import Shard

PublishedAt: TypeAlias = Callable[[int, int, int], int | None]
"""(queue, partition, offset) -> when this message was published; None if it is still on its way to the disk."""

Turn: TypeAlias = tuple[int, int, int]
"""(minus the queue's priority, when its oldest ready message was published, the queue): the least one is next."""

STALE_MAX = 64
"""Entries that are no longer valid may be as many as the valid ones and this many more."""
_NEVER_STIRS = (records.Leased, records.Extended)
"""They take messages away and bring none back."""


class Scope:
    """The queues of one scope that may have something for one group."""

    __slots__ = ("group", "heap", "turns")

    def __init__(self, group: str):
        self.group = group
        self.turns: dict[int, Turn] = {}
        """The valid entry of each queue; others in the heap are stale."""
        self.heap: list[Turn] = []

    def put(self, turn: Turn) -> None:
        self.turns[turn[2]] = turn
        heappush(self.heap, turn)
        if len(self.heap) > 2 * len(self.turns) + STALE_MAX:
            self.heap = sorted(self.turns.values())


class Scopes:
    def __init__(self, shard: Shard, published_at: PublishedAt):
        self._shard = shard
        self._published_at = published_at
        self._open: dict[tuple[str, str], Scope] = {}
        """By scope and group, least recently used first."""
        self._over: dict[str, list[Scope]] = {}
        """The same by scope."""
        self._members: dict[str, dict[int, None]] = {}
        """The queues of every scope there is; empty until the first lease from a scope."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def next_queue(self, scope: str, group: str, now_ms: int) -> int | None:
        """Where this group of the scope is to be served from; None if nothing is ready in any of its queues."""
        opened = self._scope(scope, group)
        turns = opened.turns
        while heap := opened.heap:
            turn = heap[0]
            if turns.get(turn[2]) != turn:
                heappop(heap)
                continue
            actual = self._turn(turn[2], group, now_ms)
            if actual is None:
                del turns[turn[2]]
            elif actual > turn:
                turns[turn[2]] = actual
                heapreplace(heap, actual)
            else:
                return turn[2]
        return None

    def head(self, scope: str, group: str, now_ms: int) -> tuple[int, int] | None:
        """(minus the priority, the time) of the message that this group would be served next."""
        queue = self.next_queue(scope, group, now_ms)
        return None if queue is None else self._open[scope, group].turns[queue][:2]

    def exhausted(self, scope: str, group: str, queue: int) -> None:
        """This queue has nothing to give after all. It comes back when something happens to it."""
        self._open[scope, group].turns.pop(queue, None)

    def note(self, record: Record) -> None:
        """A record was applied."""
        number = getattr(record, "queue", None)
        if number is None or type(record) in _NEVER_STIRS:
            return
        if type(record) is records.QueueDeleted:
            for members in self._members.values():
                members.pop(number, None)
            for opened in self._open.values():
                opened.turns.pop(number, None)
            return
        if type(record) is records.QueueConfigured:
            for scope in scopes_over(record.path):
                self._members.setdefault(scope, {})[number] = None
            # Its turn was computed with the old priority. If nothing is ready now, the next record computes it again.
            for opened in self._opened_over(number):
                opened.turns.pop(number, None)
        self.stir(number, published=type(record) is records.Published)

    def stir(self, number: int, *, published: bool = False) -> None:
        """Something in this queue may have become ready."""
        for opened in self._opened_over(number):
            before = opened.turns.get(number)
            # A message that was just published is younger than all others.
            if before is None or not published:
                turn = self._turn(number, opened.group, self._now_ms())
                if turn is not None and (before is None or turn < before):
                    opened.put(turn)

    def _now_ms(self) -> int:
        """How far time has done its work: what it has made ready must not be taken for early."""
        return max(self._shard.now_ms, self._shard.advanced_ms)

    def _opened_over(self, number: int) -> list[Scope]:
        queue = self._shard.queues.get(number)
        if queue is None:
            return []
        return [opened for scope in scopes_over(queue.path) for opened in self._over.get(scope, ())]

    def _scope(self, scope: str, group: str) -> Scope:
        opened = self._open.pop((scope, group), None)
        if opened is None:
            if not self._members:
                for number, queue in self._shard.queues.items():
                    for over in scopes_over(queue.path):
                        self._members.setdefault(over, {})[number] = None
            opened = Scope(group)
            self._over.setdefault(scope, []).append(opened)
            for number in self._members.get(scope, ()):
                turn = self._turn(number, group, self._now_ms())
                if turn is not None:
                    opened.put(turn)
            while len(self._open) >= limits.SCOPES_KEPT:
                self._forget(*next(iter(self._open)))
        self._open[scope, group] = opened
        return opened

    def _forget(self, scope: str, group: str) -> None:
        self._over[scope].remove(self._open.pop((scope, group)))
        if not self._over[scope]:
            del self._over[scope]

    def _turn(self, number: int, group: str, now_ms: int) -> Turn | None:
        queue = self._shard.queues[number]
        if is_assigned(queue, group):
            return None  # what is there is for its members
        oldest: int | None = None
        for place, partition in enumerate(queue.partitions):
            offset = oldest_ready(queue, partition, queue.groups.get(group), now_ms)
            if offset is not None:
                at = self._published_at(number, place, offset)
                # A message that is not on the disk yet is younger than all that are.
                at = now_ms if at is None else at
                oldest = at if oldest is None else min(oldest, at)
        return None if oldest is None else (-queue.config.queue_priority, oldest, number)


def scopes_over(path: str) -> tuple[str, str]:
    """The scopes that a queue is in: of its namespace and task, and of its namespace."""
    within = path.rpartition("/")[0]
    return within, within.partition("/")[0]
