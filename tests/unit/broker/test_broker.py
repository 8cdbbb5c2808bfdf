"""The operations of the broker through the facade, in memory and on files."""

from __future__ import annotations

import asyncio
import functools
import itertools

import pytest

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.broker.confirm import VALID_MS
from penstock.broker.types import PublishPart
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict, FencedProducer, InvalidRequest, QueueFull, QueueNotFound, TooLarge, Unavailable
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process, messages

ORDERS = parse_queue("orders")
NOWHERE = parse_queue("nowhere")


def with_broker(test=None, **options):
    """The test gets a running broker; once in memory, once on files."""
    if test is None:
        return functools.partial(with_broker, **options)

    @pytest.mark.parametrize("engine", ["memory", "local"])
    def wrapped(engine, tmp_path):
        async def run() -> None:
            files = (lambda: LocalEngine(str(tmp_path), fsync="never")) if engine == "local" else None
            async with in_process(files, **options) as box:
                await test(box)

        asyncio.run(run())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


async def waiting(box, count: int) -> None:
    """Until so many long-polls are parked."""
    for _ in range(1000):
        if box.broker.waiting == count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{box.broker.waiting} wait, not {count}")


# -- publish, lease, settle --------------------------------------------------------------------------------------------


@with_broker
async def test_a_message_goes_in_and_comes_out_as_it_was(box):
    reply = await box.publish("orders", b"1", b"\x00\xff", key=[b"k", b""])
    assert [(run.queue, run.partition, run.offset, run.count, run.duplicate) for run in reply.runs] == [
        (ORDERS, 0, 0, 2, False)
    ]
    (run,) = (await box.broker.messages.lease(ORDERS, max=5, consumer="me")).runs
    assert (run.batch.payloads(), run.batch.strings(layout.KEY), run.attempt) == ([b"1", b"\x00\xff"], [b"k", b""], 1)
    assert (run.id, run.published_at_ms) == (reply.runs[0].id, box.clock.now_ms())
    assert run.deadline_at_ms == box.clock.now_ms() + 30_000
    assert [result.status for result in await box.broker.messages.ack([f"{run.receipt}0-1"])] == ["acked"]
    assert [result.status for result in await box.broker.messages.ack([f"{run.receipt}0-1"])] == ["stale"]


@with_broker
async def test_a_lease_can_ack_the_one_before_in_the_same_call(box):
    await box.publish("orders", b"1", b"2")
    (first,) = await box.lease("orders")
    reply = await box.broker.messages.lease(ORDERS, ack=[first.receipt, "r1.0.99.0000000000000000.0"])
    assert [result.status for result in reply.results] == ["acked", "stale"]
    assert [message.payload for message in messages(reply.runs)] == [b"2"]


@with_broker
async def test_expired_lease_is_granted_to_a_lease_at_the_same_time(box):
    await box.broker.queues.put(ORDERS, {"lease_ms": 1000, "backoff": {"kind": "none"}})
    await box.publish("orders", b"1")
    (first,) = await box.lease("orders")
    box.clock.advance(1000)
    (second,) = await box.lease("orders")
    assert (first.attempt, second.attempt) == (1, 2)
    assert [result.status for result in await box.broker.messages.ack([first.receipt])] == ["stale"]
    assert [result.status for result in await box.broker.messages.ack([second.receipt])] == ["acked"]


@with_broker
async def test_parts_are_stored_all_or_none(box):
    await box.broker.queues.put(ORDERS, {"max_messages": 2})
    part = PublishPart(ORDERS, Batch.open(build([b"1", b"2"])))
    other = PublishPart(parse_queue("other"), Batch.open(build([b"x"])))
    with pytest.raises(QueueFull):
        await box.broker.messages.publish([other, part, part])
    assert (await box.broker.stats.queue(ORDERS))["depth"] == 0
    await box.broker.messages.publish([other, part])
    assert (await box.broker.stats.queue(ORDERS))["depth"] == 2
    assert (await box.broker.stats.queue(parse_queue("other")))["depth"] == 1


@with_broker
async def test_what_is_refused_has_changed_nothing(box):
    """Not even a queue is made for it."""
    small = PublishPart(parse_queue("new-one"), Batch.open(build([b"1"])))
    large = PublishPart(NOWHERE, Batch.open(build([bytes(limits.PAYLOAD_BYTES_MAX + 1)], kind=layout.KIND_BYTES)))
    with pytest.raises(TooLarge):
        await box.broker.messages.publish([small, large])
    assert (await box.broker.queues.list())["total"] == 0
    await box.publish("orders", b"1", producer=("p", 2, 0))
    with pytest.raises(FencedProducer):
        await box.publish("orders", b"1", producer=("p", 1, 0))
    assert (await box.broker.stats.queue(ORDERS))["depth"] == 1


@with_broker(auto_create=False)
async def test_queue_creation_can_be_disabled(box):
    with pytest.raises(QueueNotFound) as caught:
        await box.publish("orders", b"1")
    assert caught.value.details == {"queue": ORDERS}
    assert (await box.broker.queues.list())["total"] == 0
    await box.broker.queues.put(ORDERS, {})
    await box.publish("orders", b"1")


@with_broker
async def test_what_does_not_exist_is_not_found(box):
    broker = box.broker
    for call in (
        lambda: broker.messages.lease(NOWHERE), lambda: broker.log.read(NOWHERE), lambda: broker.log.peek(NOWHERE),
        lambda: broker.scheduled.cancel(NOWHERE, ids=[]), lambda: broker.dead_letters.page(NOWHERE),
        lambda: broker.queues.delete(NOWHERE), lambda: broker.queues.patch(NOWHERE, {}),
            lambda: broker.stats.queue(NOWHERE), lambda: broker.groups.list(NOWHERE),
    ):  # fmt: skip
        with pytest.raises(QueueNotFound):
            await call()
    with pytest.raises(QueueNotFound):
        broker.queues.get(NOWHERE)


@with_broker
async def test_the_same_publish_again_has_the_same_answer(box):
    first = await box.publish("orders", b"1", b"2", producer=("p", 1, 0))
    await box.restart()
    again = await box.publish("orders", b"1", b"2", producer=("p", 1, 0))
    (run,) = again.runs
    assert (run.duplicate, run.offset, run.count, run.id) == (True, 0, 2, first.runs[0].id)
    assert (await box.broker.stats.queue(ORDERS))["depth"] == 2


# -- waiting -----------------------------------------------------------------------------------------------------------


@with_broker
async def test_a_long_poll_wakes_exactly_one_waiter_per_message(box):
    await box.broker.queues.put(ORDERS, {})
    polls = [asyncio.create_task(box.lease("orders", wait_ms=60_000)) for _ in range(5)]
    await waiting(box, 5)
    await box.publish("orders", b"1", b"2")
    done, _ = await asyncio.wait(polls[:2])
    assert [message.payload for poll in polls[:2] for message in poll.result()] == [b"1", b"2"]
    assert [poll.done() for poll in polls[2:]] == [False] * 3
    assert box.broker.waiting == 3
    await box.publish("orders", b"3")
    assert [message.payload for message in await polls[2]] == [b"3"]
    for poll in polls[3:]:
        poll.cancel()
    assert len(done) == 2


@with_broker
async def test_a_long_poll_is_woken_by_time_too(box):
    """By a delay that is over, a retry that is due, a lease that ran out."""
    await box.broker.queues.put(ORDERS, {"lease_ms": 1000, "backoff": {"kind": "fixed", "base_ms": 500, "jitter": 0}})
    await box.publish("orders", b"1", delay_ms=[5000])
    for attempt, waits in ((1, [4999, 1]), (2, [499, 1]), (3, [1000, 499, 1])):
        poll = asyncio.create_task(box.lease("orders", wait_ms=60_000))
        await waiting(box, 1)
        for wait_ms in waits:
            assert not poll.done()
            await box.advance(wait_ms)
        (message,) = await asyncio.wait_for(poll, 5)
        assert message.attempt == attempt
        if attempt == 1:
            await box.broker.messages.nack([message.receipt])


@with_broker
async def test_a_wait_that_is_over_is_empty(box):
    await box.broker.queues.put(ORDERS, {})
    assert await box.lease("orders", wait_ms=1) == []


@with_broker
async def test_a_caller_that_hung_up_takes_nothing_with_them(box):
    await box.broker.queues.put(ORDERS, {})
    poll = asyncio.create_task(box.lease("orders", wait_ms=60_000))
    await waiting(box, 1)
    published = asyncio.create_task(box.publish("orders", b"1"))
    await asyncio.sleep(0)  # the publish is decided and the message leased; neither is durable yet
    poll.cancel()
    await published
    for _ in range(100):
        if got := await box.lease("orders"):
            break
        await asyncio.sleep(0.001)
    assert [(message.payload, message.attempt) for message in got] == [(b"1", 1)]


@with_broker
async def test_drain_answers_waiting_commands_and_refuses_new_ones(box):
    await box.broker.queues.put(ORDERS, {})
    polls = [asyncio.create_task(box.lease("orders", wait_ms=60_000)) for _ in range(3)]
    reader = asyncio.create_task(box.broker.log.read(ORDERS, wait_ms=60_000))
    await waiting(box, 3)
    box.broker.stop_waiting()
    assert await asyncio.gather(*polls) == [[], [], []]
    assert (await reader).runs == []
    assert not box.broker.ready
    with pytest.raises(Unavailable, match="shutting down"):
        await box.publish("orders", b"1")
    assert await box.lease("orders", wait_ms=60_000) == [], "no lease waits any more"


@with_broker
async def test_deletion_of_a_queue_answers_waiting_leases(box):
    await box.broker.queues.put(ORDERS, {})
    poll = asyncio.create_task(box.lease("orders", wait_ms=60_000))
    await waiting(box, 1)
    with pytest.raises(Conflict) as asked:
        await box.broker.queues.delete(ORDERS)
    await box.broker.queues.delete(ORDERS, confirm=asked.value.details["confirm"])
    assert await poll == []


# -- messages that wait ------------------------------------------------------------------------------------------------


@with_broker
async def test_cancel_and_reschedule_by_id_and_by_key(box):
    await box.publish("orders", b"1", b"2", b"3", b"4", key=[b"a", b"b", b"a", b"a"], delay_ms=[9000] * 4)
    ids = [message.id for message in messages((await box.broker.log.read(ORDERS)).runs)]
    cancelled, results = await box.broker.scheduled.cancel(ORDERS, ids=[ids[0], "01JP0000000000000000000000"])
    assert (cancelled, [result.status for result in results]) == (1, ["cancelled", "not_found"])
    cancelled, results = await box.broker.scheduled.cancel(ORDERS, ids=[ids[0].lower()])
    assert (cancelled, [result.status for result in results]) == (0, ["done"])
    moved, results = await box.broker.scheduled.reschedule(ORDERS, key="a", delay_ms=100)
    assert (moved, {result.id for result in results}) == (2, {ids[2], ids[3]})
    await box.advance(100)
    assert [message.payload for message in await box.lease("orders", max=9)] == [b"3", b"4"]
    cancelled, results = await box.broker.scheduled.cancel(ORDERS, key="a")
    assert (cancelled, {result.status for result in results}) == (0, {"in_flight"})
    moved, _ = await box.broker.scheduled.reschedule(ORDERS, ids=[ids[1]], deliver_at_ms=box.clock.now_ms() + 5)
    await box.advance(5)
    assert [message.payload for message in await box.lease("orders", max=9)] == [b"2"]


@with_broker
async def test_cancel_and_reschedule_want_exactly_one_way_of_saying_which_and_when(box):
    await box.broker.queues.put(ORDERS, {})
    for call in (
        lambda: box.broker.scheduled.cancel(ORDERS),
        lambda: box.broker.scheduled.cancel(ORDERS, ids=[], key="a"),
        lambda: box.broker.scheduled.reschedule(ORDERS, ids=[]),
        lambda: box.broker.scheduled.reschedule(ORDERS, ids=[], delay_ms=1, deliver_at_ms=1),
    ):
        with pytest.raises(InvalidRequest):
            await call()


# -- looking -----------------------------------------------------------------------------------------------------------


@with_broker
async def test_reads_by_offset_by_name_and_by_time(box):
    await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep"}})
    start_ms = box.clock.now_ms()
    for number in range(10):
        await box.publish("orders", b"%d" % number)
        await box.advance(1000)

    async def read(offset: str, most: int = 100) -> tuple[list[bytes], int, int, int]:
        reply = await box.broker.log.read(ORDERS, offset=offset, max=most)
        payloads = [message.payload for message in messages(reply.runs)]
        return payloads, reply.next_offset, reply.start_offset, reply.end_offset

    everything = [b"%d" % number for number in range(10)]
    assert await read("earliest") == (everything, 10, 0, 10)
    assert await read("0", 3) == (everything[:3], 3, 0, 10)
    assert await read("7") == (everything[7:], 10, 0, 10)
    assert await read("latest") == ([], 10, 0, 10)
    assert await read("10") == ([], 10, 0, 10)
    assert await read("999999") == ([], 999999, 0, 10)
    assert await read(f"at:{start_ms}") == (everything, 10, 0, 10)
    assert await read(f"at:{start_ms + 3001}") == (everything[4:], 10, 0, 10)
    assert await read(f"at:{start_ms + 4000}") == (everything[4:], 10, 0, 10)
    assert await read(f"at:{start_ms + 60_000}") == ([], 10, 0, 10)
    for offset in ("", "-1", "at:", "at:-5", "at:1.5", "soon", "1e3", "٣", "at:at:1", "9" * 30):
        with pytest.raises(InvalidRequest) as caught:
            await read(offset)
        assert caught.value.details == {"field": "offset"}
    with pytest.raises(InvalidRequest) as caught:
        await box.broker.log.read(ORDERS, partition=1)
    assert caught.value.details == {"field": "partition"}


@with_broker
async def test_a_read_at_the_end_waits_and_all_readers_are_woken(box):
    await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep"}})
    readers = [asyncio.create_task(box.broker.log.read(ORDERS, offset="latest", wait_ms=60_000)) for _ in range(3)]
    await asyncio.sleep(0)
    await box.publish("orders", b"1")
    for reply in await asyncio.gather(*readers):
        assert [message.payload for message in messages(reply.runs)] == [b"1"]
    assert (await box.broker.log.read(ORDERS, offset="latest", wait_ms=1)).runs == []


def test_a_read_that_retention_overtakes_ends_there():
    """The next one says what was skipped; nothing is left out in the middle."""

    async def run() -> None:
        async with in_process() as box:
            for _ in range(50):
                await box.publish("orders", b"x" * 100_000)
            taken = await box.lease("orders", max=50)
            reading = asyncio.create_task(box.broker.log.read(ORDERS, offset="0", max=None, bytes_max=8 * limits.MIB))
            await asyncio.sleep(0)
            await box.broker.messages.ack([message.receipt for message in taken])
            reply = await reading
            assert [message.offset for message in messages(reply.runs)] == list(range(reply.next_offset))
            assert reply.next_offset < 50
            assert (await box.broker.log.read(ORDERS, offset=str(reply.next_offset))).skipped == 50 - reply.next_offset

    asyncio.run(run())


@with_broker
async def test_peek_shows_what_would_be_given_next_and_gives_nothing(box):
    await box.publish("orders", b"1", b"2", b"3", b"4", b"5", delay_ms=[0, 0, 60_000, 0, 0])

    async def peek(**options) -> list[bytes]:
        return [message.payload for message in messages(await box.broker.log.peek(ORDERS, **options))]

    assert await peek() == [b"1", b"2", b"4", b"5"], "a message whose time has not come is not next"
    assert await peek(max=3) == [b"1", b"2", b"4"]
    (leased,) = await box.lease("orders")
    assert await peek() == [b"2", b"4", b"5"]
    assert await peek(group="another") == [b"1", b"2", b"4", b"5"]
    await box.broker.messages.ack([leased.receipt])
    assert await peek() == [b"2", b"4", b"5"]
    assert (await box.broker.log.peek(ORDERS))[0].receipt is None
    assert [message.payload for message in await box.lease("orders", max=9)] == [b"2", b"4", b"5"]


@with_broker
async def test_dead_letters_can_be_looked_at(box):
    await box.broker.queues.put(ORDERS, {"max_retries": 0})
    await box.publish("orders", *[b"%d" % number for number in range(5)])
    leased = await box.lease("orders", max=5, consumer="worker-7")
    for message in leased:
        await box.broker.messages.nack([message.receipt], error=f"no {message.offset}")
        await box.advance(10)
    page = await box.broker.dead_letters.page(ORDERS, page=2, limit=2)
    assert (page["total"], page["page"], page["limit"]) == (5, 2, 2)
    shown = [
        (found.run.batch.payloads(), found.letter.reason, found.letter.error, found.letter.consumer)
        for found in page["dead_letters"]
    ]
    assert shown == [([b"2"], "max_retries", "no 2", "worker-7"), ([b"3"], "max_retries", "no 3", "worker-7")]
    await box.restart()
    assert (await box.broker.dead_letters.page(ORDERS))["total"] == 5
    assert (await box.broker.stats.queue(ORDERS))["dead"] == 5


@with_broker
async def test_numbers_add_up(box):
    await box.broker.queues.put(ORDERS, {"max_retries": 1, "partitions": 2})
    keys = [b"%d" % number for number in range(20)]
    await box.publish("orders", *keys, key=keys, delay_ms=[0] * 15 + [60_000] * 5)
    leased = await box.lease("orders", max=10)
    await box.broker.messages.ack([message.receipt for message in leased[:4]])
    await box.broker.messages.nack([message.receipt for message in leased[4:6]], delay_ms=1000)
    await box.broker.messages.reject([leased[6].receipt])
    stats = await box.broker.stats.queue(ORDERS)
    told = {name: stats[name] for name in ("depth", "ready", "scheduled", "leased", "waiting_for_retry", "dead")}
    assert told == {"depth": 15, "ready": 5, "scheduled": 5, "leased": 3, "waiting_for_retry": 2, "dead": 1}
    assert stats["totals"] == {
        "published": 20, "delivered": 10, "redelivered": 0, "acked": 4, "retried": 2, "dead_lettered": 1, "expired": 0,
        "cancelled": 0, "redriven": 0, "lease_expired": 0,
        "session_expired": 0,
    } | {name: count for name, count in stats["totals"].items() if name == "released"}  # fmt: skip
    (group,) = (await box.broker.groups.list(ORDERS))["groups"]
    assert (group["group"], group["lag"], group["ready"], group["leased"]) == ("default", 15, 5, 3)
    summary = await box.broker.stats.summary()
    assert (summary["queues"], summary["depth"], summary["leased"], summary["dead"]) == (1, 15, 3, 1)


# -- queues ------------------------------------------------------------------------------------------------------------


@with_broker
async def test_queues_are_made_changed_and_listed(box):
    broker = box.broker
    made, created = await broker.queues.put(ORDERS, {"lease_ms": 5000})
    assert (made["queue"], made["config"]["lease_ms"], created) == (ORDERS, 5000, True)
    _, created = await broker.queues.put(ORDERS, {"max_retries": 1})
    assert not created
    assert broker.queues.get(ORDERS)["config"]["lease_ms"] == 5000, "a setting that is not named stays as it is"
    changed = await broker.queues.patch(ORDERS, {"backoff": {"kind": "none"}})
    assert (changed["config"]["max_retries"], changed["config"]["backoff"]["kind"]) == (1, "none")
    await broker.queues.patch(ORDERS, {"partitions": 2})
    with pytest.raises(InvalidRequest) as caught:
        await broker.queues.patch(ORDERS, {"partitions": 1})
    assert caught.value.details == {"field": "partitions"}
    for number, task in itertools.product(range(3), ("mail", "sms")):
        await broker.queues.put(parse_queue(f"eu/{task}/q{number}"), {})
    page = await broker.queues.list(prefix="eu/", page=2, limit=4)
    assert ([entry["queue"] for entry in page["queues"]], page["total"]) == (["eu/sms/q1", "eu/sms/q2"], 6)


@with_broker
async def test_destruction_needs_the_token_of_this_action_on_this_queue(box):
    broker = box.broker
    other = parse_queue("other")
    for queue in ("orders", "other"):
        await box.publish(queue, b"1", b"2")
    tokens = {}
    for action in ("delete", "purge"):
        for queue in (ORDERS, other):
            with pytest.raises(Conflict) as asked:
                await getattr(broker.queues, action)(queue)
            assert asked.value.details["would_lose"] == {"messages": 2, "dead_letters": 0}
            tokens[action, queue] = asked.value.details["confirm"]
    assert len(set(tokens.values())) == 4
    for wrong in ("", "0" * 16, "é", tokens["purge", other], tokens["delete", ORDERS]):
        with pytest.raises(Conflict):
            await broker.queues.purge(ORDERS, confirm=wrong)
    assert (await broker.stats.queue(ORDERS))["depth"] == 2
    done = await broker.queues.purge(ORDERS, confirm=tokens["purge", ORDERS])
    assert (done["purged"], done["lost"]["messages"], (await broker.stats.queue(ORDERS))["depth"]) == (True, 2, 0)
    await box.advance(3 * VALID_MS)
    with pytest.raises(Conflict):
        await broker.queues.delete(other, confirm=tokens["delete", other])
    assert (await broker.stats.queue(other))["depth"] == 2


@with_broker
async def test_a_purged_queue_goes_on(box):
    await box.publish("orders", b"1", b"2", b"3")
    leased = await box.lease("orders", max=2)
    with pytest.raises(Conflict) as asked:
        await box.broker.queues.purge(ORDERS)
    await box.broker.queues.purge(ORDERS, confirm=asked.value.details["confirm"])
    assert [result.status for result in await box.broker.messages.ack([leased[0].receipt])] == ["stale"]
    assert await box.lease("orders", max=9) == []
    await box.publish("orders", b"4")
    await box.restart()
    (message,) = await box.lease("orders", max=9)
    assert (message.offset, message.payload) == (3, b"4")


# -- size --------------------------------------------------------------------------------------------------------------


@with_broker
async def test_a_reply_counts_bytes_as_well_as_messages(box):
    payload = bytes(limits.PAYLOAD_BYTES_MAX)
    for number in range(20):
        await box.publish("orders", b"%02d" % number + payload[2:])
    got = []
    while leased := await box.lease("orders", max=100):
        assert sum(len(message.payload) for message in leased) <= limits.LEASE_REPLY_BYTES_MAX
        got += [message.payload[:2] for message in leased]
    assert got == [b"%02d" % number for number in range(20)]
    reply = await box.broker.log.read(ORDERS, max=100)
    assert 1 <= len(messages(reply.runs)) < 20
    assert reply.next_offset == len(messages(reply.runs))


@with_broker
async def test_many_callers_at_once_share_their_commits(box):
    before = box.host.journal.tail.index
    await asyncio.gather(*(box.publish("orders", b"%d" % number) for number in range(500)))
    assert box.host.journal.tail.index - before < 50
    leased = await box.lease("orders", max=500)
    assert len({message.id for message in leased}) == 500
    assert [message.id for message in leased] == sorted(message.id for message in leased)
