"""Consumers that wait: the longest waiting first, one per message, and whoever left leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.core.commands import Lease
from penstock.errors import QueueNotFound, Unavailable
from penstock.runtime.parking import Waiters

LONG_MS = 60_000


def lease(queue: int = 1, group: str = "default") -> Lease:
    return Lease(queue, group, 1, 0)


class Shop:
    """Grants as many leases as there are messages."""

    def __init__(self, **ready: int):
        self.ready = ready
        self.asked = 0

    def grant(self, command: Lease, future: asyncio.Future) -> bool:
        self.asked += 1
        if not self.ready.get(command.group):
            return False
        self.ready[command.group] -= 1
        future.set_result(f"message of {command.group}")
        return True


def test_one_waiter_is_woken_per_message_the_longest_waiting_first():
    async def run() -> None:
        waiters, shop = Waiters(), Shop(default=2)
        parked = [waiters.park(lease(), LONG_MS) for _ in range(5)]
        waiters.serve(1, shop.grant)
        await asyncio.sleep(0)
        assert [future.done() for future in parked] == [True, True, False, False, False]
        assert shop.asked == 3, "nobody is asked behind the first who got nothing"
        assert waiters.count == 3

    asyncio.run(run())


def test_groups_and_queues_are_served_apart():
    async def run() -> None:
        waiters = Waiters()
        billing, audit = waiters.park(lease(group="billing"), LONG_MS), waiters.park(lease(group="audit"), LONG_MS)
        elsewhere = waiters.park(lease(queue=2), LONG_MS)
        waiters.serve(1, Shop(audit=1).grant)
        assert (billing.done(), audit.done(), elsewhere.done()) == (False, True, False)
        assert waiters.has(1)
        assert waiters.has(2)
        assert not waiters.has(3)

    asyncio.run(run())


def test_a_wait_that_is_over_is_an_empty_answer():
    async def run() -> None:
        waiters = Waiters()
        assert await waiters.park(lease(), 1) == []
        await asyncio.sleep(0)
        assert waiters.count == 0
        assert not waiters.has(1)

    asyncio.run(run())


def test_whoever_went_away_is_not_offered_anything():
    async def run() -> None:
        waiters, shop = Waiters(), Shop(default=1)
        gone, here = waiters.park(lease(), LONG_MS), waiters.park(lease(), LONG_MS)
        gone.cancel()
        waiters.serve(1, shop.grant)
        assert await here == "message of default"
        await asyncio.sleep(0)
        assert waiters.count == 0
        assert not waiters.has(1)

    asyncio.run(run())


def test_those_who_gave_up_leave_nothing_behind_one_who_still_waits():
    async def run() -> None:
        waiters = Waiters()
        waiters.park(lease(), LONG_MS)
        for _ in range(200):
            waiters.park(lease(), LONG_MS).cancel()
        await asyncio.sleep(0)
        assert waiters.count == 1
        assert len(waiters._parked[1]["default", ""]) == 1

    asyncio.run(run())


def test_a_lease_on_its_way_is_neither_taken_back_nor_given_up():
    """Granted, but the disk is not done yet: the wait may end meanwhile and the answer still comes."""

    async def run() -> None:
        waiters, granted = Waiters(), []

        def grant(_command: Lease, future: asyncio.Future) -> bool:
            granted.append(future)
            return True

        waiter = waiters.park(lease(), 1)
        waiters.serve(1, grant)
        assert waiters.count == 0
        await asyncio.sleep(0.01)
        waiters.dismiss()
        assert not waiter.done()
        granted[0].set_result("durable now")
        assert await waiter == "durable now"

    asyncio.run(run())


def test_dismissal_answers_one_queue_or_all_empty_or_with_the_error():
    async def run() -> None:
        waiters = Waiters()
        first, second, third = (waiters.park(lease(queue=number), LONG_MS) for number in (1, 2, 3))
        waiters.dismiss(1)
        assert await first == []
        assert not second.done()
        waiters.dismiss(2, QueueNotFound("deleted"))
        with pytest.raises(QueueNotFound):
            await second
        waiters.dismiss()
        assert await third == []
        await asyncio.sleep(0)
        assert waiters.count == 0

    asyncio.run(run())


def test_there_is_a_limit_and_it_counts_those_who_wait(monkeypatch):
    monkeypatch.setattr(limits, "WAITERS_MAX", 3)

    async def run() -> None:
        waiters = Waiters()
        parked = [waiters.park(lease(), LONG_MS) for _ in range(3)]
        with pytest.raises(Unavailable, match="3 consumers are waiting already"):
            waiters.park(lease(), LONG_MS)
        parked[1].cancel()
        await asyncio.sleep(0)
        waiters.park(lease(), LONG_MS)

    asyncio.run(run())
