"""A broker that stood still (a slow disk, a sleeping machine) does not take it out on those who hold messages."""

from __future__ import annotations

import asyncio
import functools

import pytest

from penstock.core.commands import Tick
from penstock.errors import UnknownMember
from penstock.ids import parse_queue
from penstock.runtime.loop import CATCH_UP_MS, LATE_MS
from penstock.testing.inprocess import in_process

JOBS = parse_queue("jobs")
TEAM = parse_queue("team")
LEASE_MS = 1_000


def with_broker(test):
    @functools.wraps(test)
    def wrapped() -> None:
        async def run() -> None:
            stopped_s = asyncio.get_running_loop().time()
            asyncio.get_running_loop().time = lambda: stopped_s
            async with in_process() as box:
                await test(box)

        asyncio.run(run())

    del wrapped.__wrapped__  # pytest asks for what it takes
    return wrapped


def stand_still(box, ms: int) -> None:
    """Time goes by, and the event loop does not see it: what was due in between comes when this is over."""
    events = asyncio.get_running_loop()
    later_s = events.time() + ms / 1000
    events.time = lambda: later_s
    box.clock.advance(ms)


async def hold_one(box, **options) -> str:
    """The receipt of a message that somebody holds."""
    await box.broker.put_queue(JOBS, {"lease_ms": LEASE_MS, "backoff": {"kind": "none"}})
    await box.publish("jobs", b"1")
    (message,) = await box.lease("jobs", **options)
    return message.receipt


async def extended(box, receipt: str) -> str:
    (result,) = await box.broker.extend([receipt], lease_ms=LEASE_MS)
    return result.status


@with_broker
async def test_a_renewal_that_nobody_read_in_time_still_counts(box):
    receipt = await hold_one(box)
    stand_still(box, LEASE_MS + 400)
    assert await extended(box, receipt) == "extended"
    box.clock.advance(LEASE_MS - 1)
    assert await box.lease("jobs") == []
    box.clock.advance(1)
    assert [m.attempt for m in await box.lease("jobs")] == [2]


@with_broker
async def test_whoever_asks_for_more_first_does_not_get_what_others_hold(box):
    receipt = await hold_one(box)
    stand_still(box, LEASE_MS + 400)
    assert await box.lease("jobs") == []
    (result,) = await box.broker.ack([receipt])
    assert result.status == "acked"


@with_broker
async def test_patience_ends_and_is_not_for_ever_renewed(box):
    await hold_one(box)
    stand_still(box, LEASE_MS + 100)
    # The timer was to ring on the way to the deadline, by a tenth of it earlier.
    lost_ms = LEASE_MS + 100 - int(LEASE_MS / 1.1)
    assert await box.lease("jobs") == []
    box.clock.advance(lost_ms + CATCH_UP_MS - 2)
    assert await box.lease("jobs") == []
    box.clock.advance(2)
    assert [m.attempt for m in await box.lease("jobs")] == [2]


@with_broker
async def test_whoever_is_always_late_does_not_wait_for_ever(box):
    await hold_one(box)
    await box.broker.put_queue(TEAM, {})
    await box.broker.join_group(TEAM, member="a", session_ms=5_000)
    for _ in range(6):
        stand_still(box, 2_500)
        await box.host.loop.submit(Tick())
    assert [m.attempt for m in await box.lease("jobs")] == [2]
    assert box.broker.groups(TEAM)["groups"][0]["members"] == []


@with_broker
async def test_at_most_another_lease_however_long_it_was(box):
    await hold_one(box)
    stand_still(box, 3_600_000)
    assert await box.lease("jobs") == []
    box.clock.advance(LEASE_MS - 1)
    assert await box.lease("jobs") == []
    box.clock.advance(1)
    assert [m.attempt for m in await box.lease("jobs")] == [2]


@with_broker
async def test_a_lease_ends_in_time_where_nobody_was_held_up(box):
    await hold_one(box)
    stand_still(box, int(LEASE_MS / 1.1) + LATE_MS)
    box.clock.advance(LEASE_MS - int(LEASE_MS / 1.1) - LATE_MS)
    assert [m.attempt for m in await box.lease("jobs")] == [2]


@with_broker
async def test_members_stay_whose_heartbeats_nobody_read(box):
    await box.broker.put_queue(JOBS, {"partitions": 2})
    shares = [await box.broker.join_group(JOBS, member=name, session_ms=5_000) for name in "ab"]

    async def beat(share) -> None:
        await box.broker.heartbeat(JOBS, member=share.member, generation=share.generation)

    stand_still(box, 7_000)
    await beat(shares[0])
    assert len(box.broker.groups(JOBS)["groups"][0]["members"]) == 2
    box.clock.advance(4_999)
    await beat(shares[0])
    with pytest.raises(UnknownMember):  # it had its time to be heard
        await beat(shares[1])
