"""A million messages in the queue: their memory, their effect on speed, and a restart."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from benchmarks.payload import payloads
from benchmarks.peers.penstock_sdk import PenstockSdk
from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import ratio
from benchmarks.workloads.run import Run, data_directory, failures
from benchmarks.workloads.turns import Cycle, measured

SYSTEM = "penstock-sdk-batches"
QUEUE = "backlog"
FILL_BATCH = 1_000
BATCH = 100
TURN_MESSAGES = 20_000


async def backlog_1m(run: Run) -> list[Row]:
    """RSS growth with 1,000,000 queued messages of 200 B; speed against an empty queue, in turns; restart times."""
    name = "backlog_1m"
    if not run.wants(SYSTEM):
        return []
    count = 50_000 if run.quick else 1_000_000
    async with AsyncExitStack() as stack:
        peers = {which: PenstockSdk(batches=True) for which in ("full", "empty")}
        root = stack.enter_context(data_directory())
        for which, peer in peers.items():
            (root / which).mkdir()
            stack.push_async_callback(peer.stop)
            await peer.start(root / which)
            await peer.create(QUEUE)
            await _turn(peer)
        full = peers["full"]
        run.versions |= full.versions()
        rss_before = full.server.rss_bytes()
        contents = payloads(FILL_BATCH)

        async def fill() -> int:
            for _ in range(count // FILL_BATCH):
                await full.publish(QUEUE, contents)
            return count

        filled = await measured(full, fill)
        growth = full.server.rss_bytes() - rss_before
        cycles, errors = await take_turns(
            {which: partial(_turn, peer) for which, peer in peers.items()}, run.pace.rounds
        )
        growth_after = full.server.rss_bytes() - rss_before
        stopping, starting = await full.restart(kill=False)
        _, starting_after_kill = await full.restart(kill=True)
        await _turn(full)
    note = f"{count:,} queued"
    rows = [
        figure(name, "fill", SYSTEM, "msg/s", filled.rate, f"batches of {FILL_BATCH}"),
        figure(name, "rss growth", SYSTEM, "MiB", growth / 2**20, note),
        figure(name, "rss growth after use", SYSTEM, "MiB", growth_after / 2**20, note),
        figure(name, "restart after SIGTERM", SYSTEM, "s", stopping + starting, f"{stopping:.2f} s of it to stop"),
        figure(name, "restart after kill -9", SYSTEM, "s", starting_after_kill, note),
    ]
    if not errors:
        for what, rates in {
            "publish": {which: [cycle.publish.rate for cycle in each] for which, each in cycles.items()},
            "lease+ack": {which: [cycle.drain.rate for cycle in each] for which, each in cycles.items()},
        }.items():
            rows.append(
                figure(name, f"{what} vs empty", SYSTEM, "x", ratio(rates["full"], rates["empty"]), f"batch {BATCH}")
            )
    return [*rows, *failures(name, errors)]


async def _turn(peer: PenstockSdk) -> Cycle:
    """Publish as many messages as are leased, so that the backlog stays the same; the oldest are leased."""
    contents = payloads(BATCH)

    async def publish() -> int:
        for _ in range(TURN_MESSAGES // BATCH):
            await peer.publish(QUEUE, contents)
        return TURN_MESSAGES

    async def drain() -> int:
        await peer.drain(QUEUE, BATCH, TURN_MESSAGES)
        return TURN_MESSAGES

    return Cycle(await measured(peer, publish), await measured(peer, drain))
