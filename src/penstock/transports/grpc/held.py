"""What a stream has handed out and its client has not settled: to be given back when the stream ends.

Kept per lease and not per message, so it costs nothing to speak of: where a lease begins and ends and how many of its
messages are left. Giving back more than is left does no harm, for what was settled is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.broker.types import DeliveredRun
from penstock.ids import parse_offsets
from penstock.wire.delivery import Settled

_LOOK_ABOVE = 1_000
"""With more leases than this, those whose time ran out are looked for."""
_STILL_HELD = frozenset(("stale", "extended"))


class _Lease:
    __slots__ = ("deadline_ms", "first", "left", "stop")

    def __init__(self, first: int, stop: int, deadline_ms: int):
        self.first = first
        self.stop = stop
        self.left = 0
        self.deadline_ms = deadline_ms


class Held:
    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        """By the part that all receipts of a lease begin with."""
        self._look_above = _LOOK_ABOVE

    def __len__(self) -> int:
        """Messages that are not settled, some of which may have run out."""
        return sum(lease.left for lease in self._leases.values())

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

    def settle(self, results: Sequence[Settled]) -> None:
        for result in results:
            cut = result.receipt.rfind(".") + 1
            lease = self._leases.get(result.receipt[:cut])
            if lease is None:
                continue
            if result.status not in _STILL_HELD:
                offsets = parse_offsets(result.receipt[cut:])
                assert offsets is not None, "a receipt that was settled has offsets"
                lease.left -= offsets[1] - offsets[0] + 1
                if lease.left <= 0:
                    del self._leases[result.receipt[:cut]]
            elif result.deadline_at_ms is not None:
                lease.deadline_ms = max(lease.deadline_ms, result.deadline_at_ms)

    def receipts(self) -> list[str]:
        """One for each lease, of all that it may still hold."""
        return [f"{prefix}{lease.first}-{lease.stop - 1}" for prefix, lease in self._leases.items()]

    def _forget_ended(self, now_ms: int) -> None:
        """A client that neither settles nor renews must not make us remember for ever."""
        for prefix in [prefix for prefix, lease in self._leases.items() if lease.deadline_ms < now_ms]:
            del self._leases[prefix]
