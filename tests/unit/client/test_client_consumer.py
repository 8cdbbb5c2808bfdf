"""Consuming over a real socket: how many round trips, which acks travel when, what is renewed, what is given back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging

import pytest
from client_fake import Hangup, error_reply, run_with_broker
from patience import until

from penstock.client import Client
from penstock.errors import InvalidRequest, PenstockError, QueueNotFound, StaleReceipt, Unavailable


def acks_in(requests) -> list[str]:
    """Every receipt that was acked, in the order of the calls."""
    field = {"/v1/lease": "ack", "/v1/ack": "receipts"}
    return [
        receipt
        for request in requests
        if request.path in field
        for receipt in request.json().get(field[request.path], [])
    ]


async def publish(client, count: int, first: int = 0) -> None:
    await client.queue("orders").publish_many(range(first, first + count))


# -- messages ---------------------------------------------------------------------------------------------------


def test_message_is_acked_on_success_and_nacked_on_exception():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 3)
            seen = []
            async for message in client.queue("orders").consume(wait=0.05):
                try:
                    async with message:
                        seen.append((message.value, message.attempt))
                        if seen == [(0, 1), (1, 1)]:
                            raise ValueError("not today")
                except ValueError:
                    pass
            assert seen == [(0, 1), (1, 1), (2, 1), (1, 2)]
        assert broker.state == ["acked"] * 3 and broker.errors == ["ValueError: not today"]

    run_with_broker(test)


def test_a_fast_consumer_needs_one_round_trip_per_refill():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 100)
            async for message in client.queue("orders").consume(prefetch=20, wait=0.05):
                async with message:
                    pass
        assert broker.state == ["acked"] * 100
        # 20 at first, then 10 each time half of the buffer is used, and a few calls around the end. On a machine that
        # is busy with something else an ack may run out of patience and go alone, but never one per message.
        assert server.paths().count("/v1/lease") <= 1 + 8 + 4
        assert server.paths().count("/v1/ack") <= 1 + 8 + 4

    run_with_broker(test)


def test_a_lease_call_that_carries_acks_does_not_wait_at_the_server():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 10)
            async for message in client.queue("orders").consume(prefetch=4, wait=0.05):
                async with message:
                    pass
        leases = [request.json() for request in server.requests if request.path == "/v1/lease"]
        assert all(lease["wait_ms"] == 0 for lease in leases if "ack" in lease)
        assert any(lease["wait_ms"] > 0 for lease in leases)

    run_with_broker(test)


def test_acks_of_handlers_that_finish_together_share_a_call():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 50)
            finish = asyncio.Event()

            async def handle(message):
                async with message:
                    await finish.wait()

            tasks = []
            async for message in client.queue("orders").consume(prefetch=50, wait=0.02):
                tasks.append(asyncio.ensure_future(handle(message)))
            assert not acks_in(server.requests)
            finish.set()
            await asyncio.gather(*tasks)
            await until(lambda: broker.state == ["acked"] * 50)
            assert [receipt.rpartition(".")[2] for receipt in acks_in(server.requests)] == ["0-49"]

    run_with_broker(test)


def test_an_awaited_ack_is_durable_when_it_returns():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 4)
            async for message in client.queue("orders").consume(prefetch=2, wait=0.02):
                await message.ack()
                assert broker.state[message.offset] == "acked" and message.settled
                await message.ack()  # once is enough
        assert broker.state == ["acked"] * 4 and len(acks_in(server.requests)) == 4

    run_with_broker(test)


def test_nack_and_reject_return_the_status_of_the_message():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 2)
            consumer = client.queue("orders").consume(wait=0.02)
            first, second = await anext(consumer), await anext(consumer)
            assert await second.reject("never") == "dead_lettered"
            assert await first.nack(delay=1.5, error="later") == "retrying"
            nack = next(request.json() for request in server.requests if request.path == "/v1/nack")
            assert (nack["delay_ms"], nack["error"]) == (1500, "later")
            await consumer.aclose()
        assert broker.errors[:2] == ["never", "later"]

    run_with_broker(test)


def test_settling_inside_the_block_wins_over_the_block():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 1)
            async for message in client.queue("orders").consume(wait=0.02):
                async with message:
                    await message.reject("hopeless")
        assert broker.state == ["dead"] and not acks_in(server.requests)

    run_with_broker(test)


def test_a_cancelled_handler_gives_its_message_back_at_once():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 1)
            consumer = client.queue("orders").consume(prefetch=1, wait=1)
            message = await anext(consumer)

            async def handle():
                async with message:
                    await asyncio.Event().wait()

            task = asyncio.ensure_future(handle())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            nack = next(request.json() for request in server.requests if request.path == "/v1/nack")
            assert nack["delay_ms"] == 0 and "cancelled" in nack["error"]
            await consumer.aclose()

    run_with_broker(test)


def test_stale_ack_raises_if_awaited_and_warns_if_handed_over(caplog):
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 2)
            consumer = client.queue("orders").consume(prefetch=2, wait=0.02)
            first, second = await anext(consumer), await anext(consumer)
            broker.end_leases()
            with pytest.raises(StaleReceipt) as caught:
                await first.ack()
            assert caught.value.details == {"receipts": [first.receipt]}
            async with second:
                pass
            await consumer.aclose()

    with caplog.at_level(logging.WARNING, "penstock.client"):
        run_with_broker(test)
    assert "1 of 1 messages were no longer leased" in caplog.text


def test_a_stale_receipt_after_a_lost_answer_means_that_the_first_ack_counted():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 1)
            consumer = client.queue("orders").consume(prefetch=1, wait=0.02)
            message = await anext(consumer)
            lost = iter([True])

            async def lose_answer(request):
                if request.path in ("/v1/ack", "/v1/lease") and next(lost, False):
                    raise Hangup

            broker.after = lose_answer
            await message.ack()
            assert broker.state == ["acked"] and len(acks_in(server.requests)) == 2
            await consumer.aclose()

    run_with_broker(test)


def test_an_ack_that_failed_can_be_repeated():
    async def test(broker, server):
        async with Client(server.url, retry_for=0) as client:
            await publish(client, 1)
            consumer = client.queue("orders").consume(prefetch=1, wait=0.02)
            message = await anext(consumer)

            async def refuse(request):
                return error_reply("unavailable", 503) if request.path in ("/v1/ack", "/v1/lease") else None

            broker.before = refuse
            with pytest.raises(PenstockError):
                await message.ack()
            assert not message.settled
            broker.before = None
            await message.ack()
            assert broker.state == ["acked"]
            await consumer.aclose()

    run_with_broker(test)


def test_failed_ack_that_was_handed_over_is_raised_by_the_loop():
    async def test(broker, server):
        async with Client(server.url, retry_for=0) as client:
            await publish(client, 2)

            async def refuse(request):
                return error_reply("unavailable", 503) if acks_in([request]) else None

            broker.before = refuse
            with pytest.raises(Unavailable):
                async for message in client.queue("orders").consume(prefetch=2, wait=1):
                    async with message:
                        pass
            broker.before = None
        assert broker.state == ["leased"] * 2

    run_with_broker(test)


def test_nothing_is_left_to_do_for_a_consumer_that_was_closed():
    def planned() -> list[asyncio.TimerHandle]:
        return [
            handle
            for handle in asyncio.get_running_loop()._scheduled
            if not handle.cancelled() and "penstock.client" in str(getattr(handle._callback, "__module__", ""))
        ]

    async def test(broker, server):
        async with Client(server.url) as client:
            for _ in range(3):
                await publish(client, 1)
                async with client.queue("orders").consume_batches(wait=0.05) as batches:
                    async for batch in batches:
                        async with batch:
                            assert planned(), "its lease is renewed"
                        break
            gc.collect()
            assert not planned()

    run_with_broker(test)


# -- leases -----------------------------------------------------------------------------------------------------


def test_leases_are_renewed_in_the_buffer_in_the_loop_and_in_the_block():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 5)
            consumer = client.queue("orders").consume(prefetch=5, lease=0.2, wait=5)
            held = await anext(consumer)
            await held.__aenter__()
            dropped = await anext(consumer)
            current = await anext(consumer)
            extended = lambda: [r.json()["receipts"] for r in server.requests if r.path == "/v1/extend"]  # noqa: E731
            await until(lambda: len(extended()) >= 2)
            prefix = held.receipt.rpartition(".")[0] + "."
            assert extended()[0] == [f"{prefix}0", f"{prefix}2-4"]
            assert dropped.receipt not in str(extended())
            await held.__aexit__(None, None, None)
            await current.ack()
            await consumer.aclose()
        assert broker.state == ["acked", "leased", "acked", "ready", "ready"]

    run_with_broker(test)


def test_lease_length_is_sent_only_if_the_caller_names_one():
    async def test(broker, server):
        broker.lease_ms = 200
        async with Client(server.url) as client:
            await publish(client, 2)
            queue = client.queue("orders")
            async for message in queue.consume(prefetch=1, wait=0.02):
                async with message:
                    await message.extend()
                    await until(lambda: server.paths().count("/v1/extend") >= 3)
                break
            async for _ in queue.consume(lease=40.0, wait=0.02):
                break
        leases = [request.json().get("lease_ms") for request in server.requests if request.path == "/v1/lease"]
        assert set(leases[:1]) == {None} and set(leases[-1:]) == {40_000}
        extends = [request.json()["lease_ms"] for request in server.requests if request.path == "/v1/extend"]
        assert set(extends) == {200}, "for as long as the server leased it"

    run_with_broker(test)


def test_leases_of_different_lengths_are_each_renewed_in_time():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 2)
            consumer = client.queue("orders").consume(prefetch=1, wait=5)
            broker.lease_ms = 60_000
            long = await anext(consumer)
            await long.__aenter__()
            broker.lease_ms = 200
            short = await anext(consumer)
            extended = lambda: [r.json() for r in server.requests if r.path == "/v1/extend"]  # noqa: E731
            await until(lambda: len(extended()) >= 2)
            assert all(each == {"receipts": [short.receipt], "lease_ms": 200} for each in extended())
            await long.__aexit__(None, None, None)
            await consumer.aclose()

    run_with_broker(test)


def test_lost_messages_in_the_buffer_are_dropped_and_a_handler_sees_lease_lost():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 3)
            consumer = client.queue("orders").consume(prefetch=3, lease=0.1, wait=0.3)
            message = await anext(consumer)
            async with message:
                broker.state = ["acked"] * 3  # another consumer had them
                await until(lambda: message.lease_lost)
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)

    run_with_broker(test)


def test_a_failed_renewal_is_tried_again():
    async def test(broker, server):
        async def refuse(request):
            refused = [r for r in server.requests if r.path == "/v1/extend"]
            return error_reply("unavailable", 503) if request.path == "/v1/extend" and len(refused) == 1 else None

        broker.before = refuse
        async with Client(server.url, retry_for=0) as client:
            await publish(client, 1)
            async for message in client.queue("orders").consume(lease=0.2, wait=0.02):
                async with message:
                    await until(lambda: server.paths().count("/v1/extend") >= 2)
        assert broker.state == ["acked"]

    run_with_broker(test)


# -- the end ----------------------------------------------------------------------------------------------------


def test_leaving_the_loop_sends_acks_and_gives_back_the_rest():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 10)
            async for message in client.queue("orders").consume(prefetch=10):
                async with message:
                    pass
                if message.offset == 3:
                    break
            await until(lambda: broker.state == ["acked"] * 4 + ["ready"] * 6)
        assert len(broker.released) == 1 and broker.released[0].endswith(".4-9") and not broker.errors

    run_with_broker(test)


def test_an_exception_in_the_loop_closes_the_consumer_too():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 2)
            with pytest.raises(ZeroDivisionError):
                async for message in client.queue("orders").consume():
                    async with message:
                        raise ZeroDivisionError
            gc.collect()
        assert broker.state == ["ready", "ready"] and broker.errors[0] == "ZeroDivisionError"

    run_with_broker(test)


def test_a_consumer_is_closed_by_its_block_and_a_long_poll_does_not_hold_it_up():
    async def test(broker, server):
        async with Client(server.url) as client:
            async with client.queue("orders").consume() as consumer:
                waiting = asyncio.ensure_future(anext(consumer))
                await until(lambda: "/v1/lease" in server.paths())
            with pytest.raises(StopAsyncIteration):
                await waiting
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)

    run_with_broker(test)


def test_messages_that_arrive_while_a_long_poll_ends_are_given_back():
    async def test(broker, server):
        async with Client(server.url) as client, Client(server.url) as producer:
            server.when_hung_up = lambda: publish(producer, 3)
            async with client.queue("orders").consume() as consumer:
                waiting = asyncio.ensure_future(anext(consumer))
                await until(lambda: "/v1/lease" in server.paths())
            assert broker.leases == 1 and broker.state == ["ready"] * 3
            with pytest.raises(StopAsyncIteration):
                await waiting

    run_with_broker(test)


def test_waiting_for_a_message_may_be_cancelled_and_resumed():
    async def test(broker, server):
        async with Client(server.url) as client, client.queue("orders").consume() as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.05)
            await publish(client, 1)
            message = await anext(consumer)
            await message.ack()
        assert server.paths().count("/v1/lease") <= 3 and broker.state == ["acked"]

    run_with_broker(test)


def test_the_iteration_ends_when_nothing_came_for_as_long_as_it_may_wait():
    async def test(broker, server):
        loop = asyncio.get_running_loop()
        async with Client(server.url) as client:
            started = loop.time()
            assert [m async for m in client.queue("orders").consume(wait=0.1)] == []
            assert 0.1 <= loop.time() - started < 2

    run_with_broker(test)


def test_a_refused_lease_reaches_the_loop():
    async def test(broker, server):
        async def refuse(request):
            return error_reply("queue_not_found", 404)

        broker.before = refuse
        async with Client(server.url) as client:
            with pytest.raises(QueueNotFound):
                await anext(client.queue("orders").consume())

    run_with_broker(test)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"prefetch": 0}, "prefetch"), ({"lease": 0.01}, "lease"), ({"wait": -1}, "wait"), ({"group": "a b"}, "group"),
     ({"consumer": "x" * 129}, "consumer")],
)  # fmt: skip
def test_terms_that_no_server_would_take_are_refused_at_once(options, field):
    async def test(broker, server):
        async with Client(server.url) as client:
            with pytest.raises(InvalidRequest) as caught:
                client.queue("orders").consume(**options)
            assert caught.value.details["field"] == field
        assert not server.requests

    run_with_broker(test)


# -- batches ----------------------------------------------------------------------------------------------------


def test_a_batch_loop_is_one_call_per_batch():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 100)
            sizes = []
            async for batch in client.queue("orders").consume_batches(max=10, wait=0.02):
                sizes.append(len(batch))
                assert batch.values() == list(range(batch[0].offset, batch[0].offset + 10))
                await batch.ack()
                assert broker.state[batch[0].offset : batch[-1].offset + 1] == ["acked"] * 10
        assert sizes == [10] * 10
        # The first ack goes alone, the last two calls find nothing.
        assert server.paths() == ["/v1/publish", "/v1/lease", "/v1/ack", *["/v1/lease"] * 11]
        assert acks_in(server.requests)[0].endswith(".0-9")

    run_with_broker(test)


def test_a_call_for_more_is_on_its_way_before_the_loop_next_waits():
    """The loop takes buffered messages without waiting, so a task would not start before the buffer is empty."""

    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 40)
            leased = []
            async for message in client.queue("orders").consume(prefetch=20, wait=0.05):
                async with message:
                    leased.append(client._carrier.transport.sends_at_once)
            # With one connection, which is idle until half of the buffer is used, and lent from then on.
            assert leased[:20] == [True] * 9 + [False] * 11
        assert broker.state == ["acked"] * 40

    run_with_broker(test)


def carrying(request) -> bool:
    return request.path == "/v1/lease" and bool(request.json().get("ack"))


def test_consumer_with_an_empty_buffer_sends_the_next_call_behind_the_one_under_way():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 200)
            seen, followed = [], []

            async def hold(request):
                # Answered only when the next call has come behind it; on a busy machine an ack may go alone instead.
                if carrying(request) and len(broker.messages) - len(seen) > 40:
                    before = server.piped
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(until(lambda: server.piped > before), 0.3)
                        followed.append(request)

            broker.before = hold
            async for message in client.queue("orders").consume(prefetch=20, wait=0.05):
                async with message:
                    seen.append(message.value)
            assert seen == list(range(200)) and broker.state == ["acked"] * 200
            assert len(followed) > 3
            asked = [request.json()["max"] for request in server.requests if carrying(request)]
            assert max(asked[:10]) == 10, "two together never ask for more than there is room for"

    run_with_broker(test)


@pytest.mark.parametrize("answer", ["hangup", "unavailable"])
def test_failed_call_is_repeated_before_the_call_behind_it(answer):
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 100)
            seen, failed = [], []

            async def fail(request):
                if carrying(request) and len(failed) < 3:
                    before = server.piped
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(until(lambda: server.piped > before), 0.3)
                        failed.append(request)
                        if answer == "hangup":
                            raise Hangup
                        return error_reply("unavailable", 503)
                return None

            broker.before = fail
            async for message in client.queue("orders").consume(prefetch=20, wait=0.05):
                async with message:
                    seen.append(message.value)
            assert sorted(seen) == list(range(100)) and broker.state == ["acked"] * 100
            assert failed
            if answer == "hangup":
                assert seen == sorted(seen), "both had to be repeated, one after the other"

    run_with_broker(test)


def test_a_call_that_is_refused_for_now_comes_again_after_the_one_behind_it():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 100)
            seen, refused, late = [], [], []

            async def refuse(request):
                if carrying(request) and not refused:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(until(lambda: server.piped > 0), 0.3)
                        refused.append(request)
                        return error_reply("unavailable", 503)
                return None

            async def answer_late(request):
                if carrying(request) and refused and not late:
                    late.append(request)
                    await asyncio.sleep(0.2)  # the first one could have come again meanwhile

            broker.before, broker.after = refuse, answer_late
            async for message in client.queue("orders").consume(prefetch=20, wait=0.05):
                async with message:
                    seen.append(message.value)
            assert seen == list(range(100)) and refused and late

    run_with_broker(test)


def test_messages_of_two_calls_are_given_back_by_a_closing_consumer():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 100)
            leave = asyncio.Event()

            async def hold(request):
                if carrying(request):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(until(lambda: server.piped > 0), 1)
                    await leave.wait()

            broker.before = hold
            consumer = client.queue("orders").consume(prefetch=20)

            async def consume():
                async for message in consumer:
                    async with message:
                        pass

            consuming = asyncio.ensure_future(consume())
            await until(lambda: server.piped > 0)
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
            closing = asyncio.ensure_future(consumer.aclose())
            await asyncio.sleep(0)
            leave.set()
            await closing
            assert broker.state == ["acked"] * 20 + ["ready"] * 80
            assert not client._carrier.transport._carrying and not client._carrier.transport._lent

    run_with_broker(test)


@pytest.mark.parametrize("style", ["quick", "slow", "awaited", "awaited later", "single"])
def test_quick_consumer_that_hands_acks_over_gets_the_next_batch_leased_ahead(style, monkeypatch):
    async def test(broker, server):
        if style == "slow":
            monkeypatch.setattr("penstock.client.consume.session.AHEAD_WITHIN_S", 0.0)
        size = 1 if style == "single" else 10
        async with Client(server.url) as client:
            await publish(client, 6 * size)
            ahead = []
            async with client.queue("orders").consume_batches(max=size, wait=0.05) as batches:
                async for batch in batches:
                    async with batch:
                        # The server, which is in the same loop, gets to hear of what is on its way.
                        await asyncio.sleep(0.005)
                        ahead.append(server.paths().count("/v1/lease") - len(ahead) - 1)
                        if style == "awaited" or (style == "awaited later" and len(ahead) > 1):
                            await batch.ack()
        assert broker.state == ["acked"] * 6 * size
        assert (1 in ahead[1:5]) is (style in ("quick", "awaited later")), ahead
        assert 1 not in ahead[3:] or style == "quick", ahead
        assert ahead[0] == 0, "a consumer that takes one batch and leaves shall not have leased another"

    run_with_broker(test)


def test_consumer_that_takes_one_batch_or_message_has_leased_nothing_more():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 10)
            async for batch in client.queue("orders").consume_batches(max=4):
                await batch.ack()
                break
            async for message in client.queue("orders").consume(prefetch=1):
                await message.ack()
                break
        assert broker.state == ["acked"] * 5 + ["ready"] * 5 and max(broker.attempts[5:]) == 0

    run_with_broker(test)


def test_a_batch_is_a_sequence_over_several_runs():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 3)
            await client.queue("orders").publish_many([b"\x00", b"\x01"])
            async for batch in client.queue("orders").consume_batches(wait=0.02):
                assert len(batch) == 5 and batch[-1].value == b"\x01" and batch[3].offset == 3
                assert [m.value for m in batch] == batch.values() == [0, 1, 2, b"\x00", b"\x01"]
                assert [m.offset for m in batch[1:4]] == [1, 2, 3]
                assert batch.payloads() == [b"0", b"1", b"2", b"\x00", b"\x01"]
                with pytest.raises(IndexError):
                    batch[5]
                await batch.ack()
        assert broker.state == ["acked"] * 5

    run_with_broker(test)


def test_messages_of_a_batch_can_be_settled_one_by_one():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 5)
            async for batch in client.queue("orders").consume_batches(max=5, wait=0.02):
                await batch[1].reject("bad")
                await batch[3].reject("bad")
                await batch.ack()
                assert batch.settled
        assert broker.state == ["acked", "dead", "acked", "dead", "acked"]
        assert [receipt.rpartition(".")[2] for receipt in acks_in(server.requests)] == ["0", "2", "4"]

    run_with_broker(test)


def test_a_batch_block_acks_or_nacks_the_whole():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 4)
            tries = []
            async for batch in client.queue("orders").consume_batches(max=4, wait=0.05):
                try:
                    async with batch:
                        tries.append([m.attempt for m in batch])
                        if len(tries) == 1:
                            raise ValueError("x")
                except ValueError:
                    pass
        assert tries == [[1] * 4, [2] * 4] and broker.state == ["acked"] * 4

    run_with_broker(test)


def test_the_lease_of_a_batch_is_renewed_while_the_loop_is_at_it():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 3)
            async for batch in client.queue("orders").consume_batches(lease=0.1, wait=0.02):
                await until(lambda: server.paths().count("/v1/extend") >= 2)
                await batch.ack()
        assert broker.state == ["acked"] * 3

    run_with_broker(test)


def test_reading_the_log_leases_nothing():
    async def test(broker, server):
        async with Client(server.url) as client:
            await publish(client, 5)
            log = await client.queue("orders").read(max=2)
            assert (log.values(), log.next_offset, log.end_offset, log.start_offset) == ([0, 1], 2, 5, 0)
            values = []
            async for batch in client.queue("orders").follow(offset=1, max=2, wait=0.0):
                values += batch.values()
            assert values == [1, 2, 3, 4]
        assert broker.state == ["ready"] * 5

    run_with_broker(test)
