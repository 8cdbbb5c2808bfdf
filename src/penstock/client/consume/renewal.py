"""Renewal: the lease of every holder of messages is extended at half of its time, all that are due in one call."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock import limits
from penstock.client.calls import delivery as calls
from penstock.client.messages.leased import ReceiptSpan, common, merged, receipts_of, stale_spans
from penstock.client.runtime import Runtime, Timer, Timers
from penstock.client.transport.carrier import Carrier
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

log = logging.getLogger("penstock.client")


class LeaseHolder(Protocol):
    """A run in the buffer, or a message or batch that is being handled: its lease must not run out."""

    renew_at: float

    @property
    def lease_ms(self) -> int:
        """The length of its lease, as the server answered it."""

    def spans(self) -> list[ReceiptSpan]:
        """The messages that it still holds; empty if there is nothing left to renew."""

    def lost(self, spans: Sequence[ReceiptSpan]) -> None:
        """The lease of these messages has ended, or they were settled elsewhere."""


class DueRenewal(NamedTuple):
    """Holders whose leases are equally long and renewed together, and their receipts in as few spans as possible."""

    lease_ms: int
    holders: list[LeaseHolder]
    spans: list[ReceiptSpan]


class LeaseKeeper:
    """Knows what to renew and when: everything that is held, each time half of its lease has passed. Without I/O.

    Sets no timer: `next_at` says when to call `due`. Adding and removing cost O(1), because they happen for every
    message; looking for what is due costs O(holders), because it happens twice per lease.
    """

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[LeaseHolder, None] = {}

    def add(self, holder: LeaseHolder) -> None:
        self._holders[holder] = None

    def remove(self, holder: LeaseHolder) -> None:
        self._holders.pop(holder, None)

    def next_at(self) -> float | None:
        return min((holder.renew_at for holder in self._holders), default=None)

    def due(self, now: float) -> list[DueRenewal]:
        """The renewals to make now, one per length of lease.

        A holder is due also if that is less than an eighth of its lease away: neighbours in time then share one call
        instead of following each other.
        """
        held: dict[int, list[tuple[LeaseHolder, list[ReceiptSpan]]]] = {}
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


class Renewal:
    """The renewals of one consumer."""

    def __init__(self, carrier: Carrier, source: str, runtime: Runtime, timers: Timers):
        self._carrier = carrier
        self._source = source
        self._runtime = runtime
        self._timers = timers
        self._keeper = LeaseKeeper()
        self._timer: Timer | None = None
        self._armed_at = math.inf
        """The time of the timer."""
        self._renewing = runtime.jobs()
        self.let_go = self._keeper.remove
        """Stop renewing this holder's leases."""

    def hold(self, holder: LeaseHolder) -> None:
        """Renew this holder's leases from now on."""
        self._keeper.add(holder)
        if holder.renew_at < self._armed_at:
            self._arm(holder.renew_at)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = at
        self._timer = self._timers.call_at(at, self._start)

    def _start(self) -> None:
        self._timer = None
        self._armed_at = -math.inf  # a renewal arms the timer when it has ended
        self._renewing.start(self._renew(), f"penstock extend {self._source}")

    async def _renew(self) -> None:
        for due in self._keeper.due(self._runtime.time()):
            now = self._runtime.time()
            try:
                results: list[Settled] = []
                for at in range(0, len(due.spans), limits.RECEIPTS_MAX):
                    receipts = receipts_of(due.spans[at : at + limits.RECEIPTS_MAX])
                    results += await self._carrier.request(calls.settle("extend", receipts, lease_ms=due.lease_ms))
            except PenstockError as error:
                log.warning("%s: renewal of %d leases failed: %s", self._source, len(due.holders), error)
                self._keeper.not_renewed(due, self._runtime.time())
            else:
                self._keeper.renewed(due, now, results)
        self._armed_at = math.inf
        if (at_next := self._keeper.next_at()) is not None:
            self._arm(at_next)

    def rest(self) -> None:
        """Cancel the timer if there is nothing left to renew."""
        if self._keeper.next_at() is None:
            self._cancel_timer()

    def stop(self) -> None:
        self._cancel_timer()
        self._renewing.cancel()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._armed_at = math.inf
