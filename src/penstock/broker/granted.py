"""A lease that is waited for, by somebody who may not be there any more when it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.broker.types import DeliveredRun
from penstock.core import commands
from penstock.ids import receipt_prefix
from penstock.runtime.log import StoredRun
from penstock.runtime.loop import ShardLoop


async def granted(
    loop: ShardLoop, command: commands.Lease | commands.LeaseScope, wait_ms: int, acked: asyncio.Future[Any] | None
) -> list[commands.LeasedRun]:
    """What is granted, when it and what was acked before it are durable.

    A caller that is cancelled in here leaves nothing behind: what it was granted, and never saw, is given back.
    """
    lease = loop.lease(command, wait_ms)
    try:
        runs: list[commands.LeasedRun] = await lease
        if acked is not None:
            await acked
    except asyncio.CancelledError:
        # Before the lease is durable the loop sees by itself that nobody waits for it.
        if lease.done() and not lease.cancelled() and lease.exception() is None:
            loop.give_back(lease.result())
        raise
    return runs


def delivered(loop: ShardLoop, path: str, lease: commands.LeasedRun) -> list[DeliveredRun]:
    """The messages of a lease, as they lie in the log."""
    receipt = None if lease.settled else receipt_prefix(0, lease.lease, lease.nonce)
    deadline = None if lease.settled else lease.deadline
    runs = []
    found = 0
    stored: Iterable[StoredRun]
    if lease.count == 1:
        one = loop.log.one(lease.queue, lease.partition, lease.first)
        stored = (one,) if one is not None else ()
    else:
        stored = loop.log.runs(lease.queue, lease.partition, lease.first, lease.first + lease.count)
    for record, first, stop in stored:
        row = first - record.offset
        runs.append(
            DeliveredRun(
                path, lease.partition, first, stop - first, record.id + row, record.at,
                record.batch.run(row, row + stop - first), lease.attempt, receipt, deadline,
            )
        )  # fmt: skip
        found += stop - first
    assert found == lease.count, f"{path}: {lease.count - found} leased messages are not in the log"
    return runs
