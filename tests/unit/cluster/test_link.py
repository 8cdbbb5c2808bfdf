"""Calls over a link whose connection ends, or which is not there, and callers that go away."""

from __future__ import annotations

import asyncio
import socket
from functools import wraps

import pytest
from patience import until

from penstock import limits
from penstock.cluster.link import Link, RemoteShard
from penstock.errors import InvalidRequest, QueueNotFound, Unavailable
from penstock.ids import parse_queue
from penstock.placement import home_of
from penstock.testing.inprocess import in_process

HERE, THERE = (
    next(path for path in map(parse_queue, map("q{}".format, range(99))) if home_of(path, 2) == shard)
    for shard in (0, 1)
)
"""Queues of the first and of the second process."""


def over_two_processes(test):
    @wraps(test)
    def wrapped():
        async def run():
            async with in_process(shards=2, processes=2) as box:
                await until(lambda: all(link.is_connected for each in box.processes for link in each.links))
                await test(box)

        asyncio.run(run())

    del wrapped.__wrapped__
    return wrapped


def cut(box) -> None:
    """End all connections. The links open others."""
    for process in box.processes:
        process.owner.close()


@over_two_processes
async def test_change_under_way_when_the_connection_ends_has_an_unknown_outcome(box):
    await box.publish(THERE, b"0")
    publishing = asyncio.ensure_future(box.publish(THERE, b"1"))
    await asyncio.sleep(0)  # sent, and not answered
    cut(box)
    with pytest.raises(Unavailable) as refused:
        await publishing
    assert refused.value.details["outcome"] == "unknown"
    await box.publish(THERE, b"2")
    found = [message.payload for message in await box.lease(THERE, max=10)]
    assert found in ([b"0", b"2"], [b"0", b"1", b"2"])


@over_two_processes
async def test_lease_that_waits_is_made_again_on_the_next_connection(box):
    await box.broker.queues.put(THERE, {})
    waiting = asyncio.ensure_future(box.lease(THERE, wait_ms=60_000))
    await until(lambda: box.hosts[1].loop.waiters.count == 1)
    cut(box)
    await until(lambda: box.hosts[1].loop.waiters.count == 1)
    await box.brokers[1].messages.publish(box.parts(THERE, b"1"))
    (message,) = await waiting
    assert (message.payload, message.attempt) == (b"1", 1)


@over_two_processes
async def test_cancelled_lease_ends_in_the_other_process(box):
    await box.broker.queues.put(THERE, {})
    waiting = asyncio.ensure_future(box.lease(THERE, wait_ms=60_000))
    await until(lambda: box.hosts[1].loop.waiters.count == 1)
    waiting.cancel()
    await until(lambda: box.hosts[1].loop.waiters.count == 0)


@over_two_processes
async def test_withdrawn_lease_answers_empty(box):
    await box.broker.queues.put(THERE, {})
    reply = box.broker.messages.lease(THERE, wait_ms=60_000)
    await until(lambda: box.hosts[1].loop.waiters.count == 1)
    reply.withdraw()
    assert (await reply).runs == []


@over_two_processes
async def test_messages_of_a_caller_that_goes_away_behind_the_reply_come_back(box):
    await box.publish(THERE, b"1", b"2")
    reply = box.broker.messages.lease(THERE, max=2)
    await until(reply.done)
    reply.cancel()
    found = await box.lease(THERE, max=2, wait_ms=60_000)
    assert [(message.payload, message.attempt) for message in found] == [(b"1", 1), (b"2", 1)]


@over_two_processes
async def test_errors_of_the_other_process_are_raised_as_they_are(box):
    with pytest.raises(QueueNotFound):
        await box.lease(THERE)
    with pytest.raises(InvalidRequest, match="order"):
        await box.broker.queues.put(THERE, {"order": "random"})


@over_two_processes
async def test_watcher_is_called_after_a_cut_and_goes_on(box):
    await box.broker.queues.put(THERE, {})
    changes = []
    stop = box.broker.log.watch(THERE, changes.append)
    await box.publish(THERE, b"1")
    await until(lambda: changes == [0])
    cut(box)
    await until(lambda: changes == [0, None])  # something may have been missed
    await box.publish(THERE, b"2")
    await until(lambda: changes[2:] == [0])
    stop()
    await box.publish(THERE, b"3")
    await until(lambda: not box.hosts[1].loop.watchers._by_queue)
    assert changes == [0, None, 0]


@over_two_processes
async def test_watcher_of_a_queue_that_does_not_exist_is_called(box):
    changes, errors = [], []
    box.broker.log.watch(THERE, changes.append)
    box.broker.log.watch_end(THERE, errors.append)
    await until(lambda: changes and errors)
    assert changes == [None] and isinstance(errors[0], QueueNotFound)


def test_call_without_a_connection_is_held_and_then_refused(monkeypatch):
    monkeypatch.setattr(limits, "LINK_HELD_S", 0.2)

    async def story():
        async def connect(protocol):
            raise ConnectionRefusedError

        link = Link(connect, "process 1")
        link.start()
        shard = RemoteShard(0, link)
        with pytest.raises(Unavailable, match="process 1") as refused:
            await shard.call("queues.get", (HERE,), {})
        assert "outcome" not in refused.value.details, "it was not sent"
        waiting = shard.call("queues.get", (HERE,), {})
        await link.close()
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            await shard.call("queues.get", (HERE,), {})

    asyncio.run(story())


def test_call_to_a_process_that_is_not_the_owner_is_refused():
    async def story():
        async with in_process(shards=2, processes=2) as box:
            ours, theirs = socket.socketpair()
            loop = asyncio.get_running_loop()
            await loop.create_connection(box.processes[0].owner.connection, sock=theirs)

            async def connect(protocol):
                await loop.create_connection(protocol, sock=ours)

            link = Link(connect, "process 0")
            link.start()
            for routed in (False, True):
                with pytest.raises(Unavailable, match="served by another process"):
                    await link.call(1, "queues.get", (THERE,), {}, routed=routed)
            await link.close()

    asyncio.run(story())
