"""A broker that was stalled (by a slow disk or a stopped process) extends the leases that elapsed meanwhile."""

from __future__ import annotations

import asyncio
import functools

import pytest
from patience import until

from penstock.core.commands import Tick
from penstock.core.state.grace import CATCH_UP_MS, CATCH_UP_MS_MAX, Grace
from penstock.core.state.members import Member, Membership
from penstock.engines.memory import MemoryEngine
from penstock.errors import DiskFull, UnknownMember
from penstock.ids import parse_queue
from penstock.journal.port import OutOfSpace
from penstock.runtime import loop
from penstock.runtime.loop import LATE_MS
from penstock.runtime.shard_timer import ShardTimer
from penstock.testing.clock import ManualClock
from penstock.testing.inprocess import in_process

JOBS = parse_queue("jobs")
TEAM = parse_queue("team")
LEASE_MS = 1_000
ALARM_MS = int(LEASE_MS / 1.1)
"""The timer rings on the way to the deadline, by a tenth of it earlier."""


def lost(stood_still_ms: int, deadline_ms: int = LEASE_MS) -> int:
    """Since the timer should have rung."""
    return int(stood_still_ms - deadline_ms / 1.1)


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
    """Time passes while the event loop is stalled: due timers run afterwards."""
    events = asyncio.get_running_loop()
    later_s = events.time() + ms / 1000
    events.time = lambda: later_s
    box.clock.advance(ms)


async def awake(box, ms: int) -> None:
    """Time passes, and timers run when they are due."""
    for _ in range(ms // 10):
        stand_still(box, 10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def hold(box, count: int = 1, lease_ms: int = LEASE_MS) -> list[str]:
    """The receipts of `count` leased messages, with one lease."""
    await box.broker.queues.put(JOBS, {"lease_ms": lease_ms, "backoff": {"kind": "none"}})
    await box.publish("jobs", *[b"%d" % number for number in range(count)])
    return [message.receipt for message in await box.lease("jobs", max=count)]


async def extended(box, receipt: str) -> str:
    (result,) = await box.broker.messages.extend([receipt], lease_ms=LEASE_MS)
    return result.status


async def attempts(box) -> list[int]:
    """Offsets that another consumer gets now."""
    return [message.attempt for message in await box.lease("jobs", max=10)]


@with_broker
async def test_renewal_received_during_a_stall_counts(box):
    (receipt,) = await hold(box)
    stand_still(box, LEASE_MS + 400)
    assert await extended(box, receipt) == "extended"
    await awake(box, LEASE_MS - 10)
    assert await attempts(box) == []
    await awake(box, 10)
    assert await attempts(box) == [2]


@with_broker
async def test_lease_after_a_stall_does_not_take_held_messages(box):
    (receipt,) = await hold(box)
    stand_still(box, LEASE_MS + 400)
    assert await attempts(box) == []
    (result,) = await box.broker.messages.ack([receipt])
    assert result.status == "acked"


@with_broker
async def test_a_moment_to_catch_up_and_no_more(box):
    await hold(box)
    stand_still(box, LEASE_MS + 100)
    assert await attempts(box) == []
    box.clock.advance(lost(LEASE_MS + 100) + CATCH_UP_MS - 100 - 1)
    assert await attempts(box) == []
    box.clock.advance(1)
    assert await attempts(box) == [2]


@with_broker
async def test_after_an_hour_as_much_as_was_left_and_some_seconds(box):
    await hold(box)
    stand_still(box, 3_600_000)
    assert await attempts(box) == []
    box.clock.advance(LEASE_MS + lost(3_600_000) - 3_600_000 + CATCH_UP_MS_MAX - 1)
    assert await attempts(box) == []
    box.clock.advance(1)
    assert await attempts(box) == [2]


@with_broker
async def test_extension_after_stalls_is_bounded(box):
    await hold(box)
    await box.broker.queues.put(TEAM, {})
    await box.broker.members.join(TEAM, member="a", session_ms=5_000)
    for _ in range(8):
        stand_still(box, 2_500)
        await box.host.loop.submit(Tick())
    assert await attempts(box) == [2]
    assert (await box.broker.groups.list(TEAM))["groups"][0]["members"] == []


@with_broker
async def test_lease_expires_on_time_without_a_stall(box):
    await hold(box)
    stand_still(box, ALARM_MS + LATE_MS)
    box.clock.advance(LEASE_MS - ALARM_MS - LATE_MS)
    assert await attempts(box) == [2]


@with_broker
async def test_what_is_leased_afterwards_ends_in_time(box):
    await hold(box)
    stand_still(box, 60_000)
    await box.broker.queues.put(TEAM, {"backoff": {"kind": "none"}})
    await box.publish("team", b"1")
    assert len(await box.lease("team", lease_ms=LEASE_MS)) == 1
    await awake(box, LEASE_MS)
    assert len(await box.lease("team")) == 1
    assert await attempts(box) == []


@with_broker
async def test_message_settled_during_a_stall_is_finished(box):
    """Its deadline is still on the list that time goes through."""
    acked, held = await hold(box, 1), await hold(box, 1)
    await box.broker.messages.ack(acked)
    stand_still(box, LEASE_MS + 400)
    assert await attempts(box) == []
    assert await extended(box, *held) == "extended"


@with_broker
async def test_messages_of_one_lease_have_a_deadline_each(box):
    first, second = await hold(box, 2)
    await awake(box, 500)
    assert await extended(box, second) == "extended"
    stand_still(box, 950)
    assert await attempts(box) == []
    await awake(box, 60)  # the second one's deadline is over, and so is neither's time
    assert await extended(box, first) == "extended"


@with_broker
async def test_each_message_has_its_time_and_no_more(box):
    _, second = await hold(box, 2)
    await awake(box, 200)
    assert await extended(box, second) == "extended"
    stand_still(box, 1_100)
    assert await attempts(box) == []
    # 1,300 of now; both deadlines, 1,000 and 1,200, are put off by what was lost and the same again.
    box.clock.advance(2 * (1_300 - ALARM_MS) - 300)
    assert await attempts(box) == [2]
    box.clock.advance(200)
    assert await attempts(box) == [2]


@with_broker
async def test_each_standstill_is_made_up_for(box):
    _, second = await hold(box, 2)
    await awake(box, 500)
    assert await extended(box, second) == "extended"
    stand_still(box, 600)
    assert await attempts(box) == []
    stand_still(box, 500)
    assert await extended(box, second) == "extended"


@with_broker
async def test_a_lease_that_was_shortened(box):
    (receipt,) = await hold(box, lease_ms=2_000)
    await awake(box, 100)
    assert await extended(box, receipt) == "extended"
    stand_still(box, 1_850)
    assert await attempts(box) == []
    await awake(box, 60)  # past the deadline that it had first
    assert await extended(box, receipt) == "extended"


@with_broker
async def test_also_what_runs_out_in_the_next_moment(box):
    (receipt,) = await hold(box)
    stand_still(box, LEASE_MS - 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stand_still(box, 1)
    assert await attempts(box) == []
    assert await extended(box, receipt) == "extended"


@with_broker
async def test_members_with_unread_heartbeats_stay(box):
    await box.broker.queues.put(JOBS, {"partitions": 2})
    shares = [await box.broker.members.join(JOBS, member=name, session_ms=5_000) for name in "ab"]

    async def beat(share) -> None:
        await box.broker.members.heartbeat(JOBS, member=share.member, generation=share.generation)

    stand_still(box, 7_000)
    await beat(shares[0])
    box.clock.advance(5_000 + 2 * lost(7_000, 5_000) - 7_000 - 1)
    await beat(shares[0])
    assert len((await box.broker.groups.list(JOBS))["groups"][0]["members"]) == 2
    box.clock.advance(1)
    await beat(shares[0])
    with pytest.raises(UnknownMember):  # its time to send a heartbeat is over
        await beat(shares[1])


@with_broker
async def test_former_owner_may_finish_after_a_stall(box):
    await box.broker.queues.put(JOBS, {"partitions": 2, "lease_ms": 30_000})
    share = await box.broker.members.join(JOBS, member="a", session_ms=60_000, drain_ms=1_000)
    for number in range(8):
        await box.publish("jobs", b"%d" % number)
    held = await box.lease("jobs", max=10, member="a", generation=share.generation)
    await box.broker.members.join(JOBS, member="b", session_ms=60_000, drain_ms=1_000)
    stand_still(box, 1_200)
    results = await box.broker.messages.ack([message.receipt for message in held])
    assert {result.status for result in results} == {"acked"}


def test_sessions_and_drains_are_put_off_alike():
    group = Membership(2)
    group.members["a"] = Member("a", 1, session_ms=1_000, drain_ms=500, heard_ms=5_000)
    group.slots[1].until = 6_200
    grace = Grace(until_ms=6_500, more_ms=300)
    assert (group.next_ms(Grace()), group.next_ms(grace)) == (6_000, 6_300)
    assert (group.silent(6_299, grace), group.silent(6_300, grace)) == ([], ["a"])
    assert (group.late(6_499, grace), group.late(6_500, grace)) == (set(), {1})
    assert (group.silent(6_000, Grace()), group.late(6_200, Grace())) == (["a"], {1})


def test_what_was_granted_is_not_taken_back_and_does_not_add_up():
    once = Grace().after(10_000, 1_000)
    assert once == (10_000 + CATCH_UP_MS, 2_000)
    assert (once.end_of(9_500), once.end_of(10_000 + CATCH_UP_MS + 1)) == (11_500, 10_000 + CATCH_UP_MS + 1)
    assert once.after(11_000, 100).more_ms == 2_000
    assert once.after(11_000, 1_000).more_ms == 2_000
    assert once.after(20_000, 100).more_ms == 100 + CATCH_UP_MS


def test_full_disk_does_not_expire_leases(monkeypatch):
    """While nothing at all can be written, renewals are refused."""
    monkeypatch.setattr(loop, "FULL_PAUSE_S", 0.0)

    async def run() -> None:
        async with in_process(MemoryEngine) as box:
            (receipt,) = await hold(box)
            journal, reread = box.host.loop.journal, box.host.loop._reload
            append = journal.append

            async def append_nothing(index, parts, **options):
                journal.append = append
                raise OutOfSpace("the disk is full")

            async def reread_slowly():
                box.clock.advance(2 * LEASE_MS)
                return await reread()

            journal.append, box.host.loop._reload = append_nothing, reread_slowly
            with pytest.raises(DiskFull):
                await extended(box, receipt)
            await until(lambda: not box.host.loop.without_room)
            assert await attempts(box) == []
            assert await extended(box, receipt) == "extended"

    asyncio.run(run())


def test_an_alarm_that_rang_and_was_not_set_again_is_not_late():
    async def run() -> None:
        events = asyncio.get_running_loop()
        rang = asyncio.Event()
        alarm = ShardTimer(clock := ManualClock(), rang.set)
        alarm.set(clock.now_ms())
        await rang.wait()
        later_s = events.time() + 10
        events.time = lambda: later_s
        assert alarm.late_ms() == 0

    asyncio.run(run())
