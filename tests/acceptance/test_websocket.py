"""The WebSocket protocol of a running server, used with the client of the library `websockets`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import msgspec
import pytest
from http_server import Server, running
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

WITHIN_S = 30


@asynccontextmanager
async def opened(server: Server, **options):
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    async with connect(url, max_size=None, **options) as socket:
        client = Client(socket)
        assert (await client.take("hello"))["ping_ms"] == 30_000
        yield client


class Client:
    def __init__(self, socket):
        self.socket = socket
        self._kept = []

    async def send(self, **frame):
        await self.socket.send(json.dumps(frame))

    async def take(self, kind: str):
        for frame in self._kept:
            if frame["type"] == kind:
                self._kept.remove(frame)
                return frame
        while True:
            frame = json.loads(await self.socket.recv())
            if frame["type"] == kind:
                return frame
            self._kept.append(frame)

    async def messages(self, count: int):
        found = []
        while len(found) < count:
            found += (await self.take("messages"))["messages"]
        return found


def run(story):
    async def whole():
        async with asyncio.timeout(WITHIN_S):
            await story()

    asyncio.run(whole())


@pytest.fixture
def server(tmp_path):
    with running(tmp_path / "data") as server:
        yield server


def values(messages):
    return [message["payload"] for message in messages]


def test_publish_follow_consume_and_ack_on_one_connection(server):
    async def story():
        async with opened(server) as client:
            await client.send(type="publish", id=1, queue="orders", messages=[{"payload": n} for n in range(3)])
            published = await client.take("published")
            assert (published["id"], published["durable"], len(published["messages"])) == (1, True, 3)
            await client.send(type="subscribe", role="reader", queue="orders", offset="earliest", sub="log")
            await client.send(type="subscribe", role="consumer", queue="orders", credit=10, sub="work")
            by_sub = {}
            for _ in range(2):
                frame = await client.take("messages")
                by_sub[frame["sub"]] = frame["messages"]
            assert values(by_sub["log"]) == values(by_sub["work"]) == [0, 1, 2]
            await client.send(type="ack", id=2, receipts=[message["receipt"] for message in by_sub["work"]])
            results = await client.take("results")
            assert {result["status"] for result in results["results"]} == {"acked"}
            server.publish("orders", "by http")
            assert values(await client.messages(1)) == ["by http"]

    run(story)


def test_messages_of_a_killed_consumer_are_retried_before_their_deadline(server):
    server.ask("PUT", "/v1/queues/work", {"backoff": {"kind": "fixed", "base_ms": 1, "jitter": 0}})
    server.publish("work", "poison")

    async def story():
        for attempt in range(1, 5):
            async with opened(server) as client:
                await client.send(type="subscribe", role="consumer", queue="work", credit=1, lease_ms=3_600_000)
                (message,) = await client.messages(1)
                assert message["attempt"] == attempt
                client.socket.transport.abort()

        # max_retries is 3: a message that crashes its consumers becomes a dead letter.
        def given_up():
            return server.ask("GET", "/v1/dlq?queue=work").json["total"] == 1

        await asyncio.to_thread(server.wait_until, given_up)

    run(story)


def test_reader_survives_a_crash_of_the_server(tmp_path):
    async def story():
        first = Server(tmp_path / "data")
        try:
            first.ask("PUT", "/v1/queues/log", {"retention": {"mode": "keep"}})
            async with opened(first) as client:
                await client.send(type="subscribe", role="reader", queue="log")
                await client.take("subscribed")
                await asyncio.to_thread(first.publish, "log", 1, 2)
                frame = await client.take("messages")
                first.kill()
                with pytest.raises(ConnectionClosed):
                    await client.take("messages")
        finally:
            first.kill()
        with running(tmp_path / "data") as second:
            second.publish("log", 3)
            async with opened(second) as client:
                last = frame["messages"][-1]["id"]
                await client.send(type="subscribe", role="reader", queue="log", offset=f"after:{last}", sub="by id")
                refused = await client.take("error")  # a name contains no blanks
                assert refused["error"]["details"] == {"field": "sub"}
                await client.send(type="subscribe", role="reader", queue="log", offset=f"after:{last}", sub="by-id")
                offsets = {"0": frame["next_offset"]}
                await client.send(type="subscribe", role="reader", queue="log", offsets=offsets, sub="by-offset")
                for _ in range(2):
                    assert values((await client.take("messages"))["messages"]) == [3]

    run(story)


def test_sigterm_lets_consumers_finish_and_closes_with_a_reason(server):
    server.publish("work", "held", "free")

    async def story():
        async with opened(server) as client, opened(server) as idle:
            await client.send(type="subscribe", role="consumer", queue="work", credit=1)
            (message,) = await client.messages(1)
            os.kill(server.process.pid, signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                await idle.take("messages")
            assert closed.value.rcvd.code == 1012
            assert (await client.take("bye"))["code"] == 1012
            await client.send(type="ack", receipts=[message["receipt"]])
            assert (await client.take("results"))["results"][0]["status"] == "acked"
            with pytest.raises(ConnectionClosed) as closed:
                await client.take("messages")
            assert closed.value.rcvd.code == 1012
        assert await asyncio.to_thread(server.wait) == 0

    run(story)


def test_msgpack(server):
    async def story():
        async with connect(f"ws://127.0.0.1:{server.port}/v1/ws", subprotocols=["penstock.v1+msgpack"]) as socket:
            hello = msgspec.msgpack.decode(await socket.recv())
            assert hello["protocol"] == "penstock.v1+msgpack"
            frame = {"type": "publish", "id": 1, "queue": "q", "messages": [{"payload": b"\x00\x01"}]}
            await socket.send(msgspec.msgpack.encode(frame))
            assert msgspec.msgpack.decode(await socket.recv())["status"] == 201

    run(story)


def test_other_origins_are_refused(server, tmp_path):
    async def story(port, origin, status):
        try:
            async with connect(f"ws://127.0.0.1:{port}/v1/ws", origin=origin):
                found = 101
        except Exception as refused:
            found = refused.response.status_code
        assert found == status

    run(lambda: story(server.port, "https://evil.example", 403))
    run(lambda: story(server.port, f"http://127.0.0.1:{server.port}", 101))
    with running(
        tmp_path / "other", "--allowed-origin", "http://localhost:8000", "--allowed-origin", "null"
    ) as allowing:
        run(lambda: story(allowing.port, "null", 101))
        run(lambda: story(allowing.port, "http://localhost:8000", 101))
        run(lambda: story(allowing.port, "http://localhost:8001", 403))


def test_many_readers_see_one_message(server):
    server.ask("PUT", "/v1/queues/log", {})

    async def story():
        count = 200
        async with asyncio.timeout(WITHIN_S):
            contexts = [opened(server) for _ in range(count)]
            clients = [await context.__aenter__() for context in contexts]
            for client in clients:
                await client.send(type="subscribe", role="reader", queue="log")
            for client in clients:
                await client.take("subscribed")
            await asyncio.to_thread(server.publish, "log", "to all")
            for client in clients:
                assert values(await client.messages(1)) == ["to all"]
            for context in contexts:
                await context.__aexit__(None, None, None)

        def all_gone():
            return 'penstock_connections{transport="websocket"} 0.0' in server.ask("GET", "/metrics").body.decode()

        await asyncio.to_thread(server.wait_until, all_gone)

    run(story)
