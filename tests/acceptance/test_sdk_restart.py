"""The SDK while its server dies and comes back: nothing that was promised is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter

import pytest
from carriers import SCHEMES, Remote
from http_server import Server

import penstock.sync
from penstock import Client, Unavailable


class Phoenix:
    """A server that can be killed and started again on the same port and data."""

    def __init__(self, path, scheme):
        self._path = path / "data"
        self._server = Server(self._path)
        self.url = Remote.of(scheme, self._server).url
        self._port = self._server.port
        self._grpc = self._server.grpc

    def crash(self) -> None:
        self._server.kill()

    def stop(self) -> None:
        assert self._server.terminate(signal.SIGTERM) == 0

    def start(self) -> None:
        self._server = Server(self._path, "--listen", f"127.0.0.1:{self._port}", "--grpc", self._grpc)

    def stand_still(self) -> None:
        self._server.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._server.process.send_signal(signal.SIGCONT)

    async def crash_and_return(self) -> None:
        await asyncio.to_thread(self.crash)
        await asyncio.to_thread(self.start)


@pytest.fixture(params=SCHEMES)
def phoenix(request, tmp_path):
    server = Phoenix(tmp_path, request.param)
    yield server
    server.crash()


def run(phoenix, test) -> None:
    async def main() -> None:
        async with Client(phoenix.url) as client:
            await asyncio.wait_for(test(client), 60)

    asyncio.run(main())


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


async def everything(queue) -> list[int]:
    return [value async for batch in queue.follow(max=10_000, wait=0.0) for value in batch.values()]


def test_publishers_that_go_on_through_crashes_lose_and_repeat_nothing(phoenix):
    async def test(client):
        queue = await client.create_queue("orders", retention={"mode": "keep"})
        published: list[int] = []
        stop = asyncio.Event()

        async def publisher(first):
            for number in range(first, 10**9, 100):
                if stop.is_set():
                    return
                await queue.publish(number)
                published.append(number)

        async def bulk_publisher():
            first = 10**9
            while not stop.is_set():
                await queue.publish_many(range(first, first + 500))
                published.extend(range(first, first + 500))
                first += 500

        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(publisher(number))
            group.create_task(bulk_publisher())
            for _ in range(3):
                before = len(published)
                await until(lambda more=before + 3000: len(published) >= more)
                await phoenix.crash_and_return()
            stop.set()
        stored = await everything(queue)
        assert Counter(stored) == Counter(published)
        ours = [number for number in stored if number < 10**9]
        for first in range(16):
            assert [n for n in ours if n % 100 == first] == sorted(n for n in ours if n % 100 == first)

    run(phoenix, test)


def test_consumers_that_go_on_through_crashes_handle_everything_and_settle_it_once(phoenix):
    async def test(client):
        queue = client.queue("orders")
        await queue.publish_many(range(20_000))
        handled: Counter[int] = Counter()

        async def batches():
            async for batch in queue.consume_batches(max=100, wait=3.0):
                handled.update(batch.values())
                await batch.ack()

        async def messages():
            async for message in queue.consume(prefetch=50, wait=3.0):
                async with message:
                    handled[message.value] += 1

        async with asyncio.TaskGroup() as group:
            for work in (batches, messages):
                group.create_task(work())
            for share in (2000, 8000):
                await until(lambda share=share: len(handled) >= share)
                await phoenix.crash_and_return()
        # Messages that were in flight at the crash stay leased until their lease expires.
        assert len(handled) >= 20_000 - 2 * (100 + 50) * 2
        stats = await queue.stats()
        assert stats.depth == 20_000 - len(handled), "acked means acked, also after a crash"

    run(phoenix, test)


def test_a_long_poll_survives_a_restart(phoenix):
    async def test(client):
        queue = await client.create_queue("orders")
        waiting = asyncio.ensure_future(anext(consumer := queue.consume()))
        await queue.stats()  # answered after the poll was sent
        await asyncio.to_thread(phoenix.stop)
        await asyncio.to_thread(phoenix.start)
        await queue.publish("after")
        message = await waiting
        assert message.value == "after"
        await message.ack()
        await consumer.aclose()

    run(phoenix, test)


def test_a_server_that_stays_away_is_reported_after_the_time_allowed(phoenix):
    async def main():
        async with Client(phoenix.url, retry_for=0.5) as client:
            queue = client.queue("orders")
            await queue.publish(1)
            await asyncio.to_thread(phoenix.crash)
            for call in (queue.publish(2), anext(queue.consume())):
                started = time.monotonic()
                with pytest.raises(Unavailable, match=r"cannot reach|no answer"):
                    await call
                assert time.monotonic() - started < 5

    asyncio.run(main())


def test_blocking_client_survives_a_crash_of_the_server(phoenix):
    with penstock.sync.Client(phoenix.url) as client:
        queue = client.create_queue("orders", retention={"mode": "keep"})
        restart = threading.Thread(target=lambda: (phoenix.crash(), phoenix.start()))
        for number in range(200):
            if number == 100:
                restart.start()
            queue.publish(number)
        restart.join()
        assert [value for batch in queue.follow(wait=0.0) for value in batch.values()] == list(range(200))
        seen = []
        with contextlib.closing(queue.consume_batches(max=50, wait=0.2)) as batches:
            for batch in batches:
                seen += batch.values()
                batch.ack()
        assert seen == list(range(200))


def test_a_server_that_stood_still_for_longer_than_a_lease_takes_nothing_away(phoenix):
    async def test(client):
        queue = client.queue("orders")
        await queue.publish_many(range(3))
        attempts = []

        async def outlast_a_lease() -> None:
            begun = time.monotonic()
            phoenix.stand_still()
            try:
                await until(lambda: time.monotonic() > begun + 1.2)
            finally:
                phoenix.go_on()

        async for message in queue.consume(lease=1.0, prefetch=3, wait=0.2):
            attempts.append((message.value, message.attempt))
            if message.value == 0:
                await outlast_a_lease()
            await message.ack()
        assert attempts == [(0, 1), (1, 1), (2, 1)]

    run(phoenix, test)
