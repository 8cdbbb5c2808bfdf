"""The time from the start of a publish until a waiting consumer has the message."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.payload import number_of, payload
from benchmarks.peers import Peer
from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import Spread, percentile
from benchmarks.workloads.run import Run, comparison, failures, new_queue

PEERS = ("penstock-http", "penstock-sdk", "valkey-always", "nats-always")
INTERVAL_SECONDS = 0.005


async def latency_e2e(run: Run) -> list[Row]:
    """1 producer, 200 messages/s of 200 B, each durable; 1 consumer that waits (long-poll, blocking read or push)."""
    name = "latency_e2e"
    async with run.peers(name, PEERS) as (peers, rows):
        count = 50 if run.quick else 300
        turns = {system: partial(_one_turn, peer, count) for system, peer in peers.items()}
        latencies, errors = await take_turns(turns, run.pace.rounds)
        medians = {system: [percentile(turn, 50) for turn in each] for system, each in latencies.items()}
        rows = comparison(name, "p50", "ms", medians, peers, "less is better") + rows
        for system, each in latencies.items():
            by_turn = [percentile(turn, 99) for turn in each]
            together = percentile([value for turn in each for value in turn], 99)
            rows.append(
                figure(name, "p99", system, "ms", Spread(together, min(by_turn), max(by_turn)), peers[system].promise)
            )
        return [*rows, *failures(name, errors)]


async def _one_turn(peer: Peer, count: int) -> list[float]:
    """Milliseconds of each message; the messages of one turn are spread evenly over it."""
    queue = new_queue()
    await peer.create(queue)
    sent: dict[int, float] = {}
    latencies: list[float] = []

    def arrived(content: bytes) -> None:
        latencies.append((time.perf_counter() - sent[number_of(content)]) * 1000)

    listening = asyncio.create_task(peer.listen(queue, count, arrived))
    begin = time.perf_counter() + INTERVAL_SECONDS
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number * INTERVAL_SECONDS - time.perf_counter()))
        sent[number] = time.perf_counter()
        await peer.publish_one(queue, payload(number))
    await listening
    await peer.drop(queue)
    return latencies
