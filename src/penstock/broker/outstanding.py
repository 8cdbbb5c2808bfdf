"""Leases that a stream or a subscription has delivered and its client has not settled. They are released at its end.

Memory is per lease, not per message: the offsets of its first and last message, and the number of unsettled messages.
The receipt that releases a lease may cover settled messages too; these are stale and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.broker.types import DeliveredRun
from penstock.ids import parse_offsets
from penstock.wire.delivery import Settled, UniformResults

NEVER_MS = 2**62
_EXPIRE_ABOVE = 1_000
"""With more leases than this, expired leases are dropped."""


class _Lease:
    __slots__ = ("deadline_ms", "first", "left", "stop")

    def __init__(self, first: int, stop: int, deadline_ms: int):
        self.first = first
        self.stop = stop
        self.left = 0
        self.deadline_ms = deadline_ms


class OutstandingLeases:
    __slots__ = ("_expire_above", "_leases", "_left", "_soonest_ms")

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        """By the prefix that all receipts of a lease share."""
        self._expire_above = _EXPIRE_ABOVE
        self._left = 0
        """Messages that are not settled, of all leases."""
        self._soonest_ms = NEVER_MS
        """No lease expires before this time."""

    def __len__(self) -> int:
        """The number of messages that are not settled. Some of their leases may have expired."""
        return self._left

    def __bool__(self) -> bool:
        return bool(self._leases)

    def add(self, runs: Iterable[DeliveredRun], now_ms: int) -> None:
        for run in runs:
            if run.receipt is None or run.deadline_at_ms is None:
                continue  # an at-most-once delivery has no receipt
            stop = run.offset + run.count
            lease = self._leases.setdefault(run.receipt, _Lease(run.offset, stop, run.deadline_at_ms))
            lease.first, lease.stop = min(lease.first, run.offset), max(lease.stop, stop)
            lease.left += run.count
            self._left += run.count
            self._soonest_ms = min(self._soonest_ms, run.deadline_at_ms)
        if len(self._leases) > self._expire_above:
            self.drop_expired(now_ms)
            self._expire_above = max(_EXPIRE_ABOVE, 2 * len(self._leases))

    def settle(self, results: Sequence[Settled], now_ms: int = 0) -> int:
        """Apply the outcomes of receipts and return how many messages of these leases are settled by them.

        Receipts of other leases are ignored. A receipt that is stale because its lease has expired by `now_ms` counts;
        a receipt that was settled before does not.
        """
        if isinstance(results, UniformResults) and results:
            # All receipts belong to one lease and have one status.
            return self._settle(results[0], len(results), now_ms)
        return sum([self._settle(result, message_count(result.receipt), now_ms) for result in results])

    def _settle(self, result: Settled, count: int, now_ms: int) -> int:
        prefix = result.receipt[: result.receipt.rfind(".") + 1]
        lease = self._leases.get(prefix)
        if lease is None:
            return 0
        if result.status == "extended":
            lease.deadline_ms = max(lease.deadline_ms, result.deadline_at_ms or 0)
            return 0
        if result.status == "stale" and lease.deadline_ms >= now_ms:
            return 0
        freed = min(count, lease.left)
        lease.left -= freed
        self._left -= freed
        if not lease.left:
            del self._leases[prefix]
        return freed

    def receipts(self) -> list[str]:
        """One range receipt for each lease, over all messages that may be unsettled."""
        return [f"{prefix}{lease.first}-{lease.stop - 1}" for prefix, lease in self._leases.items()]

    def drop_expired(self, now_ms: int) -> None:
        """Bounds the memory for a client that neither settles nor extends its leases."""
        if now_ms <= self._soonest_ms:
            return
        for prefix in [prefix for prefix, lease in self._leases.items() if lease.deadline_ms < now_ms]:
            self._left -= self._leases.pop(prefix).left
        self._soonest_ms = min([lease.deadline_ms for lease in self._leases.values()], default=NEVER_MS)


def message_count(receipt: str) -> int:
    """The number of messages that a receipt covers; a receipt may be a range."""
    offsets = parse_offsets(receipt[receipt.rfind(".") + 1 :])
    return 1 if offsets is None else offsets[1] - offsets[0] + 1
