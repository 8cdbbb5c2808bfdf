"""The two gRPC streams, each with one Python client: throughput and server CPU."""

from __future__ import annotations

import time
from functools import partial
from typing import cast

from benchmarks.payload import payloads
from benchmarks.peers import Peer
from benchmarks.peers.penstock_grpc import PenstockGrpc
from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import Sample, Spread
from benchmarks.workloads.run import Run, comparison, failures, new_queue
from benchmarks.workloads.turns import MESSAGES_MAX, CycleTurn, measured

LEASE_PEERS = ("penstock-grpc", "penstock-sdk-grpc", "penstock-sdk-batches-grpc", "valkey-always")
PUBLISH_PEERS = ("penstock-grpc",)
BATCH = 100
STEP = 20
"""Batches between two checks of the clock."""


async def grpc_lease_stream(run: Run) -> list[Row]:
    """One consumer takes up to 100 messages of 200 B at a time and acks them: on a LeaseStream, and by the SDK."""
    name = "grpc_lease_stream"
    async with run.peers(name, LEASE_PEERS) as (peers, rows):
        turns = {system: CycleTurn(peer, BATCH, run.pace.seconds, fill_batch=1000) for system, peer in peers.items()}
        cycles, errors = await take_turns(turns, run.pace.rounds)
        rates = {system: [cycle.drain.rate for cycle in each] for system, each in cycles.items()}
        costs = [
            figure(name, "lease+ack cpu", system, "µs/msg", Spread.of([cycle.drain.cpu_us for cycle in each]))
            for system, each in cycles.items()
        ]
        return [*comparison(name, "lease+ack", "msg/s", rates, peers), *costs, *rows, *failures(name, errors)]


async def grpc_publish_stream(run: Run) -> list[Row]:
    """One producer on a PublishStream: batches of 100 messages of 200 B, eight of them in flight at a time."""
    name = "grpc_publish_stream"
    async with run.peers(name, PUBLISH_PEERS) as (peers, rows):
        turns = {system: partial(_publish_for, peer, run.pace.seconds) for system, peer in peers.items()}
        samples, errors = await take_turns(turns, run.pace.rounds)
        rates = {system: [sample.rate for sample in each] for system, each in samples.items()}
        costs = [
            figure(name, "publish cpu", system, "µs/msg", Spread.of([sample.cpu_us for sample in each]))
            for system, each in samples.items()
        ]
        return [*comparison(name, "publish", "msg/s", rates, peers), *costs, *rows, *failures(name, errors)]


async def _publish_for(peer: Peer, seconds: float) -> Sample:
    queue = new_queue()
    await peer.create(queue)
    contents = payloads(BATCH)

    async def work() -> int:
        sent = 0
        until = time.perf_counter() + seconds
        while time.perf_counter() < until and sent < MESSAGES_MAX:
            await cast(PenstockGrpc, peer).publish_pipelined(queue, contents, STEP)
            sent += STEP * BATCH
        return sent

    sample = await measured(peer, work)
    await peer.drop(queue)
    return sample
