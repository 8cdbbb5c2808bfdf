"""The arithmetic of a run: samples become medians with their spread; ratios are taken round by round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Sample(NamedTuple):
    """The result of one turn of one peer."""

    messages: int
    seconds: float
    server_cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of server CPU per message."""
        return self.server_cpu_seconds * 1e6 / self.messages


class Spread(NamedTuple):
    """A median with its extremes: with few rounds they say more than a deviation."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Penstock over the peer, round by round, then the median.

    Both sides of a quotient come from the same round, seconds apart, so a slow minute of the machine slows both. The
    quotient of the two medians would compare different minutes.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} rounds of ours, {len(theirs)} of theirs: only whole rounds can be compared")
    return Spread.of([mine / yours for mine, yours in zip(ours, theirs, strict=True)])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed (nearest rank: always a real value)."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def percentile_by_parts(values: Sequence[float], percent: float, parts: int = 5) -> Spread:
    """The percentile of each part of a run, in the order of time: their median, and the best and worst part.

    It separates one disturbed second from a constant delay of the broker.
    """
    size = -(-len(values) // parts)
    return Spread.of([percentile(values[at : at + size], percent) for at in range(0, len(values), size)])
