"""Deciding about messages that no lease holds: cancelled, rescheduled, expired; and the records of a tick."""

from __future__ import annotations

from penstock.core import commands, records
from penstock.core.decide import schedules
from penstock.core.decide.rebalancing import tick as tick_groups
from penstock.core.decide.settling import fail
from penstock.core.decision import Decision, queue_of
from penstock.core.offsets.ranges import RangeSet
from penstock.core.records import Record
from penstock.core.state import Partition, Shard


def _untouchable(partition: Partition, offset: int) -> str | None:
    """Why a message can be neither cancelled nor moved, or None if it can: it is not leased, and no group is done."""
    if not partition.start <= offset < partition.end:
        return "done" if offset < partition.start else "not_found"
    if offset in partition.gone:
        return "done"
    for progress in partition.progress.values():
        if offset in progress.leased:
            return "in_flight"
        # A message that is still scheduled was never delivered: a group that is past it has begun behind it.
        if progress.is_done(offset) and offset not in partition.scheduled:
            return "done"
    return None


def cancel(shard: Shard, command: commands.Cancel, now_ms: int) -> Decision:
    chosen, statuses = _touched(shard, command, "cancelled")
    dedup = queue_of(shard, command.queue).dedup
    freed: dict[int, list[bytes]] = {}
    for (number, offset), status, client_id in zip(command.messages, statuses, command.client_ids, strict=False):
        place = dedup.place_of(client_id) if client_id and status == "cancelled" else None
        # An id that another message has taken since is not this one's any more.
        if place is not None and (place.partition, place.offset) == (number, offset):
            freed.setdefault(number, []).append(client_id)
    return Decision(
        [
            records.Cancelled(now_ms, command.queue, number, ranges.flat(), freed.get(number, []))
            for number, ranges in chosen.items()
        ],
        statuses,
    )


def reschedule(shard: Shard, command: commands.Reschedule, now_ms: int) -> Decision:
    chosen, statuses = _touched(shard, command, "rescheduled")
    return Decision(
        [
            records.Rescheduled(now_ms, command.queue, number, ranges.flat(), command.due)
            for number, ranges in chosen.items()
        ],
        statuses,
    )


def _touched(
    shard: Shard, command: commands.Cancel | commands.Reschedule, status: str
) -> tuple[dict[int, RangeSet], list[str]]:
    """By partition, the named messages that are not leased and that no group is done with; and the result of each."""
    queue = queue_of(shard, command.queue)
    chosen: dict[int, RangeSet] = {}
    statuses = []
    for number, offset in command.messages:
        refused = _untouchable(queue.partitions[number], offset)
        statuses.append(refused or status)
        if refused is None:
            chosen.setdefault(number, RangeSet()).add(offset, offset + 1)
    return chosen, statuses


def tick(shard: Shard, command: commands.Tick, now_ms: int) -> Decision:
    """End the leases and the messages whose time ran out, or fire schedules. `advance` has listed them."""
    made: list[Record] = []
    for lease_id in dict.fromkeys(shard.overdue):
        lease = shard.leases.get(lease_id)
        if lease is not None:
            late = [run for run in lease.held if shard.grace.end_of(run.deadline) <= now_ms]
            fail(shard, lease, late, "lease_expired", "", None, now_ms, made)
    shard.overdue = []
    for queue_number, number in shard.overdue_partitions:
        if queue_number in shard.queues:
            partition = shard.queues[queue_number].partitions[number]
            ranges = _expire(partition, keeps=shard.queues[queue_number].config.retention.mode == "keep")
            if ranges:
                made.append(records.Expired(now_ms, queue_number, number, ranges.flat()))
    shard.overdue_partitions = {}
    if shard.overdue_groups and not made:
        # Otherwise at the next tick, which follows at once: by then the leases above have ended.
        tick_groups(shard, now_ms, made)
    # Again a tick of its own: what is published must see all that was decided before.
    return Decision(made or schedules.fire(shard, command, now_ms), None)


def _expire(partition: Partition, *, keeps: bool) -> RangeSet:
    """Messages past their time to live that are not leased; leased ones stay on the list until they are released.

    Messages that all groups have finished do not expire, unless the queue keeps them for later readers.
    """
    ended, later = RangeSet(), RangeSet()
    for first, stop in partition.overdue:
        for inside, after in partition.gone.gaps(max(first, partition.start), stop):
            ended.add(inside, after)
    for first, stop in partition.timeless:
        ended.remove(first, stop)
    for progress in partition.progress.values():
        for first, stop in list(ended):
            for inside, after in list(progress.leased.within(first, stop)):
                later.add(inside, after)
    for first, stop in later:
        ended.remove(first, stop)
    for first, stop in [] if keeps else list(ended):
        for inside, after in partition.finished(first, stop):
            ended.remove(inside, after)
    partition.overdue = later
    return ended
