"""A lease that is waited for, by somebody who may not be there any more when it comes."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.broker.types import DeliveredRun
from penstock.core import commands
from penstock.core.records import Published
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


def delivered(loop: ShardLoop, leased: list[commands.LeasedRun], path: str = "") -> list[DeliveredRun]:
    """The messages of a lease, as they lie in the log; all of the queue with this path, or each of its own."""
    runs: list[DeliveredRun] = []
    record: Published | None = None
    place, lease_id, prefix = (0, 0), -1, ""
    for lease in leased:
        stop = lease.first + lease.count
        if lease.lease != lease_id:
            lease_id, prefix = lease.lease, receipt_prefix(0, lease.lease, lease.nonce)
        # What an order leaves out makes many short runs of one record.
        if (
            record is None
            or place != (lease.queue, lease.partition)
            or lease.first < record.offset
            or stop > record.offset + record.batch.count
        ):
            place = (lease.queue, lease.partition)
            stored = _stored(loop, lease)
            record = stored[-1].record
        else:
            stored = [StoredRun(record, lease.first, stop)]
        for source, first, end in stored:
            row = first - source.offset
            runs.append(
                DeliveredRun(
                    path or lease.path, lease.partition, first, end - first, source.id + row, source.at,
                    source.batch.run(row, row + end - first), lease.attempt, None if lease.settled else prefix,
                    None if lease.settled else lease.deadline,
                )
            )  # fmt: skip
    return runs


def _stored(loop: ShardLoop, lease: commands.LeasedRun) -> list[StoredRun]:
    if lease.count == 1:
        one = loop.log.one(lease.queue, lease.partition, lease.first)
        stored = [one] if one is not None else []
    else:
        stored = list(loop.log.runs(lease.queue, lease.partition, lease.first, lease.first + lease.count))
    missing = lease.count - sum([run.stop - run.first for run in stored])
    assert not missing, (
        f"{missing} leased messages of partition {lease.partition} of queue {lease.queue} are not in the log"
    )
    return stored
