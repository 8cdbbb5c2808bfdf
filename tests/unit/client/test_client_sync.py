"""The blocking client over a real socket, and its use from several threads."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from client_fake import Hangup, ThreadedBroker, error_reply, json_reply

from penstock.errors import PenstockError, QueueNotFound, StaleReceipt, Unavailable
from penstock.sync import Assigned, Client, Message


@pytest.fixture
def fake():
    with ThreadedBroker() as running:
        yield running


def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.001)


def count(fake, path: str) -> int:
    return fake.server.paths().count(path)


def test_what_is_published_is_consumed(fake):
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        first = queue.publish({"n": 1}, key="k", headers={"a": "b"})
        many = queue.publish_many([b"\x00", 2])
        assert (first.offset, [m.offset for m in many]) == (0, [1, 2])
        seen = []
        for message in queue.consume(wait=0.02):
            with message:
                seen.append((message.value, message.key, message.headers))
        assert seen == [({"n": 1}, "k", {"a": "b"}), (b"\x00", None, {}), (2, None, {})]
    assert fake.broker.state == ["acked"] * 3


def test_a_message_loop_is_one_call_per_buffer(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(100))
        for message in client.queue("orders").consume(prefetch=20, wait=0.02):
            with message:
                pass
    assert fake.broker.state == ["acked"] * 100
    # On a machine that is busy with something else an ack may run out of patience and go alone.
    assert count(fake, "/v1/lease") <= 8 and count(fake, "/v1/ack") <= 8


def test_a_batch_loop_is_one_call_per_batch(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(30))
        for batch in client.queue("orders").consume_batches(max=10, wait=0.02):
            batch.ack()
            assert [fake.broker.state[m.offset] for m in batch] == ["acked"] * 10
    # The first ack goes alone, the last two calls find nothing.
    assert fake.server.paths() == ["/v1/publish", "/v1/lease", "/v1/ack", *["/v1/lease"] * 4]


def test_an_ack_that_nobody_waits_for_is_sent_soon_even_if_the_next_handler_is_slow(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(3))
        for message in client.queue("orders").consume(wait=0.02):
            with message:
                if message.offset == 1:
                    until(lambda: fake.broker.state[0] == "acked")
    assert fake.broker.state == ["acked"] * 3


def test_leases_are_renewed_while_a_handler_blocks(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(3))
        for message in client.queue("orders").consume(lease=0.2, wait=0.02):
            with message:
                if message.offset == 0:
                    until(lambda: count(fake, "/v1/extend") >= 2)
    extended = [r.json()["receipts"] for r in fake.server.requests if r.path == "/v1/extend"]
    assert extended[0][0].endswith(".0-2")


def test_a_failed_handler_nacks_and_its_exception_goes_on(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish(1)
        attempts = []
        with pytest.raises(ValueError, match="always"):
            for message in client.queue("orders").consume(wait=0.05):
                with message:
                    attempts.append(message.attempt)
                    raise ValueError("always")
    assert attempts == [1] and fake.broker.errors == ["ValueError: always"]


def test_manual_settling_and_stale_receipts(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(4))
        with client.queue("orders").consume(prefetch=4, wait=0.02) as consumer:
            first, second, third, fourth = (next(consumer) for _ in range(4))
            first.ack()
            assert second.reject("bad") == "dead_lettered"
            third.extend(5)
            assert third.nack(delay=0, error="again") == "retrying"
            fake.broker.end_leases()
            with pytest.raises(StaleReceipt):
                fourth.ack()
    assert fake.broker.state[:2] == ["acked", "dead"]


def test_a_stale_ack_that_nobody_waits_for_is_a_warning(fake, caplog):
    with caplog.at_level(logging.WARNING, "penstock.client"), Client(fake.server.url) as client:
        client.queue("orders").publish(1)
        with client.queue("orders").consume(wait=0.02) as consumer, next(consumer):
            fake.broker.end_leases()
    assert "no longer leased" in caplog.text


def test_leaving_the_loop_gives_back_the_rest(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(10))
        for message in client.queue("orders").consume(prefetch=10):
            with message:
                pass
            if message.offset == 3:
                break
        assert fake.broker.state == ["acked"] * 4 + ["ready"] * 6


@pytest.mark.parametrize("batches", [False, True])
def test_an_interrupted_loop_gives_back_also_what_it_had_not_begun(fake, batches):
    """Ctrl-C between the message and its `with`: nobody will settle it, so others may have it at once."""
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish_many(range(6))
        with pytest.raises(KeyboardInterrupt), queue.consume_batches(max=3) if batches else queue.consume() as taken:
            with next(taken):
                pass
            next(taken)
            raise KeyboardInterrupt
    done = 3 if batches else 1
    assert fake.broker.state == ["acked"] * done + ["ready"] * (6 - done)


def test_a_generator_around_a_loop_may_be_left_and_its_message_settled_after(fake):
    """Leaving is no interruption."""

    def orders(queue):
        with queue.consume() as messages:
            yield from messages

    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish_many(range(3))
        message = next(orders(queue))  # and the generator is gone
        message.ack()
    assert fake.broker.state == ["acked", "ready", "ready"]


def test_a_loop_that_fails_leaves_what_it_was_handling_leased(fake):
    """It may be settled yet; and a message that kills every handler is to count its attempts."""
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish_many(range(3))
        with pytest.raises(ValueError, match="oops"), queue.consume() as messages:
            next(messages)
            raise ValueError("oops")
    assert fake.broker.state == ["leased", "ready", "ready"]


def test_the_helper_thread_ends_with_the_consumer(fake):
    before = set(threading.enumerate())
    with Client(fake.server.url) as client:
        client.queue("orders").publish(1)
        for message in client.queue("orders").consume(wait=0.02):
            with message:
                assert len(set(threading.enumerate()) - before) == 1
        until(lambda: set(threading.enumerate()) <= before)


def test_a_repeated_publish_is_stored_once(fake):
    lost = iter([True])

    async def lose_answer(request):
        if next(lost, False):
            raise Hangup

    fake.broker.after = lose_answer
    with Client(fake.server.url) as client:
        assert client.queue("orders").publish(1).duplicate
    assert len(fake.broker.messages) == 1 and len(fake.server.requests) == 2


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(fake):
    with Client(fake.server.url, retry_for=0) as client:
        client.queue("orders").publish(1)
        for task in list(fake.server._tasks):
            fake._loop.call_soon_threadsafe(task.cancel)
        until(lambda: not fake.server._tasks)
        client.queue("orders").publish(2)
    assert fake.server.connections == 2 and len(fake.server.requests) == 2


def test_threads_share_a_client(fake):
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        threads = [
            threading.Thread(target=lambda n=n: [queue.publish(n * 100 + i) for i in range(20)]) for n in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(fake.broker.messages) == 100
    assert {b.payload(r) for b, r in fake.broker.messages} == {
        b"%d" % (n * 100 + i) for n in range(5) for i in range(20)
    }


def test_messages_may_be_settled_by_other_threads(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(40))
        threads = []
        for message in client.queue("orders").consume(prefetch=10, wait=0.1):
            threads.append(threading.Thread(target=message.ack))
            threads[-1].start()
        for thread in threads:
            thread.join()
    assert fake.broker.state == ["acked"] * 40


def test_errors_are_typed_and_name_the_cause(fake):
    async def refuse(request):
        return error_reply("queue_not_found", 404)

    fake.broker.before = refuse
    with Client(fake.server.url) as client:
        for call in (client.queue("orders").stats, lambda: next(client.queue("orders").consume())):
            with pytest.raises(QueueNotFound):
                call()
    with pytest.raises(PenstockError, match="closed"):
        client.queue("orders").stats()


def test_a_server_that_is_not_there_is_reported_at_once():
    with ThreadedBroker() as fake:
        url = fake.server.url
    with Client(url) as client, pytest.raises(Unavailable, match="is `penstock serve` running"):
        client.queue("orders").publish(1)


def test_following_the_log(fake):
    with Client(fake.server.url) as client:
        client.queue("orders").publish_many(range(5))
        assert [m.value for batch in client.queue("orders").follow(max=2, wait=0.0) for m in batch] == [0, 1, 2, 3, 4]


def test_values_that_come_slowly_do_not_delay_acks(fake):
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish_many(range(2))
        with queue.consume(wait=0.02) as messages, next(messages):
            pass

        def values():
            until(lambda: fake.broker.state[0] == "acked")  # by the thread of the consumer's timers
            yield 5

        assert queue.publish_many(values())[0].offset == 2


def test_consumer_that_another_thread_closes_gives_back_what_its_call_brings(fake):
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish(0)
        consumer = queue.consume(prefetch=5)
        with next(consumer):
            pass
        rest: list[object] = []
        loop = threading.Thread(target=lambda: rest.extend(consumer))
        loop.start()
        until(lambda: count(fake, "/v1/lease") >= 2 and fake.server.requests[-1].path == "/v1/lease")
        consumer.close()
        queue.publish(1)  # the long poll is answered with it
        loop.join(10)
        assert not loop.is_alive() and rest == []
        until(lambda: fake.broker.state == ["acked", "ready"])


def test_acks_of_an_interrupted_call_are_sent_with_the_next(fake, monkeypatch):
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish_many(range(3))
        with queue.consume(prefetch=1, wait=0.02) as messages:
            with next(messages):
                pass
            with monkeypatch.context() as patched:
                pool = client._carrier.transport

                def interrupted(call):
                    raise KeyboardInterrupt

                patched.setattr(pool, "_exchange", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    next(messages)
            with next(messages):
                pass
    assert fake.broker.state == ["acked", "acked", "ready"]


def test_hooks_of_a_member_may_wait_for_threads_that_settle(fake):
    """As a program does that finishes what it holds before it gives a partition up."""
    seen: list[list[int]] = []

    async def groups(request):
        share = {
            "member": "m", "generation": 1, "assigned": [0], "awaited": [], "giving_up": [], "session_ms": 60_000,
            "heartbeat_ms": 20_000,
        }  # fmt: skip
        if request.path in ("/v1/groups/join", "/v1/groups/heartbeat"):
            return json_reply(share)
        return json_reply({"left": True}) if request.path == "/v1/groups/leave" else None

    fake.broker.before = groups
    with Client(fake.server.url) as client:
        queue = client.queue("orders")
        queue.publish_many(range(2))
        held: list[Message] = []

        def on_revoked(partitions: list[int]) -> None:
            settling = threading.Thread(target=held[0].ack)
            settling.start()
            settling.join(10)
            assert not settling.is_alive()
            seen.append(partitions)

        options = Assigned(on_revoked=on_revoked)
        with queue.consume(assigned=options, wait=0.02) as messages:
            held.append(next(messages))
    assert seen == [[0]] and fake.broker.state == ["acked", "ready"]
