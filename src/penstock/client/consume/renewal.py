"""Leases that do not run out, with asyncio: whoever holds messages is renewed in time, all who are due in one call."""

from __future__ import annotations

import asyncio
import logging
import math

from penstock import limits
from penstock.client.calls import api as calls
from penstock.client.consume.options import Terms, receipts_of
from penstock.client.messages.spans import Holder, LeaseKeeper
from penstock.client.transport.carrier import Carrier
from penstock.errors import PenstockError
from penstock.wire.delivery import Settled

log = logging.getLogger("penstock.client")


class Renewal:
    """Of one consumer."""

    def __init__(self, carrier: Carrier, terms: Terms):
        self._carrier = carrier
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._keeper = LeaseKeeper()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = math.inf
        """The time of the timer."""
        self._renewing: asyncio.Task[None] | None = None
        self.let_go = self._keeper.remove
        """This one need not be kept alive any longer."""

    def hold(self, holder: Holder) -> None:
        """Keep this one's leases alive from now on."""
        self._keeper.add(holder)
        if holder.renew_at < self._armed_at:
            self._arm(holder.renew_at)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = at
        self._timer = self._loop.call_at(at, self._start)

    def _start(self) -> None:
        self._timer = None
        self._armed_at = -math.inf  # a renewal arms the timer when it has ended
        self._renewing = self._loop.create_task(self._renew(), name=f"penstock extend {self._terms.queue}")

    async def _renew(self) -> None:
        for due in self._keeper.due(self._loop.time()):
            now = self._loop.time()
            try:
                results: list[Settled] = []
                for at in range(0, len(due.spans), limits.RECEIPTS_MAX):
                    receipts = receipts_of(due.spans[at : at + limits.RECEIPTS_MAX])
                    results += await self._carrier.request(calls.extend(receipts, lease_ms=due.lease_ms))
            except PenstockError as error:
                log.warning("%s: renewal of %d leases failed: %s", self._terms.queue, len(due.holders), error)
                self._keeper.not_renewed(due, self._loop.time())
            else:
                self._keeper.renewed(due, now, results)
        self._renewing = None
        self._armed_at = math.inf
        if (at_next := self._keeper.next_at()) is not None:
            self._arm(at_next)

    def rest(self) -> None:
        """Cancel the timer if there is nothing left to renew."""
        if self._timer is not None and self._keeper.next_at() is None:
            self._timer.cancel()
            self._timer = None
            self._armed_at = math.inf

    def stop(self) -> None:
        for handle in (self._timer, self._renewing):
            if handle is not None:
                handle.cancel()
