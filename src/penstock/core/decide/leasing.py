"""Deciding a lease: the messages that are next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop

import msgspec

from penstock.core import commands, records
from penstock.core.decide.groups import new_group
from penstock.core.decide.rebalancing import seat_of
from penstock.core.decision import Decision, queue_of
from penstock.core.order.exclusive import is_occupied
from penstock.core.order.fifo import OFFSET_MASK, PARTITION_BITS, PARTITION_MASK, partition_and_offset
from penstock.core.records import Record
from penstock.core.state import Partition, Progress, Queue, Shard, windows
from penstock.core.state.members import unknown_member
from penstock.core.state.retries import Retries

Fit = Callable[[int, int, int, int, int], tuple[int, int]]
"""(queue, partition, first, stop, room) -> (how far a reply of `room` bytes may go from `first`, bytes used)."""


def decide_lease(shard: Shard, command: commands.Lease, now_ms: int, fit: Fit | None) -> Decision:
    """Up to `max` messages, oldest offset first, from as many partitions as it takes: one lease per partition."""
    queue = queue_of(shard, command.queue)
    config = queue.config
    made: list[Record] = []
    group = queue.groups.get(command.group)
    if group is None:
        if command.member:
            raise unknown_member(command.member)
        # A group begins with its first lease. The caller asks again.
        return Decision([new_group(queue, command.group, now_ms)], None)
    member = None
    if queue.memberships or command.member:
        member, reach, made = seat_of(queue, group, command, now_ms)
    gate = windows.gate(queue, group, now_ms) if config.window_ms else windows.Gate.OPEN
    if gate is windows.Gate.CLOSED or (config.exclusive and is_occupied(queue, group, now_ms)):
        return Decision([], [])
    if config.indexed:
        ordered = _lease_in_order(shard, queue, group, command, now_ms, fit)
        return Decision(_flushed(ordered.records, gate), ordered.reply)
    settled = config.delivery == "at_most_once"
    lease_ms = command.lease_ms or config.lease_ms
    wanted = command.max
    lease_id = shard.next_lease
    granted: list[commands.LeasedRun] = []
    partitions = queue.partitions
    room = command.bytes_max
    turn, parts = queue.turn, len(partitions)
    for number in [number % parts for number in range(turn, turn + parts)] if member is None else reach:
        partition = partitions[number]
        if queue.growths and any(True for _ in partitions_before(queue, group, number)):
            continue
        runs = _select(partition, partition.progress[group], wanted, now_ms)
        if runs and fit is not None:
            runs, room = _cut_to_fit(partition, partition.progress[group], runs, (queue.number, number), fit, room)
        if not runs:
            continue
        made.append(
            records.Leased(
                now_ms, queue.number, number, group, lease_id, command.nonce, lease_ms, runs, command.consumer, settled
            )
        )
        for at in range(0, len(runs), 3):
            first, count, attempt = runs[at : at + 3]
            wanted -= count
            granted.append(
                commands.LeasedRun(
                    queue.number, number, first, count, attempt, lease_id, command.nonce, now_ms + lease_ms, settled,
                    lease_ms,
                )
            )  # fmt: skip
        lease_id += 1
        if member is None:
            queue.turn = number + 1
        else:
            member.turn = number + 1
        if wanted <= 0 or room <= 0:
            break
    return Decision(_flushed(made, gate) if granted else [], granted)


def _flushed(made: list[Record], gate: windows.Gate) -> list[Record]:
    """Mark the first lease that is taken because the oldest message has waited long enough: it flushes the window."""
    if gate is windows.Gate.FLUSH:
        for at, record in enumerate(made):
            if isinstance(record, records.Leased):
                made[at] = msgspec.structs.replace(record, flush=True)
                break
    return made


def partitions_before(queue: Queue, group: int, number: int) -> Iterator[int]:
    """Older partitions for which one that was added later has to wait: they had messages by then that this group has
    not been given.

    They may have the same keys as what is in the new one, and first deliveries keep the order of their key.
    """
    for ends in queue.growths:
        if number >= len(ends):
            for older, end in enumerate(ends):
                partition = queue.partitions[older]
                progress = partition.progress[group]
                if progress.on_path(partition, progress.cursor) < end:
                    yield older


def _lease_in_order(
    shard: Shard, queue: Queue, group: int, command: commands.Lease, now_ms: int, fit: Fit | None
) -> Decision:
    """Up to `max` messages as the dispatcher orders them, over all partitions: one lease per partition again."""
    room_after = _room_after(fit, queue.number, command.bytes_max) if fit is not None else None
    settled = queue.config.delivery == "at_most_once"
    lease_ms = command.lease_ms or queue.config.lease_ms
    partitions = queue.partitions
    runs: list[list[int]] = []
    """[partition, first offset, count, attempt]: neighbours of one attempt go together."""
    run = [-1, -1, -1, -1]
    retries = Retries()
    """Of the partition of the latest run."""
    for place in queue.dispatchers[group].take(command.max, now_ms, room_after):
        number, offset = place & PARTITION_MASK, place >> PARTITION_BITS & OFFSET_MASK
        if number != run[0]:
            retries = partitions[number].progress[group].retries
        retry = retries.get(offset) if retries else None
        attempt = retry.attempt + 1 if retry is not None else 1
        if offset == run[1] + run[2] and attempt == run[3] and number == run[0]:
            run[2] += 1
        else:
            run = [number, offset, 1, attempt]
            runs.append(run)
    leases: dict[int, records.Leased] = {}
    granted: list[commands.LeasedRun] = []
    deadline = now_ms + lease_ms
    for number, first, count, attempt in runs:
        lease = leases.get(number)
        if lease is None:
            lease = leases[number] = records.Leased(
                now_ms, queue.number, number, group, shard.next_lease + len(leases), command.nonce, lease_ms, [],
                command.consumer, settled,
            )  # fmt: skip
        lease.runs.extend((first, count, attempt))
        granted.append(
            commands.LeasedRun(
                queue.number, number, first, count, attempt, lease.lease, command.nonce, deadline, settled, lease_ms
            )
        )
    return Decision(list(leases.values()), granted)


def _room_after(fit: Fit, queue: int, room: int) -> Callable[[int], int]:
    """A function that returns the room left in a reply after each place that is put into it."""

    def room_after(place: int) -> int:
        nonlocal room
        number, offset = partition_and_offset(place)
        room -= fit(queue, number, offset, offset + 1, room)[1]
        return room

    return room_after


def _select(partition: Partition, progress: Progress, wanted: int, now_ms: int) -> list[int]:
    """Flat (first, count, attempt) triples of what to deliver next, in order of offset."""
    runs: list[int] = []
    cursor, end, ready = progress.cursor, partition.end, progress.ready
    while wanted > 0:
        if partition.delayed.count or progress.done.count or partition.overdue.count:
            cursor = progress.on_path(partition, cursor)
        if ready and ready[0] < cursor:
            offset = heappop(ready)
            if not progress.may_deliver(partition, offset, now_ms) or (runs and offset < runs[-3] + runs[-2]):
                continue
            retry = progress.retries.get(offset)
            count, attempt = 1, retry.attempt + 1 if retry is not None else 1
        elif cursor < end:
            # The cursor's own path: everything up to the next exception is one run.
            offset, attempt = cursor, 1
            count = min(wanted, progress.off_path(partition, cursor) - cursor)
            cursor += count
        else:
            break
        if runs and runs[-3] + runs[-2] == offset and runs[-1] == attempt:
            runs[-2] += count
        else:
            runs += (offset, count, attempt)
        wanted -= count
    return runs


def _cut_to_fit(
    partition: Partition, progress: Progress, runs: list[int], place: tuple[int, int], fit: Fit, room: int
) -> tuple[list[int], int]:
    """Keep what fits into the reply; what does not goes back to where it was found. Also the room that is left."""
    kept: list[int] = []
    for at in range(0, len(runs), 3):
        first, count, attempt = runs[at : at + 3]
        inside = 0
        if room > 0:
            stop, used = fit(*place, first, first + count, room)
            inside = stop - first
            kept += (first, inside, attempt)
            room = room - used if inside == count else 0
        for offset in range(first + inside, first + count):
            if offset < progress.cursor or progress.is_delayed(partition, offset):
                progress.ready.append(offset)
    if room <= 0:
        progress.ready.sort()
    return kept, room
