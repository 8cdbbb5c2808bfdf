"""(state, command, now) -> Decision(records, reply). May refuse, never changes hard state.

Refusals are raised as the errors of `penstock.errors`; a refused command leaves nothing behind. Selecting messages
may throw away stale entries of soft caches (`state.py`), which is why a decision must be applied before the next one
is asked for; the shard's loop does exactly that.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from typing import Any, NamedTuple

from penstock import limits
from penstock.core import commands, records
from penstock.core.commands import Claim, Command, Outcome
from penstock.core.config import check_change
from penstock.core.publishing import decide_publish
from penstock.core.ranges import RangeSet
from penstock.core.records import Record
from penstock.core.retry import backoff_ms, exhausted
from penstock.core.state import Held, Lease, Partition, Progress, Queue, Shard
from penstock.errors import Conflict, QueueNotFound

Fit = Callable[[int, int, int, int, int], tuple[int, int]]
"""(queue, partition, first, stop, room) -> (how far a reply of `room` bytes may go from `first`, bytes used)."""


LEASED_PAST_EXPIRY_RECHECK_MS = 1_000
"""A message whose time ran out in somebody's hands is looked at again this often until they let go."""


class Decision(NamedTuple):
    records: list[Record]
    reply: Any


def decide(shard: Shard, command: Command, now_ms: int, fit: Fit | None = None) -> Decision:
    if type(command) is commands.Publish:
        return Decision(*decide_publish(shard, command, now_ms))
    if type(command) is commands.Lease:
        return _lease(shard, command, now_ms, fit)
    return _DECIDE[type(command)](shard, command, now_ms)


def _queue(shard: Shard, number: int) -> Queue:
    queue = shard.queues.get(number)
    if queue is None:
        raise QueueNotFound("the queue was deleted meanwhile")
    return queue


# -- queues -----------------------------------------------------------------------------------------------------


def _configure(shard: Shard, command: commands.ConfigureQueue, now_ms: int) -> Decision:
    number = shard.paths.get(command.path)
    if number is not None:
        existing = shard.queues[number]
        if existing.config == command.config:
            return Decision([], number)
        check_change(existing.config, command.config)
    elif len(shard.queues) >= limits.QUEUES_MAX:
        raise Conflict(f"there are {limits.QUEUES_MAX} queues already, which is the limit")
    number = number or shard.next_queue
    return Decision([records.QueueConfigured(now_ms, number, command.path, command.config)], number)


def _delete(shard: Shard, command: commands.DeleteQueue, now_ms: int) -> Decision:
    _queue(shard, command.queue)
    return Decision([records.QueueDeleted(now_ms, command.queue)], None)


def _purge(shard: Shard, command: commands.PurgeQueue, now_ms: int) -> Decision:
    ends = [partition.end for partition in _queue(shard, command.queue).partitions]
    return Decision([records.QueuePurged(now_ms, command.queue, ends)], None)


def _trim(shard: Shard, command: commands.TrimPartition, now_ms: int) -> Decision:
    partition = _queue(shard, command.queue).partitions[command.partition]
    start = min(command.start, partition.end)
    if start <= partition.start:
        return Decision([], partition.start)
    return Decision([records.Trimmed(now_ms, command.queue, command.partition, start)], start)


# -- leases -----------------------------------------------------------------------------------------------------


def _lease(shard: Shard, command: commands.Lease, now_ms: int, fit: Fit | None) -> Decision:
    """Up to `max` messages, oldest offset first, from as many partitions as it takes: one lease per partition."""
    queue = _queue(shard, command.queue)
    config = queue.config
    made: list[Record] = []
    group = queue.groups.get(command.group)
    if group is None:
        return _first_lease(queue, command, now_ms)
    settled = config.delivery == "at_most_once"
    lease_ms = command.lease_ms or config.lease_ms
    wanted = command.max
    lease_id = shard.next_lease
    granted: list[commands.LeasedRun] = []
    partitions = queue.partitions
    turn = queue.turn
    room = limits.LEASE_REPLY_BYTES_MAX
    for step in range(len(partitions)):
        number = (turn + step) % len(partitions)
        partition = partitions[number]
        runs = _select(partition, partition.progress[group], wanted, now_ms)
        if runs and fit is not None:
            runs, room = _cut_to_fit(partition.progress[group], runs, queue.number, number, fit, room)
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
                    queue.number, number, first, count, attempt, lease_id, command.nonce, now_ms + lease_ms, settled
                )
            )
        lease_id += 1
        queue.turn = number + 1
        if wanted <= 0 or room <= 0:
            break
    return Decision(made, granted)


def _first_lease(queue: Queue, command: commands.Lease, now_ms: int) -> Decision:
    """A group begins with its first lease, at the beginning of what is retained. The caller asks again."""
    if len(queue.groups) >= limits.GROUPS_PER_QUEUE_MAX:
        raise Conflict(f"queue {queue.path} has {limits.GROUPS_PER_QUEUE_MAX} groups already, which is the limit")
    number = max(queue.group_names, default=-1) + 1
    starts = [partition.start for partition in queue.partitions]
    return Decision([records.GroupCreated(now_ms, queue.number, number, command.group, starts)], None)


def _select(partition: Partition, progress: Progress, wanted: int, now_ms: int) -> list[int]:
    """Flat (first, count, attempt) triples of what to deliver next, in order of offset."""
    runs: list[int] = []
    cursor, end, ready = progress.cursor, partition.end, progress.ready
    while wanted > 0:
        if progress.skip or progress.done:
            cursor = _past_exceptions(progress, cursor)
        if ready and ready[0] < cursor:
            offset = heappop(ready)
            if not _still_ready(partition, progress, offset, now_ms) or (runs and offset < runs[-3] + runs[-2]):
                continue
            retry = progress.retries.get(offset)
            count, attempt = 1, retry.attempt + 1 if retry is not None else 1
        elif cursor < end:
            # The cursor's own path: everything up to the next exception is one run.
            offset, attempt = cursor, 1
            stop = min(progress.skip.next_start(cursor, end), progress.done.next_start(cursor, end))
            count = min(wanted, stop - cursor)
            cursor += count
        else:
            break
        if runs and runs[-3] + runs[-2] == offset and runs[-1] == attempt:
            runs[-2] += count
        else:
            runs += (offset, count, attempt)
        wanted -= count
    return runs


def _past_exceptions(progress: Progress, cursor: int) -> int:
    """The next offset on the cursor's own path: neither delayed at its publish nor ended before its delivery."""
    while (past := progress.done.past(progress.skip.past(cursor))) != cursor:
        cursor = past
    return cursor


def _still_ready(partition: Partition, progress: Progress, offset: int, now_ms: int) -> bool:
    """Heap entries may be stale: settled, leased, moved to later, or gone since they were put in."""
    if progress.is_done(offset) or offset in progress.leased or offset in partition.scheduled:
        return False
    retry = progress.retries.get(offset)
    return retry is None or retry.due <= now_ms


def _cut_to_fit(
    progress: Progress, runs: list[int], queue: int, partition: int, fit: Fit, room: int
) -> tuple[list[int], int]:
    """Keep what fits into the reply; what does not goes back to where it was found. Also the room that is left."""
    kept: list[int] = []
    for at in range(0, len(runs), 3):
        first, count, attempt = runs[at : at + 3]
        inside = 0
        if room > 0:
            stop, used = fit(queue, partition, first, first + count, room)
            inside = stop - first
            kept += (first, inside, attempt)
            room = room - used if inside == count else 0
        for offset in range(first + inside, first + count):
            if offset < progress.cursor or offset in progress.skip:
                progress.ready.append(offset)
    if room <= 0:
        progress.ready.sort()
    return kept, room


# -- settling ---------------------------------------------------------------------------------------------------


class _Settling:
    """Walks the claims of one command against the leases, so that a message is settled once per command."""

    def __init__(self, shard: Shard):
        self._shard = shard
        self._taken: dict[int, RangeSet] = {}
        self.ranges: dict[int, list[int]] = {}

    def held(self, claim: Claim) -> tuple[Lease | None, list[Held]]:
        """The lease and what of the claim it holds; nothing if the receipt is stale, forged or shown twice."""
        lease = self._shard.leases.get(claim.lease)
        if lease is None or lease.nonce != claim.nonce:
            return None, []
        parts = lease.parts(claim.first, claim.stop)
        taken = self._taken.get(claim.lease)
        if taken is None:
            taken = self._taken[claim.lease] = RangeSet()
        elif taken.overlaps(claim.first, claim.stop):
            parts = [
                Held(first, stop, part.attempt, part.deadline)
                for part in parts
                for first, stop in taken.gaps(part.first, part.stop)
            ]
        for part in parts:
            taken.add(part.first, part.stop)
        return lease, parts


def _outcomes(claim: Claim, parts: list[Outcome]) -> list[Outcome]:
    """The parts of a claim in order, with everything between them stale."""
    outcomes: list[Outcome] = []
    at = claim.first
    for part in parts:
        if at < part.first:
            outcomes.append(Outcome(at, part.first, "stale"))
        if outcomes and outcomes[-1].stop == part.first and outcomes[-1][2:] == part[2:]:
            outcomes[-1] = outcomes[-1]._replace(stop=part.stop)
        else:
            outcomes.append(part)
        at = part.stop
    if at < claim.stop:
        outcomes.append(Outcome(at, claim.stop, "stale"))
    return outcomes


def _ack(shard: Shard, command: commands.Ack, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: dict[int, records.Acked] = {}
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "acked") for part in parts]))
        if lease is None or not parts:
            continue
        fact = made.get(lease.id)
        if fact is None:
            fact = made[lease.id] = records.Acked(now_ms, lease.queue, lease.partition, lease.group, lease.id, [])
        for part in parts:
            _append_range(fact.ranges, part.first, part.stop)
    return Decision(list(made.values()), replies)


def _nack(shard: Shard, command: commands.Nack, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        replies.append(
            _outcomes(claim, _fail(shard, lease, parts, "nack", command.error, command.delay_ms, now_ms, made))
            if lease is not None
            else _outcomes(claim, [])
        )
    return Decision(made, replies)


def _reject(shard: Shard, command: commands.Reject, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        outcomes = []
        for part in parts:
            assert lease is not None
            made.append(_give_up(shard, lease, part.first, part.stop, "rejected", command.error, now_ms))
            outcomes.append(Outcome(part.first, part.stop, "dead_lettered"))
        replies.append(_outcomes(claim, outcomes))
    return Decision(made, replies)


def _release(shard: Shard, command: commands.Release, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        if lease is not None and parts:
            ranges: list[int] = []
            for part in parts:
                _append_range(ranges, part.first, part.stop)
            made.append(records.Released(now_ms, lease.queue, lease.partition, lease.group, lease.id, ranges))
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "released") for part in parts]))
    return Decision(made, replies)


def _extend(shard: Shard, command: commands.Extend, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    deadline = now_ms + command.lease_ms
    for claim in command.claims:
        lease, parts = settling.held(claim)
        if lease is not None and parts:
            ranges: list[int] = []
            for part in parts:
                _append_range(ranges, part.first, part.stop)
            made.append(records.Extended(now_ms, lease.id, ranges, command.lease_ms))
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "extended", deadline) for part in parts]))
    return Decision(made, replies)


def _fail(
    shard: Shard, lease: Lease, parts: list[Held], reason: str, error: str, delay_ms: int | None, now_ms: int,
    made: list[Record],
) -> list[Outcome]:  # fmt: skip
    """Another attempt for those that have one left, the dead letters for the others; by runs, not by message."""
    queue = shard.queues[lease.queue]
    partition = queue.partitions[lease.partition]
    outcomes: list[Outcome] = []
    for part in parts:
        for first, stop, budget in _by_budget(partition, queue, part):
            if exhausted(part.attempt, budget):
                text = error or ("the lease ran out" if reason == "lease_expired" else "")
                made.append(_give_up(shard, lease, first, stop, "max_retries", text, now_ms))
                outcomes.append(Outcome(first, stop, "dead_lettered"))
                continue
            wait = (
                delay_ms if delay_ms is not None else backoff_ms(queue.config.backoff, part.attempt, lease.id + first)
            )
            due = now_ms + wait
            made.append(
                records.Retried(
                    now_ms, lease.queue, lease.partition, lease.group, lease.id, [first, stop], due,
                    "lease_expired" if reason == "lease_expired" else "nack", error,
                )
            )  # fmt: skip
            outcomes.append(Outcome(first, stop, "retrying", due))
    return outcomes


def _by_budget(partition: Partition, queue: Queue, part: Held) -> list[tuple[int, int, int]]:
    general = queue.config.max_retries
    if not partition.max_retries:
        return [(part.first, part.stop, general)]
    pieces: list[tuple[int, int, int]] = []
    for offset in range(part.first, part.stop):
        budget = partition.max_retries.get(offset, general)
        if pieces and pieces[-1][2] == budget:
            pieces[-1] = (pieces[-1][0], offset + 1, budget)
        else:
            pieces.append((offset, offset + 1, budget))
    return pieces


def _give_up(shard: Shard, lease: Lease, first: int, stop: int, reason: Any, error: str, now_ms: int) -> Record:
    kept = shard.queues[lease.queue].config.dead_letter
    return records.DeadLettered(
        now_ms, lease.queue, lease.partition, lease.group, lease.id, [first, stop], reason, error, kept
    )


def _append_range(ranges: list[int], first: int, stop: int) -> None:
    if ranges and ranges[-1] == first:
        ranges[-1] = stop
    else:
        ranges += (first, stop)


# -- messages that wait -----------------------------------------------------------------------------------------


def _untouchable(partition: Partition, offset: int) -> str | None:
    """Why a message can be neither cancelled nor moved, or None if it can: nobody has it and nobody is done with it."""
    if not partition.start <= offset < partition.end:
        return "done" if offset < partition.start else "not_found"
    if offset in partition.gone:
        return "done"
    for progress in partition.progress.values():
        if offset in progress.leased:
            return "in_flight"
        if progress.is_done(offset):
            return "done"
    return None


def _cancel(shard: Shard, command: commands.Cancel, now_ms: int) -> Decision:
    return _touch(shard, command, "cancelled", lambda number, ranges: records.Cancelled(
        now_ms, command.queue, number, ranges
    ))  # fmt: skip


def _reschedule(shard: Shard, command: commands.Reschedule, now_ms: int) -> Decision:
    return _touch(shard, command, "rescheduled", lambda number, ranges: records.Rescheduled(
        now_ms, command.queue, number, ranges, command.due
    ))  # fmt: skip


def _touch(
    shard: Shard, command: commands.Cancel | commands.Reschedule, status: str, make: Callable[[int, list[int]], Record]
) -> Decision:
    queue = _queue(shard, command.queue)
    chosen: dict[int, RangeSet] = {}
    statuses = []
    for number, offset in command.messages:
        refused = _untouchable(queue.partitions[number], offset)
        statuses.append(refused or status)
        if refused is None:
            chosen.setdefault(number, RangeSet()).add(offset, offset + 1)
    return Decision([make(number, ranges.flat()) for number, ranges in chosen.items()], statuses)


# -- time -------------------------------------------------------------------------------------------------------


def _open(shard: Shard, command: commands.Open, now_ms: int) -> Decision:  # noqa: ARG001  one shape for all
    return Decision([records.Opened(now_ms, command.term, command.node)], None)


def _tick(shard: Shard, command: commands.Tick, now_ms: int) -> Decision:  # noqa: ARG001  one shape for all
    """End the leases and the messages whose time ran out. `advance` has listed them."""
    made: list[Record] = []
    for lease_id in dict.fromkeys(shard.overdue):
        lease = shard.leases.get(lease_id)
        if lease is not None:
            late = [run for run in lease.held if run.deadline <= now_ms]
            _fail(shard, lease, late, "lease_expired", "", None, now_ms, made)
    shard.overdue = []
    for queue_number, number in shard.overdue_partitions:
        if queue_number in shard.queues:
            partition = shard.queues[queue_number].partitions[number]
            ranges = _expire(partition, keeps=shard.queues[queue_number].config.retention.mode == "keep")
            if ranges:
                made.append(records.Expired(now_ms, queue_number, number, ranges.flat()))
            if partition.overdue:
                shard.arm(now_ms + LEASED_PAST_EXPIRY_RECHECK_MS, queue_number, number)
    shard.overdue_partitions = {}
    return Decision(made, None)


def _expire(partition: Partition, *, keeps: bool) -> RangeSet:
    """What is past its time to live and in nobody's hands; what is leased stays on the list until it is settled.

    What everybody has finished has nothing left to expire, unless it is kept for readers to come.
    """
    ended, later = RangeSet(), RangeSet()
    for first, stop in sorted(partition.overdue):
        for inside, after in partition.gone.gaps(max(first, partition.start), stop):
            ended.add(inside, after)
    for progress in partition.progress.values():
        for first, stop in list(ended):
            for inside, after in list(progress.leased.within(first, stop)):
                later.add(inside, after)
    for first, stop in later:
        ended.remove(first, stop)
    for first, stop in [] if keeps else list(ended):
        for inside, after in partition.finished(first, stop):
            ended.remove(inside, after)
    partition.overdue = list(later)
    return ended


_DECIDE: dict[type, Callable[[Shard, Any, int], Decision]] = {
    commands.ConfigureQueue: _configure,
    commands.DeleteQueue: _delete,
    commands.PurgeQueue: _purge,
    commands.TrimPartition: _trim,
    commands.Ack: _ack,
    commands.Nack: _nack,
    commands.Reject: _reject,
    commands.Release: _release,
    commands.Extend: _extend,
    commands.Cancel: _cancel,
    commands.Reschedule: _reschedule,
    commands.Open: _open,
    commands.Tick: _tick,
}
