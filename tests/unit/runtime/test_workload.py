"""Rates and workers: the rings against a list of what happened, and the signal in stories with known answers."""

from __future__ import annotations

import asyncio
import functools
import random

import pytest

from penstock.broker.autoscale import NEVER, suggested, time_to_drain_s
from penstock.errors import QueueNotFound
from penstock.ids import parse_queue
from penstock.runtime.workload import BUCKET_MS, BUCKETS, Ring, Work, covered_ms
from penstock.testing.inprocess import InProcess, in_process

ORDERS = parse_queue("orders")
START_MS = 1_760_000_000_000


def with_broker(test):
    @functools.wraps(test)
    def wrapped():
        async def run() -> None:
            async with in_process() as box:
                await test(box)

        asyncio.run(run())

    del wrapped.__wrapped__
    return wrapped


# -- the rings ---------------------------------------------------------------------------------------------------------


def window_start(now_ms: int) -> int:
    return (now_ms // BUCKET_MS - (BUCKETS - 1)) * BUCKET_MS


@pytest.mark.parametrize("seed", range(5))
def test_a_ring_holds_the_last_minute(seed):
    chance = random.Random(seed)
    ring, added, now = Ring(2), [], START_MS
    for _ in range(500):
        now += chance.choice([0, 1, 700, BUCKET_MS, 30_000, chance.randint(0, 200_000)])
        if chance.random() < 0.7:
            column, amount = chance.randint(0, 1), chance.randint(1, 1000)
            ring.add(now, column, amount)
            added.append((now, column, amount))
        for column in range(2):
            expected = sum(n for at, where, n in added if where == column and at >= window_start(now))
            assert ring.total(now, column) == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_time_of_busy_workers_is_added_up_exactly(seed):
    chance = random.Random(seed)
    work, now = Work(START_MS), START_MS
    held: dict[str, int] = {}
    busy: list[tuple[int, int, int]] = []
    for _ in range(300):
        before = now
        now += chance.choice([0, 1, 400, 4999, 5000, 20_000, 90_000])
        busy.append((before, now, len(held)))
        worker = chance.choice("abc")
        if chance.random() < 0.5:
            held[worker] = held.get(worker, 0) + 2
            work.took(now, worker, 2)
        elif worker in held:
            held[worker] -= 1
            if not held[worker]:
                del held[worker]
            work.let_go(now, worker, 1)
        if chance.random() < 0.3:
            since = window_start(now)
            expected = sum(count * max(0, stop - max(first, since)) for first, stop, count in busy)
            assert work.recent(now)[2] == expected
        assert work.busy == len(held)


def test_time_that_a_ring_stands_for():
    on_edge = START_MS // BUCKET_MS * BUCKET_MS
    assert covered_ms(on_edge + 1, on_edge) == 1000, "a rate over an instant would be anything"
    assert covered_ms(on_edge + 30_000, on_edge) == 30_000
    assert covered_ms(on_edge + 600_000, on_edge) == 60_000
    assert covered_ms(on_edge + 603_000, on_edge) == 63_000


# -- the formula -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ready", "arrival", "service", "expected"),
    [
        (0, 5.0, 0.0, 0.0),
        (100, 0.0, 10.0, 10.0),
        (100, 5.0, 10.0, 20.0),
        (100, 10.0, 10.0, NEVER),
        (1, 0.0, 0.0, NEVER),
    ],
)
def test_time_to_drain(ready, arrival, service, expected):
    assert time_to_drain_s(ready, arrival, service) == expected


@pytest.mark.parametrize(
    ("required", "per_worker", "busy", "backlog", "least", "most", "expected"),
    [
        (10.0, 2.0, 1, 100, 0, 1000, 5),
        (10.1, 2.0, 1, 100, 0, 1000, 6),
        (10.0, 2.0, 1, 100, 0, 3, 3),
        (0.0, 2.0, 0, 0, 0, 1000, 0),
        (0.0, 2.0, 0, 0, 2, 1000, 2),
        (0.0, 2.0, 1, 1, 0, 1000, 1),  # leased
        (50.0, 0.0, 0, 100, 0, 1000, 1),  # nothing finished yet: begin with one
        (50.0, 0.0, 7, 100, 0, 1000, 7),
        (0.0, 0.0, 0, 0, 0, 1000, 0),
        (3 * 0.1, 0.1, 3, 9, 0, 1000, 3),  # not a worker more for the last bit of a float
    ],
)
def test_suggested_workers(required, per_worker, busy, backlog, least, most, expected):
    assert suggested(required, per_worker, busy, backlog, least, most) == expected


# -- stories -----------------------------------------------------------------------------------------------------------


async def worked(box: InProcess, consumer: str, service_ms: int) -> None:
    """Lease one message, work on it, ack it."""
    (message,) = await box.lease("orders", consumer=consumer)
    await box.advance(service_ms)
    await box.broker.messages.ack([message.receipt])


@with_broker
async def test_the_first_question_is_answered_right(box):
    await box.advance(600_000)
    await box.publish("orders", *[b"x"] * 300)
    for _ in range(100):
        await worked(box, "worker-1", 500)
    signal = box.broker.autoscale.signal(ORDERS, target_drain_s=100)
    seconds = signal["window_s"]
    assert 60 <= seconds < 65
    assert signal["arrival_rate"] == round(300 / seconds, 3)
    assert signal["service_rate"] == round(100 / seconds, 3)
    assert (signal["mean_service_time_s"], signal["service_rate_per_worker"]) == (0.5, 2.0)
    assert (signal["ready"], signal["in_flight"], signal["backlog"], signal["busy_workers"]) == (200, 0, 200, 0)
    # 300 in a minute and 200 in 100 s, at 2 a second each.
    assert signal["suggested_workers"] == -(-(300 / seconds + 2) // 2)
    assert (await box.broker.stats.queue(ORDERS))["rates"] == {
        "published_per_s": round(300 / seconds, 3),
        "delivered_per_s": round(100 / seconds, 3),
        "acked_per_s": round(100 / seconds, 3),
    }


@with_broker
async def test_idle_workers_are_not_needed(box):
    """Ten workers that are busy a tenth of the time: one would do."""
    await box.advance(600_000)
    for number in range(60):
        await box.publish("orders", b"x")
        await worked(box, f"worker-{number % 10}", 100)
        await box.advance(900)
    signal = box.broker.autoscale.signal(ORDERS)
    assert (signal["service_rate_per_worker"], signal["mean_service_time_s"]) == (10.0, 0.1)
    assert (signal["ready"], signal["time_to_drain_s"], signal["suggested_workers"]) == (0, 0, 1)
    await box.advance(120_000)
    signal = box.broker.autoscale.signal(ORDERS)
    assert (signal["arrival_rate"], signal["service_rate"], signal["mean_service_time_s"]) == (0, 0, NEVER)
    assert signal["suggested_workers"] == 0
    assert box.broker.autoscale.signal(ORDERS, min_workers=2)["suggested_workers"] == 2


@with_broker
async def test_a_worker_that_takes_many_at_once_is_one_worker(box):
    await box.advance(600_000)
    await box.publish("orders", *[b"x"] * 400)
    for _ in range(3):
        for message in await box.lease("orders", max=50, consumer="batch"):
            await box.advance(100)
            await box.broker.messages.ack([message.receipt])
    signal = box.broker.autoscale.signal(ORDERS, target_drain_s=5)
    assert signal["service_rate_per_worker"] == 10.0
    assert signal["mean_service_time_s"] == pytest.approx(2.55), "each waits for those before it"
    assert signal["time_to_drain_s"] == NEVER
    assert signal["suggested_workers"] == -(-(400 / signal["window_s"] + 250 / 5) // 10)


@with_broker
async def test_what_holds_and_what_lets_go(box):
    await box.broker.queues.put(ORDERS, {"max_retries": 1, "backoff": {"kind": "none"}})
    await box.publish("orders", *[b"x"] * 10)
    first = await box.lease("orders", max=3, consumer="a", lease_ms=1000)
    second = await box.lease("orders", max=2)
    await box.lease("orders", max=1)

    def busy() -> tuple[int, int]:
        signal = box.broker.autoscale.signal(ORDERS)
        return signal["busy_workers"], signal["in_flight"]

    assert busy() == (3, 6), "leases without a name are one worker each"
    await box.broker.messages.release([message.receipt for message in second])
    assert busy() == (2, 4)
    await box.broker.messages.reject([first[0].receipt])
    await box.advance(1000)
    assert busy() == (1, 1), "its lease ran out"
    group = (await box.broker.stats.queue(ORDERS))["groups"][0]
    assert (group["busy_workers"], group["finished"], group["service_s"]) == (1, 1, 0)
    assert (await box.broker.stats.queue(ORDERS))["totals"]["lease_expired"] == 2
    await box.restart()
    assert busy() == (1, 1), "found again"
    with pytest.raises(Exception) as refused:
        await box.broker.queues.purge(ORDERS)
    await box.broker.queues.purge(ORDERS, confirm=refused.value.details["confirm"])
    assert busy() == (0, 0)


@with_broker
async def test_groups_have_signals_of_their_own(box):
    await box.publish("orders", *[b"x"] * 10, delay_ms=[0] * 8 + [9000] * 2)
    await box.lease("orders", max=4, group="a", consumer="w")
    signals = {group: box.broker.autoscale.signal(ORDERS, group=group) for group in ("a", "b")}
    assert [(signals[g]["ready"], signals[g]["in_flight"]) for g in "ab"] == [(4, 4), (8, 0)]
    assert [signals[g]["suggested_workers"] for g in "ab"] == [1, 1]
    with pytest.raises(QueueNotFound):
        box.broker.autoscale.signal(parse_queue("nowhere"))


@with_broker
async def test_at_most_once_is_finished_by_being_delivered(box):
    await box.broker.queues.put(ORDERS, {"delivery": "at_most_once"})
    await box.publish("orders", *[b"x"] * 4)
    await box.lease("orders", max=3, consumer="w")
    signal = box.broker.autoscale.signal(ORDERS)
    assert (signal["service_rate"], signal["mean_service_time_s"], signal["busy_workers"]) == (3.0, 0.0, 0)
    assert (signal["service_rate_per_worker"], signal["suggested_workers"]) == (0, 1)


@with_broker
async def test_a_deleted_queue_leaves_nothing_behind(box):
    await box.publish("orders", b"x")
    await box.lease("orders")
    counters = box.host.loop.counters
    with pytest.raises(Exception) as refused:
        await box.broker.queues.delete(ORDERS)
    await box.broker.queues.delete(ORDERS, confirm=refused.value.details["confirm"])
    assert (counters.by_queue, counters._work) == ({}, {})


def test_more_than_can_be_counted_is_as_many_as_there_may_be():
    """A backlog to be finished in nearly no time: an unbounded rate."""
    assert suggested(5 / 1e-320, 0.5, busy=1, backlog=5, least=0, most=1_000) == 1_000
    assert suggested(1e300, 1e-300, busy=1, backlog=5, least=0, most=7) == 7
