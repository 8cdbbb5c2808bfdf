"""Lease and ack; publish, lease and ack together; and their server CPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import Spread
from benchmarks.workloads.run import Run, comparison, failures
from benchmarks.workloads.turns import CycleTurn

LEASE_PEERS = (
    "penstock-http", "penstock-http-ack-in-lease", "penstock-sdk", "penstock-sdk-batches",
    "valkey-always-two-calls", "valkey-always", "valkey-everysec", "nats", "postgres", "rabbitmq", "beanstalkd",
)  # fmt: skip
BULK_PEERS = ("penstock-sdk-batches", "valkey-everysec", "postgres")
CPU_PEERS = ("penstock-http", "penstock-http-ack-in-lease", "valkey-always")
GROWS_MESSAGES = 1_200_000
"""A new journal grows for at least this many messages: 256 MiB. Then its files are reused, and a sync of large commits
is faster."""
GROWS_MARGIN = 200_000
"""After this many further messages the journal has stopped growing."""


async def lease_ack_b100_200B(run: Run) -> list[Row]:
    """One consumer takes 100 messages of 200 B at a time and acks them; the queue was filled before."""
    name = "lease_ack_b100_200B"
    async with run.peers(name, LEASE_PEERS) as (peers, rows):
        turns = {system: CycleTurn(peer, 100, run.pace.seconds, fill_batch=1000) for system, peer in peers.items()}
        cycles, errors = await take_turns(turns, run.pace.rounds)
        rates = {system: [cycle.drain.rate for cycle in each] for system, each in cycles.items()}
        return [*comparison(name, "lease+ack", "msg/s", rates, peers), *rows, *failures(name, errors)]


async def bulk_b1000_200B(run: Run) -> list[Row]:
    """Batches of 1,000 in and out through the SDK, into new files and into grown ones; server CPU for all of it."""
    name = "bulk_b1000_200B"
    async with run.peers(name, BULK_PEERS) as (peers, rows):
        turns = {system: CycleTurn(peer, 1000, run.pace.seconds) for system, peer in peers.items()}
        cycles, errors = await take_turns(turns, 2 * run.pace.rounds)
        published = {system: [cycle.publish.rate for cycle in each] for system, each in cycles.items()}
        drained = {system: [cycle.drain.rate for cycle in each] for system, each in cycles.items()}
        ages = by_age([cycle.publish.messages for cycle in cycles.get("penstock-sdk-batches", ())])
        return [
            *(
                row
                for age, rounds in ages.items()
                for row in comparison(
                    name,
                    f"publish, {age}",
                    "msg/s",
                    {system: each[rounds] for system, each in published.items()},
                    peers,
                )
            ),
            *comparison(name, "lease+ack", "msg/s", drained, peers),
            *(cpu_row(name, system, [cycle.cpu_us for cycle in each]) for system, each in cycles.items()),
            *rows,
            *failures(name, errors),
        ]


async def cpu_b100(run: Run) -> list[Row]:
    """Server CPU per message through JSON at batch 100: publish + lease + ack."""
    name = "cpu_b100"
    async with run.peers(name, CPU_PEERS) as (peers, rows):
        turns = {system: CycleTurn(peer, 100, run.pace.seconds) for system, peer in peers.items()}
        cycles, errors = await take_turns(turns, run.pace.rounds)
        for system, each in cycles.items():
            rows.append(figure(name, "publish cpu", system, "µs/msg", Spread.of([c.publish.cpu_us for c in each])))
            rows.append(figure(name, "lease+ack cpu", system, "µs/msg", Spread.of([c.drain.cpu_us for c in each])))
            rows.append(cpu_row(name, system, [c.cpu_us for c in each]))
        return [*rows, *failures(name, errors)]


def by_age(published: Sequence[int]) -> dict[str, slice]:
    """Rounds in which Penstock's journal grew, and those in which its files were reused; not the one between.

    `published` is the number of messages of each round. Without Penstock, all rounds are of one kind.
    """
    written = list(accumulate(published, initial=0))
    young = sum(end <= GROWS_MESSAGES for end in written[1:])
    grown = sum(begin < GROWS_MESSAGES + GROWS_MARGIN for begin in written[:-1])
    ages = {}
    if young or not published:
        ages["young"] = slice(young or None)
    if grown < len(published):
        ages["grown"] = slice(grown, None)
    return ages


def cpu_row(workload: str, system: str, values: list[float]) -> Row:
    return figure(workload, "publish+lease+ack cpu", system, "µs/msg", Spread.of(values))
