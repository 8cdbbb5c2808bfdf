"""The messages of a lease, read from the log while the commit is being written."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.types import DeliveredRun
from penstock.core import commands
from penstock.core.records import Published
from penstock.ids import receipt_prefix
from penstock.runtime.log import MessageLog


def delivered(
    log: MessageLog, leased: list[commands.LeasedRun], path: str = "", shard: int = 0
) -> list[DeliveredRun]:  # fmt: skip
    """The messages of a lease, read from the log; `path` is their queue's, or empty if each run has its own."""
    runs: list[DeliveredRun] = []
    find: Callable[[int], Published | None]
    record: Published
    queue = partition = -1
    begin = end = 0
    lease_id = -1
    prefix: str | None = None
    deadline: int | None = None
    lease_ms: int | None = None
    for lease in leased:
        first, stop = lease.first, lease.first + lease.count
        if lease.lease != lease_id:
            lease_id, deadline, lease_ms, prefix = lease.lease, None, None, None
            if not lease.settled:
                deadline, lease_ms = lease.deadline, lease.lease_ms
                prefix = receipt_prefix(shard, lease.lease, lease.nonce)
        while first < stop:
            # Offsets that an order skips split one record into many short runs.
            if partition != lease.partition or queue != lease.queue:
                queue, partition, end = lease.queue, lease.partition, 0
                find = log.finder(queue, partition)
            if not begin <= first < end:
                found = find(first)
                if found is None and queue in log.erased:
                    # Erased after it was granted. The lease ends by itself, and the next one drops the message.
                    first += 1
                    continue
                assert found is not None, (
                    f"message {first} of partition {partition} of queue {queue} is leased and not in the log"
                )
                record = found
                begin, end = record.offset, record.offset + record.batch.count
            until, row = min(stop, end), first - begin
            runs.append(
                DeliveredRun(
                    path or lease.path, partition, first, until - first, record.id + row, record.at,
                    record.batch.run(row, row + until - first), lease.attempt, prefix, deadline,
                    lease_ms,
                )
            )  # fmt: skip
            first = until
    return runs
