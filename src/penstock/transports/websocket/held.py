"""What a consumer holds: which leases it was given here, and how much of each is still unsettled.

The broker knows exactly; this is only kept to know what to give back when the connection ends. So it may name what is
settled already (the broker finds that stale, and nothing happens), but it must not forget, and must not grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.broker.types import DeliveredRun
from penstock.ids import parse_offsets
from penstock.wire.delivery import Settled

_LOOK_AT = 64
"""Leases above which those that have run out are looked for."""


class Lease:
    __slots__ = ("deadline_ms", "runs", "unsettled")

    def __init__(self, deadline_ms: int):
        self.deadline_ms = deadline_ms
        self.unsettled = 0
        self.runs: list[tuple[int, int]] = []
        """First and last offset of each."""


class Held:
    """Of one subscription."""

    __slots__ = ("_leases", "_look_at")

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._look_at = _LOOK_AT

    def __len__(self) -> int:
        """Messages, not leases."""
        return sum(lease.unsettled for lease in self._leases.values())

    def __bool__(self) -> bool:
        return bool(self._leases)

    def add(self, runs: Sequence[DeliveredRun], now_ms: int) -> None:
        for run in runs:
            if run.receipt is None or run.deadline_at_ms is None:
                continue  # delivered is all it has to be
            lease = self._leases.get(run.receipt)
            if lease is None:
                lease = self._leases[run.receipt] = Lease(run.deadline_at_ms)
            lease.runs.append((run.offset, run.offset + run.count - 1))
            lease.unsettled += run.count
        if len(self._leases) > self._look_at:
            self._drop_expired(now_ms)

    def settled(self, results: Sequence[Settled]) -> None:
        """Outcomes of receipts, of which any may be somebody else's."""
        for result in results:
            prefix = result.receipt[: result.receipt.rfind(".") + 1]
            lease = self._leases.get(prefix)
            if lease is None:
                continue
            if result.status == "extended":
                lease.deadline_ms = max(lease.deadline_ms, result.deadline_at_ms or 0)
            elif result.status != "stale":
                lease.unsettled -= messages_in(result.receipt)
                if lease.unsettled <= 0:
                    del self._leases[prefix]

    def receipts(self) -> list[str]:
        """All of it, as ranges."""
        return list(self._ranges())

    def _ranges(self) -> Iterator[str]:
        for prefix, lease in self._leases.items():
            for first, last in lease.runs:
                yield f"{prefix}{first}-{last}"

    def _drop_expired(self, now_ms: int) -> None:
        """Nothing can be given back of a lease that has run out."""
        for prefix in [prefix for prefix, lease in self._leases.items() if lease.deadline_ms < now_ms]:
            del self._leases[prefix]
        self._look_at = max(_LOOK_AT, 2 * len(self._leases))


def messages_in(receipt: str) -> int:
    """A receipt may be a range of them."""
    offsets = parse_offsets(receipt[receipt.rfind(".") + 1 :])
    return 1 if offsets is None else offsets[1] - offsets[0] + 1
