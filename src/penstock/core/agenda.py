"""Things to do at a time: `(due_ms, first, count)`, millions of them, in little memory.

Prior art is the heap (one tuple per entry: 200 bytes) and the timer wheel (a horizon that wraps). This is neither.
Entries lie in flat integer arrays, 24 bytes each, in one array per stretch of time. There are three ranks:

- *far*: stretches of 70 minutes, unsorted;
- *near*: stretches of 16 seconds, unsorted, filled from the next far stretches a few thousand entries at a time;
- *now*: the earliest near stretch, as a heap of tuples.

Adding is O(1) at any horizon, taking what is due costs O(log n) of one 16-second stretch, and nothing wraps.
A run of messages that are due together is one entry.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

NEAR_SHIFT = 14
FAR_SHIFT = 22
REFINE_ENTRIES = 4096
"""Entries moved from far to near per call, so that a crowded hour is prepared in small steps."""


class Agenda:
    __slots__ = ("_far", "_far_keys", "_near", "_near_keys", "_now", "_now_until", "_refining", "count")

    def __init__(self) -> None:
        self.count = 0
        """Messages, not entries."""
        self._now: list[tuple[int, int, int]] = []
        self._now_until = 0
        self._near: dict[int, array[int]] = {}
        self._near_keys: list[int] = []
        self._far: dict[int, array[int]] = {}
        self._far_keys: list[int] = []
        self._refining: array[int] = array("q")

    def add(self, due_ms: int, first: int, count: int, now_ms: int) -> None:
        self.count += count
        far_key = due_ms >> FAR_SHIFT
        # What lies within two far stretches of the moment goes straight to its near stretch, and so does what comes
        # before the current stretch, however far away that is: the current one must stay the earliest.
        if far_key <= (now_ms >> FAR_SHIFT) + 1 or due_ms >> NEAR_SHIFT < self._now_until:
            self._place_near(due_ms, first, count)
            return
        flat = self._far.get(far_key)
        if flat is None:
            self._far[far_key] = flat = array("q")
            heappush(self._far_keys, far_key)
        flat.extend((due_ms, first, count))

    def next_ms(self) -> int | None:
        """When the earliest entry is due. May prepare the stretch it lies in."""
        if not self._now:
            self._load()
        return self._now[0][0] if self._now else None

    def take_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Remove and return everything due at or before `now_ms`, earliest first."""
        due: list[tuple[int, int, int]] = []
        while True:
            heap = self._now
            while heap and heap[0][0] <= now_ms:
                due.append(heappop(heap))
                self.count -= due[-1][2]
            if heap or not self._load():
                break
        self._refine(now_ms)
        return due

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Every entry, in no particular order."""
        yield from self._now
        for flat in (*self._near.values(), *self._far.values(), self._refining):
            yield from zip(flat[::3], flat[1::3], flat[2::3], strict=True)

    def _load(self) -> bool:
        """Make the earliest stretch the current one; False if there is nothing at all."""
        far_first = self._far_keys[0] << (FAR_SHIFT - NEAR_SHIFT) if self._far_keys else None
        if self._refining or (far_first is not None and (not self._near_keys or self._near_keys[0] >= far_first)):
            self._open_far(everything=True)
        if not self._near_keys:
            return False
        key = heappop(self._near_keys)
        flat = self._near.pop(key)
        self._now = list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        heapify(self._now)
        self._now_until = key + 1
        return True

    def _refine(self, now_ms: int) -> None:
        """Prepare the next far stretch ahead of its time, a step at a time."""
        if self._refining or (self._far_keys and self._far_keys[0] <= (now_ms >> FAR_SHIFT) + 1):
            self._open_far(everything=False)

    def _open_far(self, *, everything: bool) -> None:
        if not self._refining:
            self._refining = self._far.pop(heappop(self._far_keys))
        flat = self._refining
        step = len(flat) if everything else min(len(flat), 3 * REFINE_ENTRIES)
        part = flat[len(flat) - step :]
        del flat[len(flat) - step :]
        for at in range(0, step, 3):
            self._place_near(part[at], part[at + 1], part[at + 2])

    def _place_near(self, due_ms: int, first: int, count: int) -> None:
        key = due_ms >> NEAR_SHIFT
        if key < self._now_until:
            heappush(self._now, (due_ms, first, count))
            return
        flat = self._near.get(key)
        if flat is None:
            self._near[key] = flat = array("q")
            heappush(self._near_keys, key)
        flat.extend((due_ms, first, count))
