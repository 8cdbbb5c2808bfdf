"""WebSockets: the cost of an idle one, the time of a message to a thousand readers, the memory of a stalled one."""

from __future__ import annotations

import asyncio
import time

import msgspec

from benchmarks.payload import number_of, payload
from benchmarks.peers.http_client import HttpConnection
from benchmarks.peers.penstock_http import PenstockHttp
from benchmarks.report import Row, figure
from benchmarks.stats import Spread, percentile, percentile_by_parts
from benchmarks.websocket_client import WebSocketClient, connect, crowd, raise_file_limit
from benchmarks.workloads.run import Run, new_queue

PEER = "penstock-http"


class _Message(msgspec.Struct):
    payload: msgspec.Raw
    receipt: str = ""


class _Page(msgspec.Struct):
    messages: list[_Message]


_decode_page = msgspec.json.Decoder(_Page).decode
STALLED_READERS = 20
_SETTLE_SECONDS = 1.0
_EVICTED_WITHIN_SECONDS = 60.0


async def ws_idle_10k(run: Run) -> list[Row]:
    """10,000 open WebSockets, each following a queue without messages: resident memory of each."""
    name, count = "ws_idle_10k", 1_000 if run.quick else 10_000
    count = min(count, raise_file_limit() - 200)
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockHttp)
        queue = new_queue()
        await peer.create(queue)
        # The cost of the first ones is imports and pools, not connections.
        first = await _readers(peer.server.url, 100, queue)
        rss, cpu = peer.server.rss_bytes(), peer.server.cpu_seconds()
        began = time.perf_counter()
        clients = await _readers(peer.server.url, count - len(first), queue)
        took = time.perf_counter() - began
        await asyncio.sleep(_SETTLE_SECONDS)
        each = (peer.server.rss_bytes() - rss) / len(clients) / 1024
        cpu = (peer.server.cpu_seconds() - cpu) * 1e6 / len(clients)
        for client in (*first, *clients):
            client.transport.abort()
    note = f"{count:,} connections, each with a reader"
    return [
        figure(name, "memory each", PEER, "KiB", each, note),
        figure(name, "opened", PEER, "1/s", len(clients) / took, "client and server on the same machine"),
        figure(name, "server cpu to open one", PEER, "µs", cpu, "handshake and subscribe"),
        *rows,
    ]


async def ws_fanout_1k(run: Run) -> list[Row]:
    """One message to 1,000 readers: from the publish until the last of them has it."""
    name, count = "ws_fanout_1k", 1_000
    raise_file_limit()
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockHttp)
        queue = new_queue()
        await peer.create(queue)
        arrivals: list[float] = []
        all_there = asyncio.Event()

        def arrived(text: bytes) -> None:
            if text.startswith(b'{"type":"messages"'):
                arrivals.append(time.perf_counter())
                if len(arrivals) == count:
                    all_there.set()

        clients = await crowd(peer.server.url, count, lambda _: arrived)
        await _subscribed(clients, queue)
        lasts, medians = [], []
        for number in range(3 if run.quick else 20):
            arrivals.clear()
            all_there.clear()
            published = time.perf_counter()
            await peer.publish_one(queue, payload(number))
            async with asyncio.timeout(30):
                await all_there.wait()
            lasts.append((max(arrivals) - published) * 1000)
            medians.append((percentile(arrivals, 50) - published) * 1000)
        for client in clients:
            client.transport.abort()
    note = f"{count:,} readers in one process of the same machine"
    return [
        figure(name, "last reader", PEER, "ms", Spread.of(lasts), note),
        figure(name, "median reader", PEER, "ms", Spread.of(medians), note),
        *rows,
    ]


async def ws_latency(run: Run) -> list[Row]:
    """1,000 messages a second over one WebSocket, to a reader and to a consumer with acks, each on its own."""
    name, count = "ws_latency", 500 if run.quick else 10_000
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockHttp)
        queue = new_queue()
        await peer.create(queue)
        sent: list[float] = []
        waits: dict[str, list[float]] = {"reader": [], "consumer": []}
        done = asyncio.Event()
        clients: dict[str, WebSocketClient] = {}

        def listen(role: str) -> None:
            def arrived(text: bytes) -> None:
                now = time.perf_counter()
                if not text.startswith(b'{"type":"messages"'):
                    return
                page = _decode_page(text)
                waits[role] += [(now - sent[number_of(bytes(message.payload))]) * 1000 for message in page.messages]
                if role == "consumer":
                    clients[role].send(type="ack", receipts=[message.receipt for message in page.messages])
                if all(len(each) >= count for each in waits.values()):
                    done.set()

            clients[role].arrived = arrived

        for role in waits:
            clients[role] = await connect(peer.server.url)
            listen(role)
        clients["reader"].send(type="subscribe", role="reader", queue=queue)
        clients["consumer"].send(type="subscribe", role="consumer", queue=queue, credit=1000, refill=True)
        producer = await connect(peer.server.url)
        await asyncio.sleep(0.2)
        cpu, began = peer.server.cpu_seconds(), time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / 1000 - time.perf_counter()))
            sent.append(time.perf_counter())
            producer.send(type="publish", queue=queue, messages=[{"payload": msgspec.Raw(payload(number))}])
        async with asyncio.timeout(60):
            await done.wait()
        took, cpu = time.perf_counter() - began, peer.server.cpu_seconds() - cpu
        for client in (*clients.values(), producer):
            client.transport.abort()
    note = f"{count:,} messages at {count / took:,.0f}/s, one publish each, on disk"
    return [
        *(
            figure(name, f"{role} {which}", PEER, "ms", value, note)
            for role, each in waits.items()
            for which, value in {
                "p50": percentile(each, 50),
                "p99": percentile(each, 99),
                "p99 by parts": percentile_by_parts(each, 99),
                "max": max(each),
            }.items()
        ),
        figure(name, "server cpu", PEER, "µs/msg", cpu * 1e6 / count, "publish, read, lease and ack"),
        *rows,
    ]


async def ws_slow_reader(run: Run) -> list[Row]:
    """Readers that never read, beside one that does: their memory, time of eviction, delay of the other."""
    name = "ws_slow_reader"
    batches = 50 if run.quick else 200
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockHttp)
        queue = new_queue()
        await peer.create(queue)
        received = 0

        def arrived(text: bytes) -> None:
            nonlocal received
            received += len(text)

        async def publish_and_read() -> tuple[int, float]:
            """The peak of the server's memory meanwhile, and the slowest batch in milliseconds."""
            most, slowest_ms = 0, 0.0
            for _ in range(batches):
                before, at = received, time.perf_counter()
                await peer.publish(queue, contents)
                while received - before < 100 * 1_000 and time.perf_counter() - at < 30:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                most = max(most, peer.server.rss_bytes())
                slowest_ms = max(slowest_ms, (time.perf_counter() - at) * 1000)
            return most, slowest_ms

        contents = [payload(number, 1_000) for number in range(100)]
        good = await connect(peer.server.url, arrived)
        good.send(type="subscribe", role="reader", queue=queue, offset="latest")
        # The same without them, with one reader of the whole log: the cached part of the log is in memory then.
        await publish_and_read()
        good.send(type="subscribe", role="reader", queue=queue, offset="earliest", sub="again")
        rss, alone_ms = await publish_and_read()
        good.send(type="unsubscribe", sub="again")
        stalled = await crowd(peer.server.url, STALLED_READERS, lambda _: lambda _: None)
        began = time.perf_counter()
        for client in stalled:
            client.send(type="subscribe", role="reader", queue=queue, offset="earliest")
            client.transport.pause_reading()
        most, beside_ms = await publish_and_read()
        evicted = await _evictions(peer, began)
        for client in (*stalled, good):
            client.transport.abort()
    note = f"{STALLED_READERS} that never read, {batches * 100:,} messages of 1,000 B meanwhile"
    return [
        figure(name, "memory each", PEER, "MiB", max(0, most - rss) / STALLED_READERS / 2**20, note),
        figure(name, "evicted after", PEER, "s", evicted, note),
        figure(name, "slowest batch to the other", PEER, "ms", beside_ms, f"{alone_ms:.0f} ms without them"),
        *rows,
    ]


async def _evictions(peer: PenstockHttp, began: float) -> float:
    """Seconds until the last of them was evicted, by the server's own count."""
    connection = HttpConnection(peer.server.url)
    while time.perf_counter() - began < _EVICTED_WITHIN_SECONDS:
        for line in connection.request(b"GET", b"/metrics").decode().splitlines():
            name, _, value = line.partition(" ")
            if name == 'penstock_websocket_closed_total{code="4008"}' and float(value) >= STALLED_READERS:
                return time.perf_counter() - began
        await asyncio.sleep(0.1)
    return float("inf")


async def _readers(url: str, count: int, queue: str) -> list[WebSocketClient]:
    clients = await crowd(url, count, lambda _: lambda _: None)
    await _subscribed(clients, queue)
    return clients


async def _subscribed(clients: list[WebSocketClient], queue: str) -> None:
    """All of them are readers at the end of the queue, and have confirmed it."""
    told = 0
    everyone = asyncio.Event()
    for client in clients:
        before = client.arrived

        def arrived(text: bytes, client: WebSocketClient = client, before=before) -> None:  # type: ignore[no-untyped-def]
            nonlocal told
            if text.startswith(b'{"type":"subscribed"'):
                client.arrived = before
                told += 1
                if told == len(clients):
                    everyone.set()

        client.arrived = arrived
        client.send(type="subscribe", role="reader", queue=queue)
    async with asyncio.timeout(120):
        await everyone.wait()
