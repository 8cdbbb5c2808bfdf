"""The SDK against a real broker, over every carrier: everything a user does with it on an ordinary day."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import msgspec
import pytest
from carriers import CARRIERS, SCHEMES, Remote, carried_by, running

import penstock.sync
from penstock import (
    Client,
    Conflict,
    InvalidRequest,
    NotFound,
    ProducerSeq,
    QueueNotFound,
    StaleReceipt,
    TooLarge,
    Unavailable,
)
from penstock.wire.replies import ItemResult

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("sdk") / "data") as running_server:
        yield running_server


@pytest.fixture(params=CARRIERS)
def carrier(request, server, tmp_path):
    with carried_by(request.param, server, tmp_path / "embedded") as carrier:
        yield carrier


@pytest.fixture
def name() -> str:
    """A queue that no other test uses."""
    return f"sdk/q{next(_numbers)}"


def with_client(carrier, test, **options) -> None:
    async def main() -> None:
        async with carrier.client(**options) as client:
            await asyncio.wait_for(test(client), 30)

    asyncio.run(main())


async def until(condition) -> None:
    """Wait for a condition of the server, by asking again and again."""
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


# -- publish ------------------------------------------------------------------------------------------------------


def test_consumed_messages_equal_the_published_ones(carrier, name):
    async def test(client):
        queue = client.queue(name)
        published = await queue.publish({"order": 1}, key="user-42", headers={"trace": "abc"}, priority=3)
        await queue.publish(b"\x00\xff")
        got = []
        async for message in queue.consume(wait=0.1):
            async with message:
                got.append(message)
        first, second = got
        assert (first.value, first.json(), first.payload) == ({"order": 1}, {"order": 1}, b'{"order":1}')
        assert (first.id, first.queue, first.partition, first.offset) == published[:4]
        assert (first.key, first.headers, first.priority, first.attempt) == ("user-42", {"trace": "abc"}, 3, 1)
        assert abs(first.published_at - datetime.now(UTC)) < timedelta(seconds=30)
        assert (second.value, second.is_json, second.key, second.headers) == (b"\x00\xff", False, None, {})
        assert published.durable and not published.duplicate

    with_client(carrier, test)


def test_concurrent_publishes_keep_the_order_of_the_calls(carrier, name):
    async def test(client):
        queue = client.queue(name)
        results = await asyncio.gather(*(queue.publish(n) for n in range(500)), queue.publish_many(range(500, 700)))
        assert [result.offset for result in results[:-1]] == list(range(500))
        assert [m.offset for m in results[-1]] == list(range(500, 700))
        assert (await queue.read(max=1000)).values() == list(range(700))

    with_client(carrier, test)


def test_many_messages_over_several_frames(carrier, name):
    async def test(client):
        queue = client.queue(name)
        published = await queue.publish_many(range(25_000), keys=(f"k{n % 7}" for n in range(25_000)))
        assert len(published) == 25_000 and published[24_999].offset == 24_999
        values = []
        async for batch in queue.consume_batches(max=5000, wait=0.1):
            assert batch[0].key == f"k{batch[0].value % 7}"
            values += batch.values()
            await batch.ack()
        assert values == list(range(25_000))

    with_client(carrier, test)


def test_a_quick_loop_gets_every_message_once_and_in_order(carrier, name):
    async def test(client):
        queue = client.queue(name)
        await queue.publish_many(range(5_000))
        values = []
        async for message in queue.consume(prefetch=50, wait=0.1):
            async with message:
                values.append(message.value)
        assert values == list(range(5_000))
        stats = await queue.stats()
        assert (stats.ready, stats.leased, stats.totals["delivered"]) == (0, 0, 5_000)

    with_client(carrier, test)


def test_messages_of_many_partitions_are_reported_in_the_order_given(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, partitions=4)
        published = await queue.publish_many(range(40), keys=[f"k{n}" for n in range(40)])
        assert {m.partition for m in published} == {0, 1, 2, 3}
        by_id = {m.id: m for m in published}
        seen = 0
        async for batch in queue.consume_batches(wait=0.1):
            for message in batch:
                where = by_id[message.id]
                assert published[message.value] == where
                assert (message.partition, message.offset) == (where.partition, where.offset)
                seen += 1
            await batch.ack()
        assert seen == 40

    with_client(carrier, test)


def test_client_id_and_sequence_deduplicate_repeated_publishes(carrier, name):
    async def test(client):
        queue = client.queue(name)
        first = await queue.publish(1, id="order-1")
        again = await queue.publish(1, id="order-1")
        assert (again.id, again.duplicate) == (first.id, True)
        batch = [await queue.publish_many([2, 3], sequence=ProducerSeq("job", 1, 10)) for _ in range(2)]
        assert batch[0].ids == batch[1].ids and (batch[0].duplicates, batch[1].duplicates) == (0, 2)
        assert (await queue.read()).values() == [1, 2, 3]

    with_client(carrier, test)


def test_a_message_that_the_queue_refuses_fails_alone(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_payload_bytes=100)
        values = ["a", "b" * 200, "c", "d" * 300]
        results = await asyncio.gather(*(queue.publish(value) for value in values), return_exceptions=True)
        assert [isinstance(result, TooLarge) for result in results] == [False, True, False, True]
        assert (await queue.read()).values() == ["a", "c"]

    with_client(carrier, test)


# -- scheduled ----------------------------------------------------------------------------------------------------


def test_delayed_messages_are_delivered_when_due_and_can_be_rescheduled_or_cancelled(carrier, name):
    async def test(client):
        queue = client.queue(name)
        soon = datetime.now(UTC) + timedelta(seconds=0.4)
        await queue.publish("later", delay=0.5)
        await queue.publish("at", deliver_at=soon)
        moved = await queue.publish("moved", delay=3600)
        gone = await queue.publish("gone", delay=3600)
        await queue.publish("keyed", delay=3600, key="k")
        assert (await queue.reschedule(ids=[moved.id], delay=0.6)).rescheduled == 1
        assert (await queue.cancel(ids=[gone.id])).results == [ItemResult(gone.id, "cancelled")]
        assert (await queue.cancel(key="k")).cancelled == 1
        got = []
        async for message in queue.consume(wait=1.5):
            async with message:
                got.append((message.value, datetime.now(UTC)))
        assert [value for value, _ in got] == ["at", "later", "moved"]
        assert got[0][1] > soon - timedelta(milliseconds=50), (
            "not before its time; the broker's clock has its own start"
        )

    with_client(carrier, test)


# -- consume ------------------------------------------------------------------------------------------------------


def test_failed_message_is_retried_and_then_dead_lettered(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_retries=1, backoff={"kind": "none"})
        await queue.publish("poison")
        attempts = []
        async for message in queue.consume(wait=0.2):
            try:
                async with message:
                    attempts.append(message.attempt)
                    raise RuntimeError("cannot")
            except RuntimeError:
                pass
        assert attempts == [1, 2]
        (dead,) = (await queue.dead_letters()).messages
        assert "RuntimeError: cannot" in str(dead)

    with_client(carrier, test)


def test_a_lease_is_renewed_for_as_long_as_the_handler_runs(carrier, name):
    async def test(client):
        queue = client.queue(name)
        await queue.publish_many(["slow", "buffered"])
        seen = []
        async for message in queue.consume(lease=0.3, wait=0.2):
            async with message:
                seen.append((message.value, message.attempt))
                if message.value == "slow":
                    # Another consumer finds nothing, several leases long.
                    assert [m async for m in queue.consume(wait=1.0)] == []
                assert not message.lease_lost
        assert seen == [("slow", 1), ("buffered", 1)]
        assert (await queue.stats()).depth == 0

    with_client(carrier, test)


def lease_length_ms(explained) -> int:
    """From the answer of `explain` for a message that is leased: the length of its lease as the server has it."""
    (reason,) = [each for each in explained.messages[0].reasons if each["kind"] == "leased"]
    return reason["deadline_at_ms"] - reason["since_at_ms"]


def test_lease_of_the_queue_applies_unless_the_consumer_names_one(carrier, name):
    async def test(client):
        queue = await client.create_queue(f"{name}/inner", lease_ms=77_000)
        await queue.publish_many(range(4))
        async with queue.consume(prefetch=1, wait=5) as messages:
            first = await anext(messages)
            assert lease_length_ms(await queue.explain(first.id)) == 77_000
            await first.ack()
        async with queue.consume_batches(max=1, wait=5) as batches:
            batch = await anext(batches)
            assert lease_length_ms(await queue.explain(batch[0].id)) == 77_000
            await batch.ack()
        async with client.scope(name).consume(prefetch=1, wait=5) as messages:
            third = await anext(messages)
            assert lease_length_ms(await queue.explain(third.id)) == 77_000
            await third.ack()
        async with queue.consume(prefetch=1, lease=12.0, wait=5) as messages:
            last = await anext(messages)
            assert lease_length_ms(await queue.explain(last.id)) == 12_000
            await last.extend()
            events = (await queue.history(last.id)).events
            assert events[-1].deadline_at_ms - events[-1].at_ms == 12_000, "as long as it was leased for"
            await last.ack()

    with_client(carrier, test)


def test_renewal_follows_the_lease_of_the_queue(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, lease_ms=300)
        await queue.publish_many(["slow", "buffered"])

        async def extended(id: str) -> list[int]:
            """The length of each renewal of a message."""
            events = (await queue.history(id)).events
            return [each.deadline_at_ms - each.at_ms for each in events if each.kind == "extended"]

        async def is_renewed_often(id: str) -> bool:
            return len(await extended(id)) >= 3

        async for message in queue.consume(wait=0.1):
            async with message:
                if message.value == "slow":
                    await until(partial(is_renewed_often, message.id))
                assert message.attempt == 1 and not message.lease_lost
        assert set(await extended(message.id)) == {300}, "also while it waited in the buffer"

    with_client(carrier, test)


def test_ack_after_the_lease_ran_out_raises_stale_receipt(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, backoff={"kind": "none"})
        await queue.publish(1)
        late = await anext(client.queue(name).consume(lease=0.1))  # its consumer is gone, so it is not renewed
        second = [m async for m in queue.consume(wait=0.5, prefetch=1) if await m.ack() is None]
        # Mostly the second attempt. A client that stands still for that long still has its first call open, and is
        # given the message once more before that ends.
        assert [m.attempt > late.attempt for m in second] == [True]
        with pytest.raises(StaleReceipt) as caught:
            await late.ack()
        assert caught.value.details["receipts"] == [late.receipt]

    with_client(carrier, test)


def test_groups_read_independently_and_consumers_of_a_group_share(carrier, name):
    async def test(client):
        # Kept: a group begins with its first lease, and would miss what the groups before it have finished by then.
        queue = await client.create_queue(name, retention={"mode": "keep"})
        await queue.publish_many(range(200))
        seen: dict[str, list[int]] = {"billing": [], "audit": []}

        async def work(group):
            async for message in queue.consume(group, prefetch=10, wait=0.3):
                async with message:
                    seen[group].append(message.value)
                    await asyncio.sleep(0)

        await asyncio.gather(*(work(group) for group in ("billing", "billing", "billing", "audit")))
        assert {group: sorted(values) for group, values in seen.items()} == {group: list(range(200)) for group in seen}

    with_client(carrier, test)


def test_handlers_may_run_concurrently(carrier, name):
    async def test(client):
        queue = client.queue(name)
        await queue.publish_many(range(300))
        running_now, most = 0, 0

        async def handle(message):
            nonlocal running_now, most
            async with message:
                running_now += 1
                most = max(most, running_now)
                await asyncio.sleep(0.01)
                running_now -= 1

        limit = asyncio.Semaphore(50)

        async def limited(message):
            async with limit:
                await handle(message)

        async with asyncio.TaskGroup() as group:
            async for message in queue.consume(prefetch=100, wait=0.2):
                group.create_task(limited(message))
        assert most == 50

        async def empty():
            return (await queue.stats()).depth == 0

        await until(empty)

    with_client(carrier, test)


def test_unhandled_messages_are_given_back_by_a_closing_consumer(carrier, name):
    async def test(client):
        queue = client.queue(name)
        await queue.publish_many(range(20))
        async with queue.consume(prefetch=20) as consumer:
            for _ in range(5):
                async with await anext(consumer):
                    pass
        rest = []
        async for message in queue.consume(wait=0.2):
            async with message:
                rest.append(message.value)
        assert sorted(rest) == list(range(5, 20))

    with_client(carrier, test)


def test_acks_made_after_the_consumer_closed_are_sent_before_the_client_closes(carrier, name):
    async def first(client):
        queue = client.queue(name)
        await queue.publish_many([1, 2])
        async with queue.consume(prefetch=1) as consumer:
            message = await anext(consumer)
        async with message:
            pass

    async def then(client):
        assert [m.value async for m in client.queue(name).consume(wait=0.1)] == [2]

    with_client(carrier, first)
    with_client(carrier, then)


def test_blocking_client_sends_acks_made_after_its_consumer_closed(carrier, name):
    with carrier.sync_client() as client:
        queue = client.queue(name)
        queue.publish_many([1, 2])
        with queue.consume(prefetch=1) as consumer:
            message = next(consumer)
        with message:
            pass
    with carrier.sync_client() as client:
        assert [m.value for m in client.queue(name).consume(wait=0.1)] == [2]


def test_a_batch_can_be_settled_in_parts(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, backoff={"kind": "none"})
        await queue.publish_many(range(10))
        rounds = []
        async for batch in queue.consume_batches(wait=0.2):
            rounds.append([m.value for m in batch])
            if len(rounds) == 1:
                await batch[2].reject("bad")
                await batch[3].nack(delay=0)
            await batch.ack()
        assert rounds == [list(range(10)), [3]]

    with_client(carrier, test)


def test_a_queue_that_delivers_at_most_once_needs_no_acks(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, delivery="at_most_once")
        await queue.publish_many(range(3))
        seen = []
        async for message in queue.consume(wait=0.1):
            async with message:
                seen.append((message.value, message.receipt, message.settled))
        assert seen == [(n, None, True) for n in range(3)]

    with_client(carrier, test)


# -- look and administer ------------------------------------------------------------------------------------------


def test_the_log_can_be_read_and_followed(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, retention={"mode": "keep"})
        await queue.publish_many(range(10))
        assert [m.value for m in await queue.peek(max=3)] == [0, 1, 2]
        log = await queue.read(offset=4, max=3)
        assert (log.values(), log.next_offset, log.end_offset, log.start_offset) == ([4, 5, 6], 7, 10, 0)
        values, feeder = [], None
        async for batch in queue.follow(offset="earliest", max=4, wait=0.5):
            values += batch.values()
            if len(values) == 10 and feeder is None:
                feeder = asyncio.ensure_future(queue.publish("tail"))
        assert values == [*range(10), "tail"]
        assert len(await queue.read(offset="latest")) == 0

    with_client(carrier, test)


def test_queues_are_administered(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_retries=7)
        assert str(7) in str(await queue.config())
        await queue.configure(max_retries=9)
        assert str(9) in str(await queue.config())
        await queue.publish_many([1, 2])
        assert (await queue.stats()).depth == 2
        assert queue.path in str(await client.queues(prefix=queue.path))
        assert await client.ready() and await client.summary()
        await queue.groups()
        with pytest.raises(Conflict) as caught:
            await queue.purge()
        await queue.purge(confirm=caught.value.details["confirm"])
        assert (await queue.stats()).depth == 0
        with pytest.raises(Conflict) as caught:
            await queue.delete()
        await queue.delete(confirm=caught.value.details["confirm"])
        with pytest.raises(QueueNotFound):
            await queue.stats()

    with_client(carrier, test)


def test_a_transaction_is_all_or_nothing(carrier, name):
    async def test(client):
        queue, out = client.queue(name), client.queue(f"{name}/out")
        await queue.publish_many([1, 2])
        async for message in queue.consume(wait=0.1):
            async with message.transaction() as tx:
                tx.publish(f"{name}/out", {"of": message.value, "text": "ä"}, key="k", headers={"a": "b"})
                tx.publish(f"{name}/out", b"\x00\xff")
            assert [placed.queue for placed in tx.result.messages] == [out.path] * 2
        log = await out.read()
        assert log.values() == [{"of": 1, "text": "ä"}, b"\x00\xff", {"of": 2, "text": "ä"}, b"\x00\xff"]
        assert (log[0].key, log[0].headers) == ("k", {"a": "b"})
        with pytest.raises(StaleReceipt) as caught:
            await client.transact(ack=[message.receipt], publish=[(f"{name}/out", 3)])
        assert caught.value.details["receipts"] == [message.receipt]
        assert len(await out.read()) == 4

    with_client(carrier, test)


def test_schedules_are_kept_and_shown(carrier, name):
    async def test(client):
        plan = name.replace("/", "-")
        await client.schedules.set(plan, name, "0 3 * * *", {"report": "sales"}, timezone="Europe/Berlin", key="k")
        shown = await client.schedules.get(plan)
        assert (shown.cron, shown.timezone, shown.state) == ("0 3 * * *", "Europe/Berlin", "active")
        assert shown.message.payload == {"report": "sales"} and len(shown.next) == 5
        assert (await client.schedules.pause(plan)).state == "paused"
        assert (await client.schedules.resume(plan)).state == "active"
        assert [each.name for each in (await client.schedules.list(prefix=plan)).schedules] == [plan]
        await client.schedules.delete(plan)
        with pytest.raises(NotFound):
            await client.schedules.get(plan)

    with_client(carrier, test)


def test_dead_letters_are_found_brought_back_and_deleted(carrier, name):
    async def test(client):
        queue = client.queue(name)
        await queue.publish_many([{"n": 1}, {"n": 2}], key="k")
        await queue.publish(b"\xff")
        async for batch in queue.consume_batches(wait=0.1):
            for message in batch:
                await message.reject(f"no {message.offset}")
        page = await queue.dead_letters(filter='error ~ "no"')
        assert (page.total, [letter.error for letter in page.messages]) == (3, ["no 0", "no 1", "no 2"])
        first, _, third = page.messages
        assert (first.payload, first.key, first.reason) == ({"n": 1}, "k", "rejected")
        assert third.payload_b64 == "/w=="
        dry = await queue.redrive(ids=[first.id])
        assert (dry.dry_run, dry.count, dry.sample[0].id) == (True, 1, first.id)
        begun = await queue.redrive(ids=[first.id], dry_run=False, rate=1000)
        async for message in queue.consume(wait=5.0):
            await message.ack()
            assert message.id == first.id
            break
        (told,) = await queue.redrives(begun.redrive_id)
        assert (told.redrive_id, told.redriven) == (begun.redrive_id, 1)
        with pytest.raises(Conflict) as caught:
            await queue.delete_dead_letters(filter="")
        assert caught.value.details["would_lose"] == {"dead_letters": 2}
        gone = await queue.delete_dead_letters(filter="", confirm=caught.value.details["confirm"])
        assert gone.deleted == 2

    with_client(carrier, test)


def test_reader_offset_is_stored(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, retention={"mode": "keep"})
        await queue.publish_many(range(10))
        async for batch in queue.follow(client_id="reader", max=4, wait=0.1):
            assert batch
        assert await queue.offsets("reader") == {0: 10}
        assert await queue.keep_offsets("reader", {0: 5}) == {0: 5}
        assert (await queue.read(client_id="reader", max=1)).values() == [5]
        await queue.forget_offsets("reader")
        assert await queue.offsets("reader") == {}

    with_client(carrier, test)


def test_members_of_a_group_share_the_partitions(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, partitions=2)
        await queue.publish_many(range(20), keys=[f"k{n}" for n in range(20)])
        seen = []
        async for message in queue.consume("g", assigned=True, wait=0.3):
            async with message:
                seen.append(message.value)
        assert sorted(seen) == list(range(20))
        (group,) = (await queue.groups()).groups
        assert (group.group, group.lag, group.leased) == ("g", 0, 0)

    with_client(carrier, test)


def test_webhooks_are_kept_and_shown(carrier, name):
    async def test(client):
        await client.create_queue(name)
        made = await client.webhooks.add(name, "https://example.org/hook", paused=True, retry_delays=[1.0, 5.0])
        assert (made.state, made.retry_delays_ms) == ("paused", [1000, 5000]) and made.secret
        changed = await client.webhooks.change(made.id, retry_delays=[], description="by hand")
        assert (changed.retry_delays_ms, changed.description) == ([], "by hand")
        shown = await client.webhooks.get(made.id)
        assert shown.url == "https://example.org/hook" and not shown.secret
        assert (await client.webhooks.list(name)).total == 1
        assert (await client.webhooks.rotate(made.id, overlap=0)).secret != made.secret
        assert (await client.webhooks.attempts(made.id)).attempts == []
        await client.webhooks.delete(made.id)
        with pytest.raises(NotFound):
            await client.webhooks.get(made.id)

    with_client(carrier, test)


def test_a_consumer_that_leaves_while_it_waits_is_given_nothing_any_more(carrier, name):
    async def test(client):
        queue = await client.create_queue(name)
        looked = []

        async def waits():
            looked.append((await queue.autoscale()).waiting_consumers)
            return looked[-1] == 1

        async def left():
            looked.append((await queue.autoscale()).waiting_consumers)
            return looked[-1] == 0

        for _ in range(3):
            async with queue.consume() as consumer:
                waiting = asyncio.create_task(anext(consumer))
                await until(waits)
                waiting.cancel()
                await asyncio.wait({waiting})
            await until(left)
        await queue.publish(1)
        assert [m.attempt async for m in queue.consume(wait=0.0)] == [1]

    with_client(carrier, test)


def test_settings_can_be_changed_and_taken_back(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, ttl_ms=60_000, backoff={"kind": "fixed", "base_ms": 5})
        await queue.configure(ttl_ms=None, fair_share={"enabled": True, "weights": {"a": 2}})
        config = (await queue.config()).config
        assert (config.ttl_ms, config.backoff.base_ms, config.fair_share.weights) == (None, 5, {"a": 2})
        with pytest.raises(InvalidRequest, match="partitions"):
            await queue.configure(partitions=0)
        await queue.configure(backoff={"kind": "steps", "steps_ms": [1_000, 60_000]})
        assert (await queue.config()).config.backoff.steps_ms == [1_000, 60_000]

    with_client(carrier, test)


@pytest.mark.parametrize("prefetch", [1, 20])
def test_an_exclusive_queue_has_one_worker_at_a_time(carrier, name, prefetch):
    async def test(client):
        queue = await client.create_queue(name, exclusive=True, partitions=2)
        await queue.publish_many(list(range(60)), keys=[str(number) for number in range(60)])
        handled, at_work = [], set()

        async def work(worker):
            async with queue.consume(prefetch=prefetch, consumer=worker) as messages:
                async for message in messages:
                    async with message:
                        assert not at_work - {worker}, "another consumer works on it"
                        at_work.add(worker)
                        await asyncio.sleep(0)
                        at_work.discard(worker)
                        handled.append(message.value)
                    if len(handled) == 60:
                        return

        workers = [asyncio.create_task(work(f"worker {number}")) for number in range(3)]
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        for worker in done:
            worker.result()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert sorted(handled) == list(range(60))

    with_client(carrier, test)


def test_messages_are_looked_at_closely(carrier, name):
    async def test(client):
        queue = client.queue(name)
        placed = await queue.publish({"n": 1}, delay=3600, key="k", headers={"h": "v"})
        (why,) = (await queue.explain(placed.id)).messages
        assert (why.id, why.deliverable) == (placed.id, False)
        assert why.reasons[0]["kind"] == "not_due" and isinstance(why.reasons[0]["due_at_ms"], int)
        events = (await queue.history(placed.id)).events
        assert events[0].kind == "published"
        assert (await queue.autoscale()).queue == queue.path
        await queue.publish({"n": 2}, key="k2", headers={"h": "v"})
        (seen,) = await queue.peek()
        assert (seen.value, seen.key, seen.headers) == ({"n": 2}, "k2", {"h": "v"})

    with_client(carrier, test)


def test_errors_are_typed(carrier, name):
    async def test(client):
        with pytest.raises(QueueNotFound):
            await anext(client.queue(name).consume())
        with pytest.raises(InvalidRequest):
            await client.create_queue(name, nonsense=1)
        with pytest.raises(InvalidRequest):
            client.queue("Not A Queue")

    with_client(carrier, test)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_wrong_address_is_reported(scheme):
    words = rf"cannot reach {scheme}://127.0.0.1:9: is `penstock serve` running"

    async def main():
        async with Client(f"{scheme}://127.0.0.1:9") as client:
            with pytest.raises(Unavailable, match=words):
                await client.queue("orders").publish(1)

    asyncio.run(main())
    with penstock.sync.Client(f"{scheme}://127.0.0.1:9") as client, pytest.raises(Unavailable, match=words):
        client.queue("orders").publish(1)


def test_url_of_an_unknown_scheme_is_refused():
    for url in ("ftp://127.0.0.1", "127.0.0.1:7400", "grpc://127.0.0.1/path", "http://"):
        with pytest.raises(InvalidRequest, match=r"not a server address|neither a path"):
            Client(url)


@pytest.mark.parametrize(
    "name_of", ["queues", "summary", "stats", "groups", "config", "explain", "autoscale", "dead_letters"]
)
def test_every_look_has_the_same_shape_over_every_carrier(server, name, name_of):
    """Compares two replies: an absent field equals null; times and rates differ."""

    async def look(url):
        async with Client(url) as client:
            queue = client.queue(name)
            answer = await getattr(client if name_of in ("queues", "summary") else queue, name_of)()
            return shape(msgspec.to_builtins(answer))

    def shape(value):
        if isinstance(value, dict):
            return {name: shape(each) for name, each in value.items() if each is not None}
        if isinstance(value, list):
            return [shape(each) for each in value]
        return "number" if isinstance(value, int | float) and not isinstance(value, bool) else value

    with penstock.sync.Client(server.url) as client:
        queue = client.create_queue(name, partitions=2)
        queue.publish_many([{"n": 1}, {"n": 2}, {"n": 3}])
        with queue.consume(prefetch=1) as messages:
            next(messages).reject("no")
    shapes = [asyncio.run(look(Remote.of(scheme, server).url)) for scheme in SCHEMES]
    assert shapes[1:] == shapes[:1] * (len(shapes) - 1)


# -- the blocking twin --------------------------------------------------------------------------------------------


def test_the_blocking_twin(carrier, name):
    with carrier.sync_client() as client:
        queue = client.queue(name)
        queue.publish({"n": 0}, key="k")
        queue.publish_many(range(1, 2500))
        seen = []
        for message in queue.consume(prefetch=100, wait=0.1):
            with message:
                seen.append(message.value)
            if len(seen) == 500:
                break
        for batch in queue.consume_batches(max=1000, wait=0.1):
            seen += batch.values()
            batch.ack()
        assert seen[0] == {"n": 0} and sorted(seen[1:]) == list(range(1, 2500))
        assert queue.stats().depth == 0
        with pytest.raises(QueueNotFound):
            client.queue(name + "-nowhere").stats()


def test_the_blocking_twin_renews_leases(carrier, name):
    with carrier.sync_client() as client:
        queue = client.queue(name)
        queue.publish_many(["slow", "next"])
        seen = []
        for message in queue.consume(lease=0.3, wait=0.1):
            with message:
                seen.append((message.value, message.attempt))
                if message.value == "slow":
                    assert list(queue.consume(wait=1.0)) == []
        assert seen == [("slow", 1), ("next", 1)]


def test_blocking_consumer_takes_the_lease_of_the_queue(carrier, name):
    with carrier.sync_client() as client:
        queue = client.create_queue(f"{name}/inner", lease_ms=77_000)
        queue.publish_many(range(3))
        with queue.consume(prefetch=1, wait=5) as messages:
            first = next(messages)
            assert lease_length_ms(queue.explain(first.id)) == 77_000
            first.ack()
        with queue.consume_batches(max=1, wait=5) as batches:
            batch = next(batches)
            assert lease_length_ms(queue.explain(batch[0].id)) == 77_000
            batch.ack()
        with client.scope(name).consume(prefetch=1, wait=5) as messages:
            third = next(messages)
            assert lease_length_ms(queue.explain(third.id)) == 77_000
            third.ack()
