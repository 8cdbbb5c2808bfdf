"""Leases: which runs of offsets one lease holds, and until when."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

from penstock.core.offsets.ranges import pairs


class Held(msgspec.Struct, frozen=True, gc=False):
    """A run of offsets under a lease."""

    first: int
    stop: int
    attempt: int
    deadline: int


class Lease(msgspec.Struct):
    """An exclusive, time-bounded hold by one consumer. Hard, all of it."""

    id: int
    nonce: int
    queue: int
    partition: int
    group: int
    consumer: str
    lease_ms: int
    at: int
    held: list[Held]

    def parts(self, first: int, stop: int) -> list[Held]:
        """The runs in `[first, stop)` that this lease still holds."""
        low, high = self._overlapping(first, stop)
        runs = self.held[low:high]
        if len(runs) == 1 and first <= runs[0].first and runs[0].stop <= stop:
            return runs
        return [Held(max(first, run.first), min(stop, run.stop), run.attempt, run.deadline) for run in runs]

    def release(self, ranges: list[int]) -> None:
        """Let go of these, a flat list of them."""
        if len(ranges) == 2 * len(self.held) and sorted(pairs(ranges)) == [(run.first, run.stop) for run in self.held]:
            self.held = []  # all of it at once, as most leases are let go
            return
        for first, stop in pairs(ranges):
            self._put(first, stop, [])

    def extend(self, first: int, stop: int, deadline: int) -> None:
        self._put(
            first, stop, [Held(part.first, part.stop, part.attempt, deadline) for part in self.parts(first, stop)]
        )

    def _put(self, first: int, stop: int, inside: list[Held]) -> None:
        """These runs, and nothing else, in `[first, stop)`; what reaches over its ends stays."""
        low, high = self._overlapping(first, stop)
        if low < high:
            left, right = self.held[low], self.held[high - 1]
            if left.first < first:
                inside = [Held(left.first, first, left.attempt, left.deadline), *inside]
            if stop < right.stop:
                inside = [*inside, Held(stop, right.stop, right.attempt, right.deadline)]
            self.held[low:high] = inside

    def _overlapping(self, first: int, stop: int) -> tuple[int, int]:
        """Which of the runs, that are in order: a lease of thousands of scattered messages is settled one by one."""
        held = self.held
        low = bisect_right(held, first, key=_stop_of) if held and held[0].stop <= first else 0
        if low < len(held) and stop <= held[low].stop:
            # Most claims are about one run, or about none where a run was let go.
            return low, low + 1 if held[low].first < stop else low
        return low, bisect_left(held, stop, low, key=_first_of)


def _first_of(run: Held) -> int:
    return run.first


def _stop_of(run: Held) -> int:
    return run.stop
