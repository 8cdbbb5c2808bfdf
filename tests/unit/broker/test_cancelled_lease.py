"""A cancelled lease holds no messages, neither waiting nor just granted."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from at_once import at_once
from patience import until

from penstock import limits
from penstock.clock import SystemClock
from penstock.errors import Unavailable
from penstock.ids import parse_queue
from penstock.testing.inprocess import InProcess, in_process

ORDERS = parse_queue("orders")


async def settled(box: InProcess, ready: int, leased: int = 0) -> None:
    """Returns when the queue is in this state."""
    async with asyncio.timeout(20):
        await until(
            lambda: (
                (
                    at_once(box.broker.stats.queue(ORDERS))["ready"],
                    at_once(box.broker.stats.queue(ORDERS))["leased"],
                )
                == (ready, leased)
            )
        )


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def outcome_of(task: asyncio.Future):
    """The result, or None if it was cancelled."""
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    return None if isinstance(outcome, asyncio.CancelledError) else outcome


@pytest.mark.parametrize("scope", [False, True])
@pytest.mark.parametrize("turns", range(12))
def test_cancelled_at_the_moment_of_the_grant(turns, scope):
    """Every turn of the event loop from the publish to the reply is tried."""

    async def story():
        async with in_process(clock=SystemClock()) as box:
            await box.broker.queues.put(ORDERS, {})
            options = {"max": 10, "wait_ms": 60_000}
            take = (
                box.broker.messages.lease_scope("default", **options)
                if scope
                else box.broker.messages.lease(ORDERS, **options)
            )
            waiting = asyncio.ensure_future(take)
            await turns_of_the_loop(3)
            assert box.broker.waiting == 1
            publishing = asyncio.ensure_future(box.publish("orders", b"1"))
            await turns_of_the_loop(turns)
            waiting.cancel()
            await publishing
            got = await outcome_of(waiting)
            if got is not None:
                await box.broker.messages.release([f"{run.receipt}{run.offset}" for run in got.runs])
            await settled(box, ready=1)
            assert box.broker.waiting == 0
            (message,) = await box.lease("orders", max=10)
            assert message.attempt == 1, "as if it had not been delivered"

    asyncio.run(story())


@pytest.mark.parametrize("scope", [False, True])
def test_ack_results_are_returned_if_the_lease_is_refused(monkeypatch, scope):
    monkeypatch.setattr(limits, "WAITERS_MAX", 0)

    async def story():
        async with in_process(clock=SystemClock()) as box:
            await box.publish("orders", b"1")
            (message,) = await box.lease("orders", max=1)
            take = (
                partial(box.broker.messages.lease_scope, "default")
                if scope
                else partial(box.broker.messages.lease, ORDERS)
            )
            reply = await take(wait_ms=60_000, ack=[message.receipt])
            assert ([result.status for result in reply.results], reply.runs) == (["acked"], [])
            with pytest.raises(Unavailable, match="consumers are waiting"):
                await take(wait_ms=60_000)

    asyncio.run(story())


@pytest.mark.parametrize("turns", range(1, 8))
def test_what_it_acked_stays_acked(turns):
    async def story():
        async with in_process(clock=SystemClock()) as box:
            await box.publish("orders", b"1", b"2")
            (first,) = await box.lease("orders", max=1)
            call = asyncio.ensure_future(box.broker.messages.lease(ORDERS, max=1, ack=[first.receipt]))
            await turns_of_the_loop(turns)
            call.cancel()
            got = await outcome_of(call)
            await settled(box, ready=1 if got is None else 0, leased=0 if got is None else 1)
            assert (await box.broker.stats.queue(ORDERS))["totals"]["acked"] == 1

    asyncio.run(story())
