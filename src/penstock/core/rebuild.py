"""Soft state from hard state: after a snapshot was loaded, and after a change that leaves no cache as it was."""

from __future__ import annotations

from penstock.core.order.dispatcher_adapter import close_dispatchers, open_dispatchers
from penstock.core.state import NEVER_MS, Queue, Shard, sessions


def rebuild(shard: Shard) -> None:
    """Every soft field of the shard."""
    shard.deadlines = sorted((run.deadline, lease.id) for lease in shard.leases.values() for run in lease.held)
    shard.timers, shard.overdue, shard.overdue_partitions, shard.overdue_groups = [], [], {}, {}
    shard.alarms, shard.due_schedules = [], {}
    for schedule in shard.schedules.values():
        shard.arm_schedule(schedule)
    shard.webhook_groups = {(hook.spec.queue, hook.spec.group): hook for hook in shard.webhooks.values()}
    for queue in shard.queues.values():
        rebuild_queue(shard, queue)


def end_replay(shard: Shard) -> None:
    """End the replay: build the index of each queue whose order needs one, because leases are decided from here on."""
    shard.replaying = False
    for queue in shard.queues.values():
        if queue.config.indexed:
            rebuild_queue(shard, queue)


def rebuild_queue(shard: Shard, queue: Queue) -> None:
    """The soft fields of one queue. Its entries among the shard's timers may be there twice afterwards; no matter."""
    if shard.replaying and queue.config.indexed:
        close_dispatchers(queue)  # `end_replay` comes back to it
        return
    open_dispatchers(queue)
    for group, membership in queue.memberships.items():
        membership.armed = None
        sessions.arm(shard, queue.number, group)
    for number, partition in queue.partitions.used():
        partition.armed = NEVER_MS
        upcoming = [due for due in (partition.schedule.next_ms(), partition.expiries.next_ms()) if due is not None]
        if partition.overdue or partition.window is not None:
            upcoming.append(shard.now_ms)
        if upcoming:
            shard.arm(min(upcoming), queue.number, number)
        for group in partition.progress:
            shard.rebuild_progress(queue, number, group)
