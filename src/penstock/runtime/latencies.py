"""Latencies of the last minutes as counts per bucket, from which percentiles are computed.

A bucket spans an eighth of an octave: 8 to 16 ms are eight buckets, and so are 1,024 to 2,048 ms. A percentile is the
upper end of its bucket, so it is exact below 16 ms and otherwise at most an eighth too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

QUANTILES = (0.5, 0.95, 0.99)
NONE = (-1, -1, -1)
"""Percentiles of no latencies."""
_SUB_BITS = 3


class Latencies:
    """Counts of the minute that is being measured, and of the one before it."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def observe(self, ms: int, count: int) -> None:
        octave = ms.bit_length() - _SUB_BITS - 1
        bucket = ms if octave <= 0 else (octave << _SUB_BITS) + (ms >> octave)
        self._now[bucket] = self._now.get(bucket, 0) + count

    def end_minute(self) -> dict[int, int]:
        """The counts of the minute that ends now."""
        self._before, self._now = self._now, {}
        return self._before

    def recent(self) -> dict[int, int]:
        """The counts of this minute and of the one before it."""
        return merged((self._before, self._now))


def merged(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for each in counts:
        for bucket, count in each.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def percentiles(counts: Mapping[int, int]) -> tuple[int, ...]:
    """The `QUANTILES` of these counts, in milliseconds."""
    if not counts:
        return NONE
    total, passed = sum(counts.values()), 0
    found: list[int] = []
    wanted = [quantile * total for quantile in QUANTILES]
    for bucket in sorted(counts):
        passed += counts[bucket]
        while len(found) < len(wanted) and passed >= wanted[len(found)]:
            found.append(_upper_end(bucket))
    return tuple(found)


def _upper_end(bucket: int) -> int:
    """The largest latency of a bucket."""
    if bucket < 2 << _SUB_BITS:
        return bucket
    octave = (bucket >> _SUB_BITS) - 1
    return ((bucket - (octave << _SUB_BITS) + 1) << octave) - 1
