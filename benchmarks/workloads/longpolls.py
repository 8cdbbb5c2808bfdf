"""Waiting long polls: the cost of each, and that one message wakes one of them."""

from __future__ import annotations

import asyncio
import time
from typing import cast
from urllib.parse import urlsplit

from benchmarks.payload import payload
from benchmarks.peers.penstock_http import PenstockHttp
from benchmarks.report import Row, figure
from benchmarks.stats import Spread
from benchmarks.websocket_client import raise_file_limit
from benchmarks.workloads.run import Run, new_queue

PEER = "penstock-http"
_REQUEST = b"POST /v1/lease HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_BODY = b'{"queue":"%b","wait_ms":60000}'
_SETTLE_SECONDS = 1.0


class _LongPoll(asyncio.Protocol):
    """One request; records when its answer begins."""

    def __init__(self, request: bytes, answered: list[float]):
        self._request = request
        self._answered = answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 200"):
            self._answered.append(time.perf_counter())


async def longpoll_5k(run: Run) -> list[Row]:
    """5,000 parked leases, each on a connection of its own; then one message at a time."""
    name, count = "longpoll_5k", 500 if run.quick else 5_000
    raise_file_limit()
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockHttp)
        queue = new_queue()
        await peer.create(queue)
        answered: list[float] = []
        polls = await _park(peer.server.url, queue, 50, answered)
        await asyncio.sleep(_SETTLE_SECONDS)
        rss = peer.server.rss_bytes()
        polls += await _park(peer.server.url, queue, count - len(polls), answered)
        await asyncio.sleep(_SETTLE_SECONDS)
        each = (peer.server.rss_bytes() - rss) / (count - 50) / 1024
        assert not answered, f"{len(answered)} were answered before there was anything"
        latencies, woken = [], 0
        for number in range(20):
            answered.clear()
            published = time.perf_counter()
            await peer.publish_one(queue, payload(number))
            while not answered:  # noqa: ASYNC110
                await asyncio.sleep(0.0005)
            latencies.append((answered[0] - published) * 1000)
            await asyncio.sleep(0.02)  # any other poll that was woken would have answered by now
            woken = max(woken, len(answered))
        for poll in polls:
            poll.transport.abort()
    note = f"{count:,} parked"
    return [
        figure(name, "memory each", PEER, "KiB", each, note),
        figure(name, "woken by one message", PEER, "", woken, "most, of 20"),
        figure(name, "publish to answer", PEER, "ms", Spread.of(latencies), note),
        *rows,
    ]


async def _park(url: str, queue: str, count: int, answered: list[float]) -> list[_LongPoll]:
    parts, body = urlsplit(url), _BODY % queue.encode()
    request = _REQUEST % (parts.netloc.encode(), len(body), body)
    loop, polls = asyncio.get_running_loop(), []
    for _ in range(count):
        _, poll = await loop.create_connection(lambda: _LongPoll(request, answered), parts.hostname, parts.port)
        polls.append(poll)
    return polls
