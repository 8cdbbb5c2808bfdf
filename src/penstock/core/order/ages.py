"""The oldest deliverable message of each partition: queues are compared by it, windows measured by it.

The orders know the next message, not the oldest, and a walk along the log would pass over all messages that are blocked
behind a key or by a tenant's cap. So offered messages are kept here a second time, as bits by offset: a few hundred
bytes for a thousand messages. With fair shares each tenant has its own bits, and a heap of their first offsets gives
the oldest; a tenant that is found at its cap leaves that heap until one of its leases ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from penstock.core.offsets.bits import OffsetBits

STALE_MAX = 64
"""Entries of a heap that are no longer valid may be as many as the valid ones and this many more."""


class Ages:
    """The offered offsets of one partition and one group, by tenant; tenant 0 where tenants are not used."""

    __slots__ = ("_firsts", "_heap", "_offered", "_resting")

    def __init__(self) -> None:
        self._offered: dict[int, OffsetBits] = {}
        self._firsts: dict[int, int] = {}
        """Tenant -> an offset that is not above its first one; no entry for tenants at rest."""
        self._heap: list[tuple[int, int]] = []
        """(offset, tenant) of all that is in `_firsts`, and stale ones."""
        self._resting: set[int] = set()

    def add(self, tenant: int, first: int, stop: int) -> None:
        """These may be given out."""
        self._of(tenant).add(first, stop)
        self._note_first(tenant, first)

    def add_all(self, tenant: int, offsets: Sequence[int]) -> None:
        """These, ascending."""
        self._of(tenant).add_all(offsets)
        self._note_first(tenant, offsets[0])

    def _of(self, tenant: int) -> OffsetBits:
        offered = self._offered.get(tenant)
        if offered is None:
            offered = self._offered[tenant] = OffsetBits()
        return offered

    def _note_first(self, tenant: int, first: int) -> None:
        if tenant not in self._resting:
            known = self._firsts.get(tenant)
            if known is None or first < known:
                self._put(tenant, first)

    def remove(self, tenant: int, ranges: Sequence[tuple[int, int]]) -> None:
        """These messages are leased, or not deliverable any more."""
        offered = self._offered.get(tenant)
        if offered is not None:
            offered.remove_all(ranges)
            if not offered.count:
                del self._offered[tenant]
                self._firsts.pop(tenant, None)
                self._resting.discard(tenant)

    def remove_all(self, first: int, stop: int) -> None:
        """The same, whosever they are."""
        for tenant in list(self._offered):
            self.remove(tenant, ((first, stop),))

    def wake(self, tenant: int) -> None:
        """This tenant may be below its cap again."""
        if tenant in self._resting:
            self._resting.remove(tenant)
            offset = self._offered[tenant].first()
            assert offset is not None, "a partition without messages does not rest"
            self._put(tenant, offset)

    def _put(self, tenant: int, offset: int) -> None:
        self._firsts[tenant] = offset
        heappush(self._heap, (offset, tenant))
        if len(self._heap) > 2 * len(self._firsts) + STALE_MAX:
            self._heap = [(offset, tenant) for tenant, offset in self._firsts.items()]
            heapify(self._heap)

    def oldest(self, rests: Callable[[int], bool], valid: Callable[[int], bool]) -> int | None:
        """The lowest offset that is valid and of a tenant that does not rest. Invalid offsets are dropped."""
        heap, firsts = self._heap, self._firsts
        while heap:
            offset, tenant = heap[0]
            if firsts.get(tenant) != offset:
                heappop(heap)
                continue
            if rests(tenant):
                heappop(heap)
                del firsts[tenant]
                self._resting.add(tenant)
                continue
            actual = self._offered[tenant].first()
            assert actual is not None, "a partition without messages is not in the heap"
            if not valid(actual):
                self.remove(tenant, ((actual, actual + 1),))
            elif actual != offset:
                firsts[tenant] = actual
                heapreplace(heap, (actual, tenant))
            else:
                return offset
        return None
