"""Leases that do not run out, with asyncio: whoever holds messages is renewed in time, all who are due in one call."""

from __future__ import annotations

import asyncio
import logging

from penstock import limits
from penstock.client import _calls as calls
from penstock.client._carrier import Carrier
from penstock.client._leases import Holder, LeaseKeeper
from penstock.client._terms import Terms, receipts_of
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

log = logging.getLogger("penstock.client")


class Renewal:
    """Of one consumer."""

    def __init__(self, carrier: Carrier, terms: Terms):
        self._carrier = carrier
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._keeper = LeaseKeeper(terms.lease_ms / 1000)
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.let_go = self._keeper.remove
        """This one need not be kept alive any longer."""

    def hold(self, holder: Holder) -> None:
        """Keep this one's leases alive from now on."""
        self._keeper.add(holder)
        # All leases are equally long, so whoever comes later is due later: an armed timer is never too late.
        if self._timer is None and self._renewing is None:
            self._arm(holder.renew_at)

    def due_at(self) -> float:
        """When what is leased now is to be renewed."""
        return self._keeper.renew_at(self._loop.time())

    def _arm(self, at: float) -> None:
        self._timer = self._loop.call_at(at, self._start)

    def _start(self) -> None:
        self._timer = None
        self._renewing = self._loop.create_task(self._renew(), name=f"penstock extend {self._terms.queue}")

    async def _renew(self) -> None:
        now = self._loop.time()
        holders, spans = self._keeper.due(now)
        try:
            results: list[Settled] = []
            for at in range(0, len(spans), limits.RECEIPTS_MAX):
                receipts = receipts_of(spans[at : at + limits.RECEIPTS_MAX])
                results += await self._carrier.request(calls.extend(receipts, lease_ms=self._terms.lease_ms))
        except PenstockError as error:
            log.warning("%s: renewal of %d leases failed: %s", self._terms.queue, len(holders), error)
            self._keeper.not_renewed(holders, self._loop.time())
        else:
            self._keeper.renewed(holders, now, results)
        finally:
            self._renewing = None
        if (at_next := self._keeper.next_at()) is not None:
            self._arm(at_next)

    def rest(self) -> None:
        """There is nothing to do for now, if nobody holds anything."""
        if self._timer is not None and self._keeper.next_at() is None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        for handle in (self._timer, self._renewing):
            if handle is not None:
                handle.cancel()
