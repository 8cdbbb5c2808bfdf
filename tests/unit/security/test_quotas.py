"""Each limit at one less than its number, at its number, and at one more."""

from __future__ import annotations

import pytest
from boxed import boxed

from penstock.batch import Batch, build
from penstock.broker.guarded import guarded_broker
from penstock.broker.metering import Metering
from penstock.broker.types import PublishPart
from penstock.errors import Conflict, RateLimited
from penstock.security.buckets import Rate
from penstock.security.principal import Principal
from penstock.security.quotas import AccessLimits, Quotas, WrittenAmount
from penstock.security.scopes import parse_scopes

ALL = parse_scopes(["publish:*", "consume:*"])
THREE = Rate(3, "h")
QUEUE = "shop/default/orders"


def key(id: str = "k1", rate: Rate | None = None) -> Principal:
    return Principal("key", id, id, ALL, rate=rate)


def quotas(**bounds) -> Quotas:
    return Quotas(AccessLimits(**bounds), lambda: 100.0)


RATES = {
    "address_requests": lambda found, of: found.demand_address(of),
    "key_requests": lambda found, of: found.demand_request(key(of)),
    "key_messages": lambda found, of: found.demand_write(key(of), {"shop": WrittenAmount(1, 0)}),
    "key_bytes": lambda found, of: found.demand_write(key(of), {"shop": WrittenAmount(0, 1)}),
    "namespace_requests": lambda found, of: found.demand_write(key(), {of: WrittenAmount(0, 0)}),
    "namespace_messages": lambda found, of: found.demand_write(key(), {of: WrittenAmount(1, 0)}),
    "namespace_bytes": lambda found, of: found.demand_write(key(), {of: WrittenAmount(0, 1)}),
}


@pytest.mark.parametrize("limit", RATES)
def test_rate_allows_its_number_and_no_more(limit):
    found, demand = quotas(**{limit: THREE}), RATES[limit]
    for _ in range(3):
        demand(found, "one")
    with pytest.raises(RateLimited) as refused:
        demand(found, "one")
    assert refused.value.details == {"limit": limit} and refused.value.retry_after_ms > 0
    assert found.refused == {limit: 1}
    demand(found, "two")


@pytest.mark.parametrize("limit", ["key_streams", "queue_streams"])
def test_streams_are_counted_until_they_end(limit):
    found = quotas(**{limit: 3})
    opens = found.open_queue_stream if limit == "queue_streams" else lambda of: found.open_stream(key(of))
    opened = [opens("one") for _ in range(3)]
    with pytest.raises(RateLimited):
        opens("one")
    opens("two")
    opened[0]()
    opened[0]()
    opens("one")
    with pytest.raises(RateLimited):
        opens("one")


def test_own_rate_of_a_key_wins_and_settling_is_not_refused():
    found = quotas(key_requests=Rate(1, "h"))
    rich = key("rich", Rate(5, "h"))
    for _ in range(5):
        found.demand_request(rich)
    for _ in range(50):
        found.demand_request(rich, settles=True)
    with pytest.raises(RateLimited):
        found.demand_request(rich)


def test_refused_write_takes_nothing():
    found = quotas(key_messages=Rate(10, "h"), namespace_messages=Rate(3, "h"))
    with pytest.raises(RateLimited):
        for _ in range(2):
            found.demand_write(key(), {"shop": WrittenAmount(2, 0)})
    for _ in range(4):
        found.demand_write(key(), {"bank": WrittenAmount(1, 0)} if _ % 2 else {"mail": WrittenAmount(1, 0)})


def test_batch_above_the_limit_is_taken_by_a_full_bucket_alone():
    found = quotas(key_messages=Rate(3, "h"))
    found.demand_write(key(), {"shop": WrittenAmount(10, 0)})
    with pytest.raises(RateLimited):
        found.demand_write(key(), {"shop": WrittenAmount(1, 0)})


def metered(box, **bounds):
    found = Quotas(AccessLimits(**bounds), box.clock.monotonic)
    metering = Metering(box.broker, found)
    return lambda principal: guarded_broker(box.broker, principal, None, metering)


def part(count: int) -> PublishPart:
    return PublishPart(QUEUE, Batch.open(build([b"1"] * count)))


@boxed
async def test_publish_is_counted_in_messages_and_bytes(box):
    broker = metered(box, key_messages=Rate(3, "h"))(key())
    await broker.messages.publish([part(3)])
    with pytest.raises(RateLimited):
        broker.messages.publish([part(1)])
    broker = metered(box, namespace_bytes=Rate(3, "h"))(key())
    await broker.messages.publish([part(2)])
    with pytest.raises(RateLimited):
        broker.messages.publish([part(2)])
    await broker.messages.publish([part(1)])


@pytest.mark.parametrize("limit", ["key_in_flight", "queue_in_flight"])
@boxed
async def test_messages_in_flight(box, limit):
    await box.publish(QUEUE, *[b"1"] * 10)
    broker = metered(box, **{limit: 3})(key())
    leased = (await broker.messages.lease(QUEUE, max=2)).runs
    leased += (await broker.messages.lease(QUEUE, max=9)).runs
    assert sum(run.count for run in leased) == 3
    with pytest.raises(RateLimited) as refused:
        broker.messages.lease(QUEUE, max=1)
    assert refused.value.details == {"limit": limit}
    receipt = f"{leased[0].receipt}{leased[0].offset}"
    assert [each.status for each in await broker.messages.ack([receipt])] == ["acked"]
    assert sum(run.count for run in (await broker.messages.lease(QUEUE, max=9)).runs) == 1


@boxed
async def test_waiting_lease_takes_its_room_until_it_is_cancelled(box):
    await box.broker.queues.put(QUEUE, {})
    broker = metered(box, key_in_flight=3)(key())
    waiting = broker.messages.lease(QUEUE, max=3, wait_ms=10_000)
    with pytest.raises(RateLimited):
        broker.messages.lease(QUEUE, max=1)
    waiting.cancel()
    assert (await broker.messages.lease(QUEUE, max=1)).runs == []


@boxed
async def test_lease_that_is_cancelled_behind_its_grant_gives_its_room_back(box):
    await box.broker.queues.put(QUEUE, {})
    broker = metered(box, key_in_flight=3, queue_in_flight=3)(key())
    waiting = broker.messages.lease(QUEUE, max=3, wait_ms=10_000)
    published = box.broker.messages.publish([part(1)])  # granted, and not durable yet
    waiting.cancel()
    await published
    assert sum(run.count for run in (await broker.messages.lease(QUEUE, max=3)).runs) <= 1
    assert broker.messages.lease(QUEUE, max=1) is not None


@pytest.mark.parametrize("limit", ["key_in_flight", "queue_in_flight"])
@boxed
async def test_a_lease_that_acks_is_not_refused(box, limit):
    """Its acks make the room for what it leases; where they make none they are acked all the same."""
    await box.publish(QUEUE, *[b"1"] * 10)
    broker = metered(box, **{limit: 3})(key())
    runs = (await broker.messages.lease(QUEUE, max=3)).runs
    receipts = [f"{run.receipt}{run.offset + row}" for run in runs for row in range(run.count)]
    reply = await broker.messages.lease(QUEUE, max=9, ack=receipts[:2])
    assert [each.status for each in reply.results] == ["acked"] * 2
    assert sum(run.count for run in reply.runs) == 2
    stale = await broker.messages.lease(QUEUE, max=9, ack=[receipts[0]])
    assert [each.status for each in stale.results] == ["stale"] and stale.runs == []
    with pytest.raises(RateLimited):
        broker.messages.lease(QUEUE, max=1)


@boxed
async def test_acks_that_were_made_up_make_no_room(box):
    await box.publish(QUEUE, *[b"1"] * 10)
    broker = metered(box, key_in_flight=3)(key())
    runs = (await broker.messages.lease(QUEUE, max=3)).runs
    for forged in (f"{runs[0].receipt}0-1000000", f"{runs[0].receipt}900", "r1.0.99.00000000000000aa.0-99"):
        left = (await broker.messages.lease(QUEUE, max=9, ack=[forged])).runs
        assert sum(run.count for run in left) <= 3
        assert box.broker.in_flight.count(QUEUE) <= 3


@pytest.mark.parametrize("end", ["returned", "expired", "purged", "acked by another key"])
@boxed
async def test_messages_whose_delivery_has_ended_are_not_in_flight(box, end):
    """However it ended: leases are returned by the server when a connection is lost."""
    await box.publish(QUEUE, *[b"1"] * 10)
    open_for = metered(box, key_in_flight=3)
    broker = open_for(key())
    leased = (await broker.messages.lease(QUEUE, max=3, lease_ms=1_000)).runs
    receipts = [f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in leased]
    with pytest.raises(RateLimited):
        broker.messages.lease(QUEUE, max=1)
    if end == "returned":
        await box.broker.messages.release(receipts)
    elif end == "expired":
        await box.advance(1_001)
    elif end == "acked by another key":
        await open_for(key("k2")).messages.ack(receipts)
    else:
        with pytest.raises(Conflict) as asked:
            await box.broker.queues.purge(QUEUE)
        await box.broker.queues.purge(QUEUE, confirm=asked.value.details["confirm"])
        await box.publish(QUEUE, *[b"1"] * 10)
    assert sum(run.count for run in (await broker.messages.lease(QUEUE, max=9)).runs) == 3
