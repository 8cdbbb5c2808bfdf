"""Token buckets: requests, messages and bytes per key, and failures per address.

A bucket is one number, the time at which it is full again (the generic cell rate algorithm), and needs no timer.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from penstock import limits
from penstock.errors import InvalidRequest

_RATE = re.compile(r"([1-9][0-9]{0,9})([kMG]?)/([smh])")
_SIZES = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_UNIT_S = {"s": 1, "m": 60, "h": 3600}


class Rate(NamedTuple):
    """So many requests, messages or bytes per unit of time; all of them may come at once."""

    amount: int
    unit: str

    @property
    def interval_s(self) -> float:
        return _UNIT_S[self.unit] / self.amount

    def __str__(self) -> str:
        return f"{self.amount}/{self.unit}"


def parse_rate(text: str) -> Rate:
    """Parse `1000/m` or `50M/s`. Raises InvalidRequest."""
    found = _RATE.fullmatch(text)
    count = int(found[1]) * _SIZES[found[2]] if found is not None else 0
    if found is None or count > limits.RATE_MAX:
        raise InvalidRequest(
            f"rate {text[:50]!r} is not a number per s, m or h, like 1000/m or 50M/s", details={"field": "rate"}
        )
    return Rate(count, found[3])


class TokenBucket:
    """Allows `rate.amount` at once and one more every `rate.interval_s`."""

    __slots__ = ("_full_at", "_interval_s", "_span_s")

    def __init__(self, rate: Rate):
        self._interval_s = rate.interval_s
        self._span_s = float(_UNIT_S[rate.unit])
        self._full_at = 0.0

    def take(self, now_s: float, count: int = 1) -> float:
        """Take tokens and return 0, or return the seconds after which there will be enough."""
        wait_s = self.wait_s(now_s, count)
        if not wait_s:
            self.spend(now_s, count)
        return wait_s

    def wait_s(self, now_s: float, count: int = 1) -> float:
        """The seconds until there are so many tokens; 0: now. More than the bucket holds are given when it is full."""
        wait_s = max(self._full_at, now_s) + min(count * self._interval_s, self._span_s) - now_s - self._span_s
        # A tolerance: sums of intervals must not lose the last token of a full bucket.
        return wait_s if wait_s > 1e-9 * self._span_s else 0.0

    def spend(self, now_s: float, count: int = 1) -> None:
        """Take tokens that there may not be: later requests wait for them."""
        self._full_at = max(self._full_at, now_s) + count * self._interval_s

    def is_full(self, now_s: float) -> bool:
        return self._full_at <= now_s


class _Failures(NamedTuple):
    bucket: TokenBucket
    backoff_s: float
    blocked_until_s: float


class FailureBackoff:
    """Wrong credentials per address: a few per minute are answered as such, then the address is asked to wait.

    The wait doubles with each further failure after it. A valid credential is never refused because of failures of its
    address: behind a proxy all clients have one address, and one of them must not lock out the others.
    """

    def __init__(self, failures_per_minute: int = limits.FAILURES_PER_MINUTE) -> None:
        self._rate = Rate(failures_per_minute, "m")
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, address: str, now_s: float) -> float:
        """Count a failure. Returns 0, or the seconds that the address must wait."""
        known = self._failures.pop(address, None)
        if known is None or (known.bucket.is_full(now_s) and known.blocked_until_s <= now_s):
            known = _Failures(TokenBucket(self._rate), 1.0, 0.0)
        if known.blocked_until_s <= now_s and known.bucket.take(now_s):
            until = now_s + known.backoff_s
            known = _Failures(known.bucket, min(2 * known.backoff_s, limits.FAILURE_BACKOFF_S_MAX), until)
        self._failures[address] = known
        if len(self._failures) > limits.ADDRESSES_TRACKED_MAX:
            self._failures.popitem(last=False)
        return max(0.0, known.blocked_until_s - now_s)

    def blocked(self, address: str, now_s: float) -> float:
        """The seconds that the address must wait before a check that costs much, such as that of a password."""
        known = self._failures.get(address)
        return max(0.0, known.blocked_until_s - now_s) if known is not None else 0.0
