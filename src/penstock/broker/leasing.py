"""Leases with their messages, which are read from the log while the commit is being written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.broker.receipts import Claims
from penstock.broker.types import DeliveredRun, LeaseReply
from penstock.core import commands
from penstock.core.records import Published
from penstock.errors import PenstockError
from penstock.ids import receipt_prefix
from penstock.pending import PendingReply
from penstock.runtime.loop import ShardLoop
from penstock.wire.delivery import Settled


def lease(
    loop: ShardLoop,
    command: commands.Lease | commands.LeaseScope,
    wait_ms: int,
    ack: Sequence[str],
    path: str,
    generation: Callable[[], int | None],
) -> PendingReply[LeaseReply]:
    """Settle the receipts of `ack`, then lease. `path` is that of the queue; empty for a scope."""
    if not ack:
        return loop.lease(command, wait_ms).then(lambda runs: LeaseReply(delivered(loop, runs, path), (), generation()))
    claims = Claims(ack)
    acked = loop.submit(commands.Ack(claims.claims)).then(claims.results)

    def only_acked(results: Sequence[Settled]) -> LeaseReply:
        return LeaseReply([], results, generation())

    # The results of the acks must be told even if the lease is refused: a client that repeated the acks would only hear
    # that they are stale. The refusal is told to the next lease, which acks nothing.
    try:
        leased = loop.lease(command, wait_ms)
    except PenstockError:
        return acked.then(only_acked)
    return leased.then(
        lambda runs: LeaseReply(delivered(loop, runs, path), acked.prepared, generation()),
        lambda _refusal: only_acked(acked.prepared),
    )


def delivered(loop: ShardLoop, leased: list[commands.LeasedRun], path: str = "") -> list[DeliveredRun]:
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
                prefix = receipt_prefix(0, lease.lease, lease.nonce)
        while first < stop:
            # What an order leaves out makes many short runs of one record.
            if partition != lease.partition or queue != lease.queue:
                queue, partition, end = lease.queue, lease.partition, 0
                find = loop.log.finder(queue, partition)
            if not begin <= first < end:
                found = find(first)
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
