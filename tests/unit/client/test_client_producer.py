"""Publishing over a real socket: batching, order, exactly one copy, and errors of one message that fail no other."""

from __future__ import annotations

import asyncio

import pytest
from client_fake import Hangup, error_reply, run_with_broker
from patience import until

from penstock import limits
from penstock.batch import Batch
from penstock.client import Client, ProducerSeq
from penstock.client.publish.frames import KEPT_BYTES_MAX
from penstock.eager import begin
from penstock.errors import InvalidRequest, PenstockError, QueueFull, TooLarge, Unavailable


async def first_request(server) -> None:
    await until(lambda: server.requests)


def stored(broker) -> list[bytes]:
    return [batch.payload(row) for batch, row in broker.messages]


def test_calls_that_run_together_travel_together_in_order():
    async def test(broker, server):
        async with Client(server.url) as client:
            queue = client.queue("orders")
            results = await asyncio.gather(*(queue.publish(n, key=f"k{n}") for n in range(64)))
        assert [Batch.open(request.body).count for request in server.requests] == [64]
        assert stored(broker) == [b"%d" % n for n in range(64)]
        assert [result.offset for result in results] == list(range(64))
        assert len({result.id for result in results}) == 64 and not any(result.duplicate for result in results)

    run_with_broker(test)


def test_a_client_keeps_one_frame_however_many_queues_it_publishes_to():
    async def test(_broker, server):
        async with Client(server.url) as client:
            for number in range(3):
                await client.queue(f"orders-{number}").publish_many([b"%d" % number] * 10)
            kept = client._carrier.kept
            assert kept is not None and Batch.open(kept.data).payloads() == [b"2"] * 10
            await client.queue("orders-0").publish_many([b"x" * 1000] * (KEPT_BYTES_MAX // 1000 + 1))
            assert client._carrier.kept is None, "what is larger than that is not kept"

    run_with_broker(test)


def test_calls_made_while_a_frame_travels_become_the_next_frame():
    async def test(broker, server):
        gate = asyncio.Event()

        async def hold_first(request):
            if len(server.requests) == 1:
                await gate.wait()

        broker.before = hold_first
        async with Client(server.url) as client:
            queue = client.queue("orders")
            first = asyncio.ensure_future(queue.publish(0))
            await first_request(server)
            rest = [asyncio.ensure_future(queue.publish(n)) for n in range(1, 6)]
            await asyncio.sleep(0)
            assert not first.done() and len(server.requests) == 1
            gate.set()
            await asyncio.gather(first, *rest)
        assert [Batch.open(request.body).count for request in server.requests] == [1, 5]
        assert stored(broker) == [b"%d" % n for n in range(6)]

    run_with_broker(test)


@pytest.mark.parametrize("answer_lost", [True, False])
def test_a_repeated_frame_is_the_same_frame_and_stored_once(answer_lost):
    async def test(broker, server):
        failures = iter(range(2))

        async def fail(request):
            if next(failures, None) is not None:
                raise Hangup

        setattr(broker, "after" if answer_lost else "before", fail)
        async with Client(server.url) as client:
            await client.queue("other").publish("reaches the server")
            results = await asyncio.gather(*(client.queue("orders").publish(n) for n in range(3)))
        ours = [request for request in server.requests if request.query["queue"].endswith("orders")]
        assert len({(request.body, tuple(request.query.items())) for request in ours}) == 1
        assert stored(broker).count(b"1") == 1
        assert [result.offset - results[0].offset for result in results] == [0, 1, 2]

    run_with_broker(test)


def test_every_frame_has_its_own_numbers():
    async def test(broker, server):
        async with Client(server.url) as client:
            queue = client.queue("orders")
            await queue.publish_many([1, 2, 3])
            await queue.publish(4)
            await client.queue("other").publish(5)
            await queue.publish_many([6], sequence=ProducerSeq("mine", 7, 40))
        numbers = [(r.query["producer"], r.query["epoch"], r.query["seq"]) for r in server.requests]
        own = numbers[0][0]
        assert numbers == [(own, "1", "0"), (own, "1", "3"), (own, "1", "0"), ("mine", "7", "40")]

    run_with_broker(test)


def test_one_bad_message_fails_alone():
    async def test(broker, server):
        async def refuse(request):
            payloads = Batch.open(request.body).payloads()
            for row, payload in enumerate(payloads):
                if payload in (b'"bad"', b'"worse"'):
                    # Not every refusal says which row it is about.
                    return error_reply("too_large", 413, **({"row": row} if payload == b'"bad"' else {}))
            return None

        broker.before = refuse
        async with Client(server.url) as client:
            queue = client.queue("orders")
            values = [1, "bad", 2, "worse", 3]
            results = await asyncio.gather(*(queue.publish(v) for v in values), return_exceptions=True)
        assert [type(result) is TooLarge for result in results] == [False, True, False, True, False]
        assert stored(broker) == [b"1", b"2", b"3"]

    run_with_broker(test)


def test_refusal_of_a_joined_frame_reaches_all_callers():
    async def test(broker, server):
        async def refuse(request):
            return error_reply("forbidden", 403)

        broker.before = refuse
        async with Client(server.url) as client:
            queue = client.queue("orders")
            results = await asyncio.gather(*(queue.publish(n) for n in range(3)), return_exceptions=True)
        assert [result.code for result in results] == ["forbidden"] * 3 and len(server.requests) == 1

    run_with_broker(test)


def test_many_are_sent_in_order_beyond_the_limits_of_a_frame():
    async def test(broker, server):
        count = 2 * limits.BATCH_MESSAGES_MAX + 5
        async with Client(server.url) as client:
            published = await client.queue("orders").publish_many(range(count))
        assert len(server.requests) == 3 and len(published) == count
        assert stored(broker) == [b"%d" % n for n in range(count)]
        assert published[-1].offset == count - 1 and len(set(published.ids)) == count

    run_with_broker(test)


def test_many_are_on_their_way_before_their_caller_first_waits():
    async def test(broker, server):
        async with Client(server.url) as client:
            queue, pool = client.queue("orders"), client._carrier.transport
            await queue.publish_many([0])
            begun = begin(queue.publish_many([1]))
            assert [connection.is_busy for connection in pool._lent] == [True]
            # Messages that come meanwhile go behind it, from any task.
            later = [asyncio.ensure_future(queue.publish(2)), asyncio.ensure_future(queue.publish_many([3]))]
            published = await begun
            assert len(published) == 1
            await asyncio.gather(*later)
        assert stored(broker) == [b"0", b"1", b"2", b"3"]
        assert not pool._lent and not pool._carrying

    run_with_broker(test)


def test_cancelled_publish_many_is_stored_all_the_same():
    async def test(broker, server):
        gate = asyncio.Event()

        async def hold(request):
            if request.path == "/v1/publish" and len(server.requests) > 1:
                await gate.wait()

        broker.before = hold
        async with Client(server.url) as client:
            queue = client.queue("orders")
            await queue.publish_many([0])
            caller = asyncio.ensure_future(queue.publish_many([1]))
            await until(lambda: len(server.requests) == 2)
            caller.cancel()
            await asyncio.wait({caller})
            assert caller.cancelled()
            gate.set()
            await queue.publish_many([2])
        assert stored(broker) == [b"0", b"1", b"2"]

    run_with_broker(test)


@pytest.mark.parametrize("many", [True, False])
def test_a_client_can_be_closed_after_everything_was_cancelled(many):
    """As an event loop does it that ends before its time."""

    async def test(broker, server):
        gate = asyncio.Event()

        async def hold(request):
            if request.path == "/v1/publish" and not gate.is_set():
                await gate.wait()

        broker.before = hold
        client = Client(server.url)
        queue = client.queue("orders")
        callers = [
            asyncio.ensure_future(queue.publish_many([n]) if many else queue.publish(n, headers={"n": "x"}))
            for n in range(2)
        ]
        await first_request(server)
        later = asyncio.ensure_future(queue.publish_many([2]))
        await asyncio.sleep(0)
        client._publishers[queue.path]._sender.cancel()
        gate.set()
        async with asyncio.timeout(10):
            await client.aclose()
            assert (await asyncio.gather(callers[0], return_exceptions=True))[0].__class__ is asyncio.CancelledError
            assert len(await later) == 1, "what had not begun is finished"
        assert client._buffer.is_empty

    run_with_broker(test)


def test_publish_is_cancelled_if_its_sender_is_cancelled_before_its_first_step():
    async def test(broker, server):
        client = Client(server.url)
        queue = client.queue("orders")
        await queue.publish_many([0])
        before = client._publishers[queue.path]._sender
        caller = asyncio.ensure_future(queue.publish_many([1]))
        await asyncio.sleep(0)
        assert client._publishers[queue.path]._sender is not before
        client._publishers[queue.path]._sender.cancel()
        async with asyncio.timeout(10):
            await client.aclose()
            assert (await asyncio.gather(caller, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        assert client._buffer.is_empty

    run_with_broker(test)


def test_after_a_cancelled_frame_the_later_ones_of_the_same_call_are_not_sent():
    async def test(broker, server):
        gate = asyncio.Event()

        async def hold(request):
            if request.path == "/v1/publish" and not gate.is_set():
                await gate.wait()
                raise Hangup

        broker.before = hold
        client = Client(server.url)
        queue = client.queue("orders")
        caller = asyncio.ensure_future(queue.publish_many(list(range(2 * limits.BATCH_MESSAGES_MAX))))
        await first_request(server)
        await until(lambda: client._publishers[queue.path]._entries)
        client._publishers[queue.path]._sender.cancel()
        async with asyncio.timeout(20):
            await client.aclose()
            gate.set()
            await asyncio.wait({caller})
        assert caller.cancelled() or caller.exception() is not None
        assert stored(broker) == [] and client._buffer.is_empty

    run_with_broker(test)


def test_after_a_failed_frame_the_later_ones_of_the_same_call_are_not_sent():
    async def test(broker, server):
        async def refuse(request):
            return error_reply("invalid_request", 400) if len(server.requests) == 2 else None

        broker.before = refuse
        async with Client(server.url) as client:
            queue = client.queue("orders")
            with pytest.raises(InvalidRequest):
                await queue.publish_many(range(4 * limits.BATCH_MESSAGES_MAX))
            await queue.publish("the lane goes on")
        assert len(server.requests) == 3
        assert len(broker.messages) == limits.BATCH_MESSAGES_MAX + 1

    run_with_broker(test)


def test_a_value_that_is_not_json_fails_before_anything_is_sent():
    async def test(broker, server):
        async with Client(server.url) as client:
            with pytest.raises(TypeError):
                await client.queue("orders").publish(object())
            with pytest.raises(TypeError):
                await client.queue("orders").publish_many([1, object()])
            assert len(await client.queue("orders").publish_many([])) == 0
        assert not server.requests

    run_with_broker(test)


def test_backpressure_is_waited_for_and_then_raised():
    async def test(broker, server):
        async def full(request):
            return error_reply("queue_full", 429, retry_after="0.05")

        broker.before = full
        async with Client(server.url, retry_for=0.2) as client:
            with pytest.raises(QueueFull):
                await client.queue("orders").publish(1)
        assert len(server.requests) > 1

    run_with_broker(test)


def test_a_cancelled_caller_does_not_disturb_the_others():
    async def test(broker, server):
        async with Client(server.url) as client:
            queue = client.queue("orders")
            tasks = [asyncio.ensure_future(queue.publish(n)) for n in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError) and results[2].offset == 2
        assert stored(broker) == [b"0", b"1", b"2"]

    run_with_broker(test)


def test_closing_waits_for_publishes_and_acks():
    async def test(broker, server):
        client = Client(server.url)
        pending = asyncio.ensure_future(client.queue("orders").publish(1))
        await asyncio.sleep(0)
        await client.aclose()
        assert (await pending).offset == 0
        with pytest.raises(PenstockError, match="closed"):
            await client.queue("orders").publish(2)

    run_with_broker(test)


def test_a_server_that_is_not_there_is_reported_at_once_and_clearly():
    async def test(broker, server):
        url = server.url
        await server.__aexit__()
        async with Client(url) as client:
            with pytest.raises(Unavailable) as caught:
                await client.queue("orders").publish(1)
        assert str(caught.value) == f"cannot reach {url}: is `penstock serve` running?"

    run_with_broker(test)


def test_missing_answer_is_a_timeout():
    async def test(broker, server):
        async def never(request):
            await asyncio.Event().wait()

        broker.before = never
        async with Client(server.url, timeout=0.05, retry_for=0) as client:
            with pytest.raises(Unavailable, match="no answer"):
                await client.queue("orders").publish(1)

    run_with_broker(test)


def test_something_that_is_not_http_is_recognised():
    async def test(broker, server):
        async def greet(reader, writer):
            writer.write(b"SSH-2.0-something\r\n")
            await reader.read()
            writer.close()

        other = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with other, Client(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}") as client:
            with pytest.raises(PenstockError, match=r"does not answer like a Penstock server|no answer"):
                await asyncio.wait_for(client.queue("orders").publish(1), 5)

    run_with_broker(test)


def test_the_number_of_connections_is_bounded():
    async def test(broker, server):
        async with Client(server.url, connections=3) as client:
            await asyncio.gather(*(client.queue(f"q{n}").publish(n) for n in range(20)))
        assert server.connections <= 3 and len(broker.messages) == 20

    run_with_broker(test)


def test_a_cancelled_wait_for_a_connection_gives_its_turn_on():
    async def test(broker, server):
        gate = asyncio.Event()

        async def hold(request):
            await gate.wait()

        broker.before = hold
        async with Client(server.url, connections=1) as client:
            first = asyncio.ensure_future(client.queue("a").stats())
            await first_request(server)
            waiting = [asyncio.ensure_future(client.queue(f"b{n}").publish(n)) for n in range(3)]
            calls = [asyncio.ensure_future(client.queue("c").peek()) for _ in range(2)]
            await asyncio.sleep(0.01)
            calls[0].cancel()
            first.cancel()
            gate.set()
            results = await asyncio.gather(*waiting)
            calls[1].cancel()
        assert len(results) == 3

    run_with_broker(test)


# -- backpressure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{"buffer_messages": 4}, {"buffer_bytes": 500}])
def test_more_than_the_buffer_holds_waits_and_keeps_its_order(bound):
    async def test(broker, server):
        gate = asyncio.Event()

        async def hold(request):
            await gate.wait()

        broker.before = hold
        async with Client(server.url, **bound) as client:
            queue = client.queue("orders")
            callers = [asyncio.ensure_future(queue.publish(n)) for n in range(20)]
            await first_request(server)
            callers.append(asyncio.ensure_future(queue.publish_many([20, 21])))
            callers[12].cancel()
            await asyncio.sleep(0)
            under_way = client._buffer._messages
            assert 0 < under_way <= bound.get("buffer_messages", 9) and client._buffer._bytes <= 500
            assert len(client._buffer._turns) == 21 - under_way
            gate.set()
            await asyncio.gather(*callers, return_exceptions=True)
            assert client._buffer.is_empty and client._buffer._bytes == 0
        assert stored(broker) == [b"%d" % n for n in range(22) if n != 12], (
            "a publish that was cancelled before its turn sent nothing"
        )

    run_with_broker(test)


def test_closing_waits_for_publishes_that_wait_for_room():
    async def test(broker, server):
        async with Client(server.url, buffer_messages=2) as client:
            callers = [asyncio.ensure_future(client.queue("orders").publish(n)) for n in range(10)]
            await asyncio.sleep(0)
        assert [published.offset for published in await asyncio.gather(*callers)] == list(range(10))

    run_with_broker(test)


def test_frame_larger_than_the_buffer_is_sent_alone():
    async def test(broker, server):
        async with Client(server.url, buffer_bytes=10) as client:
            await asyncio.gather(*(client.queue("orders").publish("x" * 100) for _ in range(3)))
            await client.queue("orders").publish_many(["x" * 100] * 3)
        assert [Batch.open(request.body).count for request in server.requests] == [1, 1, 1, 3]

    run_with_broker(test)


def test_failed_publish_frees_its_room():
    async def test(broker, server):
        async def refuse(request):
            return error_reply("conflict", 409)

        broker.before = refuse
        async with Client(server.url, buffer_messages=2) as client:
            results = await asyncio.gather(
                *(client.queue("orders").publish(n) for n in range(6)),
                client.queue("orders").publish_many([1, 2]),
                return_exceptions=True,
            )
            assert all(isinstance(result, PenstockError) for result in results)
            assert client._buffer.is_empty

    run_with_broker(test)


# -- linger ---------------------------------------------------------------------------------------------------------


def test_with_linger_calls_that_come_one_after_the_other_share_a_frame():
    async def test(broker, server):
        async with Client(server.url, linger=30.0) as client:
            queue = client.queue("orders")
            callers = [asyncio.ensure_future(queue.publish(0))]
            for n in range(1, 5):
                await asyncio.sleep(0.001)
                callers.append(asyncio.ensure_future(queue.publish(n)))
            await asyncio.sleep(0)
            assert server.requests == []
            # Leaving waits for no linger.
        await asyncio.gather(*callers)
        assert [Batch.open(request.body).count for request in server.requests] == [5]

    run_with_broker(test)


def test_linger_ends_by_itself_and_when_a_frame_cannot_grow():
    async def test(broker, server):
        async with Client(server.url, linger=0.01) as client:
            await client.queue("orders").publish(0)
        async with Client(server.url, linger=30.0) as client:
            queue = client.queue("orders")
            single = asyncio.ensure_future(queue.publish(1))
            await asyncio.sleep(0)
            await queue.publish_many([2, 3])
            await single
        assert stored(broker) == [b"0", b"1", b"2", b"3"]

    run_with_broker(test)


def test_settings_that_leave_no_room_are_refused():
    for wrong in ({"buffer_messages": 0}, {"buffer_bytes": 0}, {"linger": -1.0}):
        with pytest.raises(InvalidRequest, match=next(iter(wrong))):
            Client("http://127.0.0.1:9", **wrong)
