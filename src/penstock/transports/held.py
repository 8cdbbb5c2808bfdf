"""What a stream or a subscription has handed out and its client has not settled: to be given back when it ends.

Kept per lease and not per message, so it costs nothing to speak of: where a lease begins and ends and how many of its
messages are left. Giving back more than is left does no harm, for what was settled is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.broker.types import DeliveredRun
from penstock.ids import parse_offsets
from penstock.wire.delivery import Settled, UniformResults

_LOOK_ABOVE = 1_000
"""With more leases than this, those whose time ran out are looked for."""


class _Lease:
    __slots__ = ("deadline_ms", "first", "left", "stop")

    def __init__(self, first: int, stop: int, deadline_ms: int):
        self.first = first
        self.stop = stop
        self.left = 0
        self.deadline_ms = deadline_ms


class Held:
    __slots__ = ("_leases", "_look_above")

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        """By the part that all receipts of a lease begin with."""
        self._look_above = _LOOK_ABOVE

    def __len__(self) -> int:
        """Messages that are not settled, some of which may have run out."""
        return sum(lease.left for lease in self._leases.values())

    def __bool__(self) -> bool:
        return bool(self._leases)

    def add(self, runs: Iterable[DeliveredRun], now_ms: int) -> None:
        for run in runs:
            if run.receipt is None or run.deadline_at_ms is None:
                continue  # delivered at most once: there is nothing to settle
            stop = run.offset + run.count
            lease = self._leases.setdefault(run.receipt, _Lease(run.offset, stop, run.deadline_at_ms))
            lease.first, lease.stop = min(lease.first, run.offset), max(lease.stop, stop)
            lease.left += run.count
        if len(self._leases) > self._look_above:
            self._forget_ended(now_ms)
            self._look_above = max(_LOOK_ABOVE, 2 * len(self._leases))

    def settle(self, results: Sequence[Settled], now_ms: int = 0) -> int:
        """Outcomes of receipts, of which any may be somebody else's. How many of ours are out of hand by that.

        A receipt that is stale because its lease has run out by `now_ms` counts; one that was settled before does not.
        """
        if isinstance(results, UniformResults) and results:
            # All of one lease: what is true of the first is true of all.
            return self._settle(results[0], len(results), now_ms)
        return sum([self._settle(result, messages_in(result.receipt), now_ms) for result in results])

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
        if not lease.left:
            del self._leases[prefix]
        return freed

    def receipts(self) -> list[str]:
        """One for each lease, of all that it may still hold."""
        return [f"{prefix}{lease.first}-{lease.stop - 1}" for prefix, lease in self._leases.items()]

    def _forget_ended(self, now_ms: int) -> None:
        """A client that neither settles nor renews must not make us remember for ever."""
        for prefix in [prefix for prefix, lease in self._leases.items() if lease.deadline_ms < now_ms]:
            del self._leases[prefix]


def messages_in(receipt: str) -> int:
    """How many messages a receipt is for: it may be a range."""
    offsets = parse_offsets(receipt[receipt.rfind(".") + 1 :])
    return 1 if offsets is None else offsets[1] - offsets[0] + 1
