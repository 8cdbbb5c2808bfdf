"""The passing of time over soft state: what has come due becomes visible to `decide`.

Nothing here is a fact. A delay that is over needs no record, because it follows from the due time and the present time;
a lease or a time to live that ran out does need one, and is only put on the list from which the next tick makes it.
"""

from __future__ import annotations

from heapq import heappop, heappush

from penstock.core.offsets.agenda import Read, unread
from penstock.core.offsets.ranges import RangeSet
from penstock.core.state import NEVER_MS, Partition, Shard, windows
from penstock.core.state.sessions import advance_group


def advance(shard: Shard, now_ms: int, read: Read = unread) -> set[int]:
    """Bring the caches up to `now_ms`; returns the queues in which something may have become ready.

    `read` gets back what of the agendas was written away and is needed now, or soon.

    Afterwards nothing is due at or before `now_ms`, unless `shard.needs_tick()`: then a tick must be decided.
    """
    shard.advanced_ms = max(shard.advanced_ms, now_ms)
    woken: set[int] = set()
    while shard.timers and shard.timers[0][0] <= now_ms:
        _, queue, partition_number, group = heappop(shard.timers)
        if queue not in shard.queues or partition_number >= len(shard.queues[queue].partitions):
            continue
        if shard.changing is not None:
            shard.changing(queue)
        if partition_number < 0:
            advance_group(shard, queue, group, now_ms)
            woken.add(queue)
            continue
        partition = shard.queues[queue].partitions[partition_number]
        if group < 0:
            if _advance_partition(partition, now_ms, read):
                woken.add(queue)
            if partition.overdue:
                shard.overdue_partitions[queue, partition_number] = None
            partition.armed = NEVER_MS
            upcoming = [due for due in (partition.schedule.next_ms(), partition.expiries.next_ms()) if due is not None]
            if partition.window is not None or shard.queues[queue].config.window_ms:
                woken.add(queue)
                opening = windows.opens_at(shard.queues[queue], now_ms)
                upcoming += [] if opening is None else [opening]
            if upcoming:
                shard.arm(min(upcoming), queue, partition_number)
        elif group in partition.progress:
            woken.add(queue)
            progress = partition.progress[group]
            progress.advance_retries(now_ms)
            progress.armed = NEVER_MS
            if progress.waiting:
                shard.arm(progress.waiting[0][0], queue, partition_number, group)
            if shard.queues[queue].config.window_ms:
                windows.arm(shard, shard.queues[queue], now_ms)  # what is ready again may be the oldest
    while shard.deadlines and shard.deadlines[0][0] <= now_ms:
        _, lease_id = heappop(shard.deadlines)
        lease = shard.leases.get(lease_id)
        if lease is None:
            continue
        ends = [shard.grace.end_of(run.deadline) for run in lease.held if run.deadline <= now_ms]
        if any(end <= now_ms for end in ends):
            shard.overdue.append(lease_id)
            woken.add(lease.queue)
        if put_off := [end for end in ends if end > now_ms]:
            heappush(shard.deadlines, (min(put_off), lease_id))
    while shard.alarms and shard.alarms[0][0] <= now_ms:
        due, name = heappop(shard.alarms)
        schedule = shard.schedules.get(name)
        if schedule is not None and not schedule.paused and schedule.next is not None and schedule.wakes_at() == due:
            shard.due_schedules[name] = None
    return woken


def _advance_partition(partition: Partition, now_ms: int, read: Read) -> bool:
    """True if a delay was over."""
    came_due = partition.schedule.take_due(now_ms, read)
    for due, first, count in came_due:
        stop = first + count
        if not partition.moved and partition.scheduled.covers(first, stop):
            _promote(partition, first, stop)
            continue
        for offset in list(partition.scheduled.within(first, stop)):
            if partition.moved.get(offset, due) == due:
                partition.moved.pop(offset, None)
                _promote(partition, offset, offset + 1)
    # A message below the beginning of the log that is not finished was redriven, or is leased: time does not end it.
    over = [
        (max(first, partition.start), first + count)
        for _, first, count in partition.expiries.take_due(now_ms, read)
        if first + count > partition.start
    ]
    if over:
        # In order: a set of ranges grows at its end for nothing.
        partition.overdue = RangeSet(sorted([*partition.overdue, *over]))
        for first, stop in partition.timeless:
            partition.overdue.remove(first, stop)
    return bool(came_due)


def _promote(partition: Partition, first: int, stop: int) -> None:
    partition.scheduled.remove(first, stop)
    for progress in partition.progress.values():
        progress.push_ready(partition, first, stop)
