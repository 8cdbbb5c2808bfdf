"""Consumers that wait: the longest waiting first, one per message; a cancelled waiter is removed."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.core.commands import Lease
from penstock.errors import QueueNotFound, Unavailable
from penstock.pending import PendingReply
from penstock.runtime.waiters import Waiters

LONG_MS = 60_000


def lease(queue: int = 1, group: str = "default") -> Lease:
    return Lease(queue, group, 1, 0)


def waiters_with_a_loop() -> Waiters:
    """As a shard makes them, with a journal that is always durable."""
    return Waiters(lambda pending: asyncio.get_running_loop().call_soon(pending.complete, []))


def park(waiters: Waiters, command: Lease | None = None, wait_ms: int = LONG_MS) -> PendingReply:
    pending: PendingReply = PendingReply()
    waiters.park(command or lease(), wait_ms, pending)
    return pending


class Stock:
    """Grants as many leases per group as there are messages."""

    def __init__(self, **ready: int):
        self.ready = ready
        self.tried = 0

    def grant(self, command: Lease, pending: PendingReply) -> bool:
        self.tried += 1
        if not self.ready.get(command.group):
            return False
        self.ready[command.group] -= 1
        pending.complete(f"message of {command.group}")
        return True


def test_one_waiter_is_served_per_message_the_longest_waiting_first():
    async def run() -> None:
        waiters, stock = waiters_with_a_loop(), Stock(default=2)
        parked = [park(waiters) for _ in range(5)]
        waiters.serve(1, stock.grant)
        assert [pending.done() for pending in parked] == [True, True, False, False, False]
        assert stock.tried == 3, "no waiter is tried behind the first one that got nothing"
        assert waiters.count == 3

    asyncio.run(run())


def test_groups_and_queues_are_served_apart():
    async def run() -> None:
        waiters = waiters_with_a_loop()
        billing, audit = park(waiters, lease(group="billing")), park(waiters, lease(group="audit"))
        elsewhere = park(waiters, lease(queue=2))
        waiters.serve(1, Stock(audit=1).grant)
        assert (billing.done(), audit.done(), elsewhere.done()) == (False, True, False)
        assert waiters.has(1)
        assert waiters.has(2)
        assert not waiters.has(3)

    asyncio.run(run())


def test_an_elapsed_wait_is_an_empty_reply():
    async def run() -> None:
        waiters = waiters_with_a_loop()
        assert await park(waiters, wait_ms=1) == []
        assert waiters.count == 0
        assert not waiters.has(1)

    asyncio.run(run())


def test_a_cancelled_waiter_is_not_offered_anything():
    async def run() -> None:
        waiters, stock = waiters_with_a_loop(), Stock(default=1)
        gone, here = park(waiters), park(waiters)
        gone.cancel()
        waiters.serve(1, stock.grant)
        assert await here == "message of default"
        assert waiters.count == 0
        assert not waiters.has(1)

    asyncio.run(run())


def test_cancelled_waiters_leave_nothing_behind_one_that_still_waits():
    async def run() -> None:
        waiters = waiters_with_a_loop()
        park(waiters)
        for _ in range(200):
            park(waiters).cancel()
        assert waiters.count == 1
        assert len(waiters._parked[1]["default", ""]) == 1

    asyncio.run(run())


def test_a_granted_lease_is_completed_by_its_commit_alone():
    """The wait may elapse, or all waiters be dismissed, before the commit is durable."""

    async def run() -> None:
        waiters, granted = waiters_with_a_loop(), []

        def grant(_command: Lease, pending: PendingReply) -> bool:
            granted.append(pending)
            return True

        pending = park(waiters, wait_ms=1)
        waiters.serve(1, grant)
        assert waiters.count == 0
        await asyncio.sleep(0.01)
        waiters.dismiss()
        await asyncio.sleep(0)
        assert not pending.done()
        granted[0].complete("durable now")
        assert await pending == "durable now"

    asyncio.run(run())


def test_dismissal_completes_one_queue_or_all_empty_or_with_the_error():
    async def run() -> None:
        waiters = waiters_with_a_loop()
        first, second, third = (park(waiters, lease(queue=number)) for number in (1, 2, 3))
        waiters.dismiss(1)
        assert await first == []
        assert not second.done()
        waiters.dismiss(2, QueueNotFound("deleted"))
        with pytest.raises(QueueNotFound):
            await second
        waiters.dismiss()
        assert await third == []
        assert waiters.count == 0

    asyncio.run(run())


def test_the_number_of_waiters_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "WAITERS_MAX", 3)

    async def run() -> None:
        waiters = waiters_with_a_loop()
        parked = [park(waiters) for _ in range(3)]
        with pytest.raises(Unavailable, match="3 consumers are waiting already"):
            park(waiters)
        parked[1].cancel()
        park(waiters)

    asyncio.run(run())
