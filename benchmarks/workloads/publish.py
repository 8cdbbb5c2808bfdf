"""Publishing, in batches and by many single callers. Every reply is sent when the message has the peer's guarantee."""

from __future__ import annotations

from functools import partial

from benchmarks.report import Row
from benchmarks.rounds import take_turns
from benchmarks.workloads.run import Run, comparison, failures
from benchmarks.workloads.turns import publish_by_callers, publish_for

BATCH_PEERS = (
    "penstock-http", "penstock-sdk", "valkey-always", "valkey-everysec", "nats", "nats-always", "postgres", "rabbitmq",
    "beanstalkd",
)  # fmt: skip
CALLER_PEERS = ("penstock-sdk", "valkey-always", "nats-always", "nats")


async def publish_b100_200B(run: Run) -> list[Row]:
    """One client publishes batches of 100 messages of 200 B, one after the other."""
    name = "publish_b100_200B"
    async with run.peers(name, BATCH_PEERS) as (peers, rows):
        turns = {system: partial(publish_for, peer, 100, run.pace.seconds) for system, peer in peers.items()}
        samples, errors = await take_turns(turns, run.pace.rounds)
        rates = {system: [sample.rate for sample in each] for system, each in samples.items()}
        return [*comparison(name, "publish", "msg/s", rates, peers), *rows, *failures(name, errors)]


async def publish_b1_c64(run: Run) -> list[Row]:
    """64 concurrent callers in one client process publish one message of 200 B at a time."""
    return await _by_callers(run, "publish_b1_c64", 64)


async def publish_b1_c256(run: Run) -> list[Row]:
    """256 concurrent callers in one client process publish one message of 200 B at a time."""
    return await _by_callers(run, "publish_b1_c256", 256)


async def _by_callers(run: Run, name: str, callers: int) -> list[Row]:
    async with run.peers(name, CALLER_PEERS) as (peers, rows):
        turns = {system: partial(publish_by_callers, peer, callers, run.pace.seconds) for system, peer in peers.items()}
        samples, errors = await take_turns(turns, run.pace.rounds)
        rates = {system: [sample.rate for sample in each] for system, each in samples.items()}
        return [*comparison(name, "publish", "msg/s", rates, peers), *rows, *failures(name, errors)]
