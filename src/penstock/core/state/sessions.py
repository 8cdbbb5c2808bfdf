"""Sessions of group members: their timers, and the partitions in which a group holds leases."""

from __future__ import annotations

from heapq import heappush

from penstock.core.state.shard import Queue, Shard


def busy_partitions(queue: Queue, group: int) -> set[int]:
    """Partitions in which this group holds a lease."""
    return {
        number
        for number, partition in enumerate(queue.partitions)
        if (progress := partition.progress.get(group)) is not None and progress.leased
    }


def start_over(shard: Shard, now_ms: int) -> None:
    """A node took the shard: sessions begin again, because no heartbeat was received in between."""
    for queue in shard.queues.values():
        for group, membership in queue.memberships.items():
            membership.start_over(now_ms)
            arm(shard, queue.number, group)


def renew_sessions(shard: Shard, now_ms: int) -> None:
    """The state was read again from its journal, which does not hold the times of heartbeats. Soft."""
    for queue in shard.queues.values():
        for group, membership in queue.memberships.items():
            membership.renew_sessions(now_ms)
            arm(shard, queue.number, group)


def advance_group(shard: Shard, queue: int, group: int, now_ms: int) -> None:
    """Its time has come to be looked at: something is overdue, or heartbeats have moved the time."""
    membership = shard.queues[queue].memberships.get(group)
    if membership is None:
        return
    membership.armed = None
    due = membership.next_ms(shard.grace)
    if due is not None and due <= now_ms:
        shard.overdue_groups[queue, group] = None
    else:
        arm(shard, queue, group)


def arm(shard: Shard, queue: int, group: int) -> None:
    membership = shard.queues[queue].memberships[group]
    due = membership.next_ms(shard.grace)
    if due is not None and (membership.armed is None or due < membership.armed):
        membership.armed = due
        heappush(shard.timers, (due, queue, -1, group))
