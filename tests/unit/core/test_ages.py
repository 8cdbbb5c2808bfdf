"""The oldest that could be given out now: exact, whatever is blocked, and found without a walk along the log."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import commands
from penstock.core.order.ages import STALE_MAX, Ages
from penstock.core.order.oldest import oldest_ready
from penstock.core.state import Progress
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process, messages
from tests.unit.core.test_dispatch import Machine

WINDOW = {"window_ms": 2_000, "window_max_wait_ms": 3_000}


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


def offered(machine: Machine, number: int = 0) -> int | None:
    return oldest_ready(machine.queue, machine.queue.partitions[number], 0, machine.now)


BLOCKED = {
    "leased key": ({"ordered_keys": True}, {"key": [b"k", b"k"]}, None),
    "failed key": ({"ordered_keys": True}, {"key": [b"k", b"k"]}, "nack"),
    "parked key": ({"ordered_keys": True, "park_dead_keys": True}, {"key": [b"k", b"k"]}, "reject"),
    "tenant at its cap": (
        {"fair_share": {"enabled": True, "max_in_flight": 1}},
        {"tenant": [b"t", b"t"]},
        None,
    ),
}


@pytest.mark.parametrize(("config", "columns", "settle"), BLOCKED.values(), ids=BLOCKED)
def test_what_is_blocked_does_not_hold_a_window_open(config, columns, settle):
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("q"), {**WINDOW, **config})
            await box.publish("q", b"a1", b"a2", **columns)
            await box.advance(2_000)
            (held,) = await box.lease("q", max=10, lease_ms=600_000)
            assert held.payload == b"a1"
            if settle == "nack":
                await box.broker.messages.nack([held.receipt], delay_ms=600_000)
            elif settle == "reject":
                await box.broker.messages.reject([held.receipt])
            await box.advance(4_000)
            await box.publish("q", b"b1")
            assert await box.lease("q", max=10) == []
            await box.advance(1_999)
            assert await box.lease("q", max=10) == []
            await box.advance(1)
            assert [message.payload for message in await box.lease("q", max=10)] == [b"b1"]

    run(story)


def test_what_is_freed_opens_the_window_when_it_has_waited_long_enough():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("q"), {**WINDOW, "ordered_keys": True})
            await box.publish("q", b"a1", key=[b"k"])
            await box.advance(2_000)
            (held,) = await box.lease("q", lease_ms=600_000)
            await box.publish("q", b"a2", key=[b"k"])
            waiting = asyncio.ensure_future(box.lease("q", wait_ms=60_000, max=10))
            await box.advance(1_500)
            await box.publish("q", b"b1", key=[b"b"])
            await box.advance(1_400)
            await box.broker.messages.ack([held.receipt])
            assert not waiting.done()
            await box.advance(100)
            assert [message.payload for message in await waiting] == [b"a2", b"b1"], "3 s after the second came"

    run(story)


@pytest.mark.parametrize(("config", "columns", "settle"), BLOCKED.values(), ids=BLOCKED)
def test_what_is_blocked_does_not_bring_its_queue_forward_in_a_scope(config, columns, settle):
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("email/x/a"), config)
            await box.publish("email/x/a", b"a1", b"a2", **columns)
            (held,) = await box.lease("email/x/a", max=10, lease_ms=600_000)
            if settle == "nack":
                await box.broker.messages.nack([held.receipt], delay_ms=600_000)
            elif settle == "reject":
                await box.broker.messages.reject([held.receipt])
            assert (await box.broker.messages.lease_scope("email")).runs == []
            for queue, payload in (("email/x/b", b"b1"), ("email/x/a", b"a3")):
                await box.advance(10)
                await box.publish(queue, payload)
            found = messages((await box.broker.messages.lease_scope("email", max=10)).runs)
            assert [message.payload for message in found] == [b"b1", b"a3"]

    run(story)


@pytest.mark.parametrize("order", ["fifo", "lanes", "heap"])
def test_blocked_messages_are_not_scanned(monkeypatch, order):
    machine = Machine(order=order, ordered_keys=True, fair_share={"enabled": True, "max_in_flight": 1})
    machine.publish(3_000, key=[b"k"] * 3_000, tenant=[b"t"] * 3_000)
    machine.publish(3_000, tenant=[b"u"] * 3_000)
    machine.publish(1, tenant=[b"v"])
    assert machine.offsets(machine.lease(2)) == [0, 3_000]
    looks = 0
    may_deliver = Progress.may_deliver

    def counted(*arguments):
        nonlocal looks
        looks += 1
        return may_deliver(*arguments)

    monkeypatch.setattr(Progress, "may_deliver", counted)
    assert offered(machine) == 6_000
    assert looks <= 2


def test_it_follows_everything_that_happens_to_a_message():
    machine = Machine(ordered_keys=True, backoff={"kind": "fixed", "base_ms": 500, "jitter": 0}, max_retries=5)
    machine.publish(4, key=[b"a", b"a", b"b", b"c"])
    assert offered(machine) == 0
    first = machine.lease(1)
    assert offered(machine) == 2, "the second waits behind the first"
    machine.settle(first, commands.Nack)
    assert offered(machine) == 2
    machine.now += 500
    machine.submit(commands.Tick())
    assert offered(machine) == 0, "its time has come"
    machine.submit(commands.Reschedule(1, [(0, 0)], machine.now + 1_000))
    assert offered(machine) == 2
    machine.submit(commands.Cancel(1, [(0, 2)]))
    assert offered(machine) == 3
    machine.now += 1_000
    machine.submit(commands.Tick())
    machine.settle(machine.lease(1))
    assert offered(machine) == 1, "free by now"


moves = st.tuples(st.sampled_from(["add", "remove", "cap", "free", "end"]), st.integers(0, 3), st.integers(0, 3_000))


@given(st.lists(moves, max_size=200))
@settings(deadline=None)
def test_against_a_set_that_is_looked_through(moves):
    ages, offered, full, ended = Ages(), set(), set(), set()
    for move, tenant, offset in moves:
        if move == "add":
            ages.add(tenant, offset, offset + 3)
            offered |= {(tenant, each) for each in range(offset, offset + 3)}
            ended -= set(range(offset, offset + 3))
        elif move == "remove":
            ages.remove(tenant, ((offset, offset + 100),))
            offered -= {(tenant, each) for each in range(offset, offset + 100)}
        elif move == "cap":
            full.add(tenant)
        elif move == "free":
            full.discard(tenant)
            ages.wake(tenant)
        else:
            ended |= set(range(offset, offset + 500))
        free = [each for of, each in offered if of not in full and each not in ended]
        assert ages.oldest(full.__contains__, lambda each: each not in ended) == min(free, default=None)  # noqa: B023
        assert len(ages._heap) <= 2 * len(ages._firsts) + STALE_MAX + 1
        # Ended messages stay ended, also of tenants without turns.
        if ended:
            ages.remove_all(offset, offset + 500)
        offered = {(of, each) for of, each in offered if each not in ended}
        ended = set()
