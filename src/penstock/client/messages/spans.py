"""What a consumer holds: spans of receipts, acks on their way, and when to renew what. Pure; both shells use it.

A receipt is its lease's prefix and an offset, and the server takes ranges (`prefix12-99`). So everything here is
counted in spans: settling or renewing a thousand neighbours is one short string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from penstock import limits
from penstock.errors import StaleReceipt
from penstock.ids import parse_offsets
from penstock.wire.delivery import Settled

W = TypeVar("W")


class Span(NamedTuple):
    """Messages `first` to `last`, both included, of the lease that `prefix` names."""

    prefix: str
    first: int
    last: int

    @property
    def receipt(self) -> str:
        return f"{self.prefix}{self.first}" if self.first == self.last else f"{self.prefix}{self.first}-{self.last}"

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same messages in as few spans as possible."""
    result: list[Span] = []
    for span in sorted(spans):
        if result and result[-1].prefix == span.prefix and span.first <= result[-1].last + 1:
            before = result.pop()
            span = Span(span.prefix, before.first, max(before.last, span.last))
        result.append(span)
    return result


def common(spans: Iterable[Span], others: Sequence[Span]) -> list[Span]:
    """The messages that are in both."""
    return [
        Span(span.prefix, max(span.first, other.first), min(span.last, other.last))
        for span in spans
        for other in others
        if span.prefix == other.prefix and span.first <= other.last and other.first <= span.last
    ]


def stale_spans(results: Iterable[Settled]) -> list[Span]:
    """What the server says is no longer ours."""
    spans = []
    for result in results:
        if result.status == "stale":
            prefix, dot, offsets = result.receipt.rpartition(".")
            if pair := parse_offsets(offsets):
                spans.append(Span(prefix + dot, *pair))
    return spans


def stale_error(lost: Sequence[Span], of: int) -> StaleReceipt:
    count = sum(span.size for span in lost)
    return StaleReceipt(
        f"{count} of {of} messages were no longer leased to this consumer: the lease ran out or they were settled "
        "before; what was not settled is delivered again",
        details={"receipts": [span.receipt for span in lost]},
    )


# -- acks on their way ------------------------------------------------------------------------------------------


class AckBatch(NamedTuple, Generic[W]):
    """Acks that travel in one call."""

    receipts: list[str]
    entries: list[tuple[Sequence[Span], W | None]]

    @property
    def spans(self) -> list[Span]:
        return [span for spans, _ in self.entries for span in spans]


class PendingAcks(Generic[W]):
    """Acks that have not been sent yet, each with whoever wants to hear of it."""

    __slots__ = ("_entries", "_first", "_next", "_prefix")

    def __init__(self) -> None:
        self._entries: list[tuple[Sequence[Span], W | None]] = []
        self._prefix = ""
        """Of neighbours that were added one by one; empty if there are none."""
        self._first = self._next = 0

    def __bool__(self) -> bool:
        return bool(self._entries) or bool(self._prefix)

    def add(self, spans: Sequence[Span], waiter: W | None) -> None:
        self._entries.append((spans, waiter))

    def add_one(self, prefix: str, offset: int) -> None:
        """An ack that nobody waits for. Neighbours, which is what comes out of a loop, grow together to one span."""
        if offset == self._next and prefix == self._prefix:
            self._next += 1
            return
        self._close_span()
        self._prefix, self._first, self._next = prefix, offset, offset + 1

    def _close_span(self) -> None:
        if self._prefix:
            self._entries.append(([Span(self._prefix, self._first, self._next - 1)], None))
            self._prefix = ""

    def take(self) -> AckBatch[W]:
        """As many as one call may carry; the others stay."""
        self._close_span()
        if len(self._entries) == 1:
            taken = self._entries
            self._entries = []
        else:
            room = limits.RECEIPTS_MAX
            stop = 0
            while stop < len(self._entries) and (room := room - len(self._entries[stop][0])) >= 0:
                stop += 1
            taken, self._entries = self._entries[: max(stop, 1)], self._entries[max(stop, 1) :]
        spans = [span for entry, _ in taken for span in entry]
        return AckBatch([span.receipt for span in (merged(spans) if len(spans) > 1 else spans)], taken)


# -- renewal ----------------------------------------------------------------------------------------------------


class Holder(Protocol):
    """Something whose lease must not run out: a run in the buffer, a message or a batch that is being handled."""

    renew_at: float

    @property
    def lease_ms(self) -> int:
        """The length of its lease, as the server answered it."""

    def spans(self) -> list[Span]:
        """What it still holds; empty if there is nothing left to renew."""

    def lost(self, spans: Sequence[Span]) -> None:
        """The server gave these messages to somebody else or settled them."""


class DueRenewal(NamedTuple):
    """Holders whose leases are equally long and renewed together, and their receipts in as few spans as possible."""

    lease_ms: int
    holders: list[Holder]
    spans: list[Span]


class LeaseKeeper:
    """Knows what to renew and when: everything that is held, each time half of its lease has passed.

    Sets no timer: `next_at` says when to call `due`. Adding and removing cost O(1), because they happen for every
    message; looking for what is due costs O(holders), because it happens twice per lease.
    """

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[Holder, None] = {}

    def add(self, holder: Holder) -> None:
        self._holders[holder] = None

    def remove(self, holder: Holder) -> None:
        self._holders.pop(holder, None)

    def next_at(self) -> float | None:
        return min((holder.renew_at for holder in self._holders), default=None)

    def due(self, now: float) -> list[DueRenewal]:
        """The renewals to make now, one per length of lease.

        A holder is due also if that is less than an eighth of its lease away: neighbours in time then share one call
        instead of following each other.
        """
        held: dict[int, list[tuple[Holder, list[Span]]]] = {}
        for holder in list(self._holders):
            if holder.renew_at <= now + holder.lease_ms / 8000:
                if spans := holder.spans():
                    held.setdefault(holder.lease_ms, []).append((holder, spans))
                else:
                    self.remove(holder)
        return [
            DueRenewal(
                lease_ms, [holder for holder, _ in pairs], merged(span for _, spans in pairs for span in spans)
            )
            for lease_ms, pairs in held.items()
        ]  # fmt: skip

    def renewed(self, due: DueRenewal, asked_at: float, results: Iterable[Settled]) -> None:
        """Apply the answer to an extend of what `due` gave."""
        lost = stale_spans(results)
        for holder in due.holders:
            holder.renew_at = renew_at(asked_at, due.lease_ms)
            if lost and (gone := common(holder.spans(), lost)):
                holder.lost(gone)

    def not_renewed(self, due: DueRenewal, now: float) -> None:
        """The extend failed: ask again while there is still some lease left."""
        for holder in due.holders:
            holder.renew_at = now + due.lease_ms / 8000


def renew_at(leased_at: float, lease_ms: int) -> float:
    """When to renew a lease of this length that was granted or extended by a call sent at `leased_at`."""
    return leased_at + lease_ms / 2000
