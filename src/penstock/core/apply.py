"""(state, record) -> None. Total: it never refuses, never asks for the time, and does the same on every replay.

One function per kind of record, in the table at the end. Hard state changes here and nowhere else; soft state is kept
in step where that is cheap (see `state.py` for which is which).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from itertools import takewhile
from typing import Any

import msgspec

from penstock import limits
from penstock.batch import layout
from penstock.core import holds, readers, rebalancing, records, redriven, schedules, webhooks, windows
from penstock.core.bits import OffsetBits
from penstock.core.config import QueueConfig, same_order
from penstock.core.deadletters import DeadLetter
from penstock.core.dedup import Place, SeqRun
from penstock.core.desk import follow_settings, open_desk
from penstock.core.failed import Retry
from penstock.core.lease import Held, Lease
from penstock.core.ranges import RangeSet, drop_range, pairs
from penstock.core.rebuild import rebuild_queue
from penstock.core.records import Record
from penstock.core.state import FormerQueue, Partition, Progress, Queue, Shard


def apply(shard: Shard, record: Record) -> None:
    shard.now_ms = max(shard.now_ms, record.at)
    _APPLY[type(record)](shard, record)


# -- queues -----------------------------------------------------------------------------------------------------


def _opened(shard: Shard, record: records.Opened) -> None:
    shard.term = record.term
    for lease in shard.leases.values():
        deadline = record.at + lease.lease_ms
        # Never sooner than promised: the last extension's duration may have been meant for other messages.
        lease.held = [Held(run.first, run.stop, run.attempt, max(run.deadline, deadline)) for run in lease.held]
        heappush(shard.deadlines, (deadline, lease.id))
    rebalancing.start_over(shard, record.at)


def _queue_configured(shard: Shard, record: records.QueueConfigured) -> None:
    queue = shard.queues.get(record.queue)
    if queue is None:
        shard.queues[record.queue] = Queue(record.queue, record.path, record.config)
        shard.paths[record.path] = record.queue
        shard.next_queue = record.queue + 1
        return
    before, queue.config = queue.config, record.config
    kept_nothing = before.retention.mode == "until_acked"
    for partition in queue.partitions:
        if kept_nothing and record.config.retention.mode == "keep":
            # What every group had finished was let go; readers that begin later do not get it back.
            for first, stop in partition.finished(partition.start, partition.end):
                partition.gone.add(first, stop)
        _move_start(queue, partition)
    if queue.config.partitions > len(queue.partitions):
        _grow(queue)
        holds.follow_queue(shard, queue)
    if before.indexed or queue.config.indexed:
        _change_order(shard, queue, before)
    if before.window_ms or record.config.window_ms:
        windows.configured(shard, queue, before, record.at)


def _grow(queue: Queue) -> None:
    queue.growths.append([partition.end for partition in queue.partitions])
    while len(queue.partitions) < queue.config.partitions:
        partition = Partition(queue.config)
        partition.progress = {group: Progress(0) for group in queue.group_names}
        queue.partitions.append(partition)
    for membership in queue.memberships.values():
        membership.grow(len(queue.partitions))


def _change_order(shard: Shard, queue: Queue, before: QueueConfig) -> None:
    """Most changes leave the order as it is: then an index of a million messages must not be built anew for them.

    Another order altogether is for queues in which nothing is stored (`config.check_change`).
    """
    if same_order(before, queue.config):
        follow_settings(queue, before)
        return
    if queue.empty:
        for partition in queue.partitions:
            partition.traits.follow(queue.config)
            for progress in partition.progress.values():
                progress.cursor = partition.end
                progress.skip = RangeSet()
    rebuild_queue(shard, queue)


def _queue_deleted(shard: Shard, record: records.QueueDeleted) -> None:
    queue = shard.queues.pop(record.queue)
    del shard.paths[queue.path]
    holds.forget_queue(shard, record.queue)
    shard.former_queues[record.queue] = FormerQueue(queue.path, queue.group_names)
    while len(shard.former_queues) > limits.FORMER_QUEUES_KEPT:
        del shard.former_queues[next(iter(shard.former_queues))]
    for lease in [lease for lease in shard.leases.values() if lease.queue == record.queue]:
        del shard.leases[lease.id]


def _queue_purged(shard: Shard, record: records.QueuePurged) -> None:
    queue = shard.queues[record.queue]
    for lease in [lease for lease in shard.leases.values() if lease.queue == record.queue]:
        del shard.leases[lease.id]
    for number, end in enumerate(record.ends):
        old = queue.partitions[number]
        queue.partitions[number] = fresh = Partition(queue.config)
        fresh.start = fresh.end = end
        fresh.progress = {group: Progress(end) for group in old.progress}
    holds.follow_queue(shard, queue)
    rebuild_queue(shard, queue)


def _group_created(shard: Shard, record: records.GroupCreated) -> None:
    queue = shard.queues[record.queue]
    queue.groups[record.name] = record.group
    queue.group_names[record.group] = record.name
    for partition, start in zip(queue.partitions, record.starts, strict=True):
        progress = Progress(start)
        over = list(partition.gone.within(start, partition.end))
        if queue.config.retention.mode == "until_acked":
            # Finished by everybody until now, so its bytes may be gone already.
            over += partition.finished(start, partition.end)
        progress.mark_done(over)
        partition.progress[record.group] = progress
        if queue.config.indexed:
            progress.cursor = partition.end
        else:
            _skip_scheduled(partition, progress, record.at)
        _move_start(queue, partition)
    if queue.config.indexed and not shard.replaying:
        open_desk(queue, record.group)


def _skip_scheduled(partition: Partition, progress: Progress, at_ms: int) -> None:
    """The cursor of a new group passes over what is scheduled, as those of the others do."""
    # On a replay nobody has moved the schedule along: what came due before the group began is not delayed for it.
    due_before = OffsetBits()
    for due, first, stop in partition.schedule.due_by(at_ms):
        for inside, after in partition.scheduled_in(due, first, stop):
            due_before.add(inside, after)
    # In order: a set of ranges grows at its end for nothing, and in its middle by moving all that is behind.
    for first, stop in partition.scheduled.stretches(progress.floor, partition.end):
        for inside, after in due_before.gaps(first, stop):
            progress.skip.add(inside, after)


def _trimmed(shard: Shard, record: records.Trimmed) -> None:
    partition = shard.queues[record.queue].partitions[record.partition]
    before, partition.start = partition.start, max(partition.start, record.start)
    partition.gone.remove_below(partition.start)
    partition.scheduled.remove(before, partition.start)
    if partition.moved:
        drop_range(partition.moved, before, partition.start)
    for progress in partition.progress.values():
        # What lies before the old beginning was redriven, or somebody had it: it stays until it is finished. What was
        # redriven for this group stays as well; for the others it is as old as it is.
        for first, stop in list(progress.leased.gaps(max(progress.floor, before), record.start)):
            redriven_here = [
                (offset, offset + 1)
                for inside, after in partition.timeless.within(first, stop)
                for offset in range(inside, after)
                if offset in progress.retries and progress.retries[offset].redriven
            ]
            progress.mark_done(list(RangeSet(redriven_here).gaps(first, stop)))
    # What somebody holds keeps its budget, its traits and its freedom from time until it is finished.
    wanted = min([partition.start, *(progress.floor for progress in partition.progress.values())])
    partition.timeless.remove_below(wanted)
    _drop_traits(partition, wanted)
    if partition.max_retries:
        drop_range(partition.max_retries, 0, wanted)


# -- messages in ------------------------------------------------------------------------------------------------


def _published(shard: Shard, record: records.Published) -> None:
    queue = shard.queues[record.queue]
    partition = queue.partitions[record.partition]
    batch, first = record.batch, record.offset
    stop = first + batch.count
    partition.end = stop
    shard.last_id = record.id + batch.count - 1
    config = queue.config
    columns = batch.columns
    if columns & (layout.DELAY_MS | layout.DELIVER_AT_MS) or config.delay_ms:
        _schedule(shard, queue, record)
    if columns & layout.TTL_MS or config.ttl_ms:
        _note_expiries(shard, queue, record)
    if config.indexed:
        _put_in_order(partition, record)
    if config.window_ms:
        windows.note_published(shard, queue, partition, first, record.at)
    if columns & layout.MAX_RETRIES:
        for row, budget in enumerate(batch.integers(layout.MAX_RETRIES)):
            if budget >= 0:
                partition.max_retries[first + row] = budget
    if columns & layout.ID:
        for row, client_id in enumerate(batch.strings(layout.ID)):
            if client_id:
                queue.dedup.remember_id(client_id, record.at, Place(record.partition, first + row, record.id + row))
    if record.producer:
        runs, row = [], 0
        for seq, seq_stop in pairs(record.seqs):
            runs.append(SeqRun(seq, seq_stop, record.partition, first + row, record.id + row))
            row += seq_stop - seq
        queue.dedup.remember_seqs(record.producer, record.epoch, record.at, runs)
    if queue.dedup.ids or queue.dedup.producers or queue.dedup.handles:
        queue.dedup.forget_before(
            record.at - limits.DEDUP_WINDOW_MS,
            lambda place: queue.partitions[place.partition].is_unfinished(place.offset),
            2 * batch.count,
        )


def _transacted(shard: Shard, record: records.Transacted) -> None:
    known = shard.transactions
    known[record.key] = record
    while len(known) > limits.TRANSACTIONS_KEPT:
        del known[next(iter(known))]
    for key in list(takewhile(lambda key: known[key].at < record.at - limits.TRANSACTION_WINDOW_MS, known)):
        del known[key]


def _schedule(shard: Shard, queue: Queue, record: records.Published) -> None:
    """Put the delayed messages of a run on the schedule, as one entry per stretch that is due together."""
    batch, at = record.batch, record.at
    partition = queue.partitions[record.partition]
    floor = at + queue.config.delay_ms
    dues = [floor] * batch.count
    if batch.has(layout.DELAY_MS):
        dues = [max(due, at + delay) for due, delay in zip(dues, batch.integers(layout.DELAY_MS), strict=True)]
    if batch.has(layout.DELIVER_AT_MS):
        dues = list(map(max, dues, batch.integers(layout.DELIVER_AT_MS)))
    for due, first, stop in _stretches(dues, record.offset):
        if due > at:
            partition.schedule.add(due, first, stop - first, at)
            partition.scheduled.add(first, stop)
            for progress in partition.progress.values():
                if not queue.config.indexed:
                    progress.skip.add(first, stop)
    shard.arm_agenda(partition.schedule, record.queue, record.partition)


def _put_in_order(partition: Partition, record: records.Published) -> None:
    """Tell the dispatchers about every message that is not to be later."""
    first, stop = record.offset, record.offset + record.batch.count
    partition.traits.note(first, record.batch)
    for progress in partition.progress.values():
        progress.cursor = stop
        if progress.desk is not None:
            for begin, end in partition.scheduled.gaps(first, stop):
                progress.desk.ready(begin, end, fresh=True)


def _note_expiries(shard: Shard, queue: Queue, record: records.Published) -> None:
    batch, at = record.batch, record.at
    ttls = [queue.config.ttl_ms or 0] * batch.count
    if batch.has(layout.TTL_MS):
        ttls = [own or general for own, general in zip(batch.integers(layout.TTL_MS), ttls, strict=True)]
    expiries = queue.partitions[record.partition].expiries
    for ttl, first, stop in _stretches(ttls, record.offset):
        if ttl:
            expiries.add(at + ttl, first, stop - first, at)
    shard.arm_agenda(expiries, record.queue, record.partition)


def _stretches(values: list[int], first: int) -> list[tuple[int, int, int]]:
    """Neighbours of equal value as (value, first offset, stop offset)."""
    stretches, begin = [], 0
    for at in range(1, len(values) + 1):
        if at == len(values) or values[at] != values[begin]:
            stretches.append((values[begin], first + begin, first + at))
            begin = at
    return stretches


# -- messages out -----------------------------------------------------------------------------------------------


def _leased(shard: Shard, record: records.Leased) -> None:
    queue = shard.queues[record.queue]
    partition = queue.partitions[record.partition]
    progress = partition.progress[record.group]
    deadline = record.at + record.lease_ms
    shard.next_lease = record.lease + 1
    held = []
    ranges = []
    runs = record.runs
    for at in range(0, len(runs), 3):
        first, count, attempt = runs[at : at + 3]
        stop = first + count
        ranges.append((first, stop))
        # A run may begin with messages off the cursor's path (their delay is over) and go on along it.
        if stop > progress.cursor and any(progress.skip.gaps(max(first, progress.cursor), stop)):
            progress.cursor = stop
            progress.skip.remove_below(stop)
        if not record.settled:
            progress.leased.add(first, stop)
            held.append(Held(first, stop, attempt, deadline))
    if record.settled:
        progress.mark_done(ranges)
    elif progress.desk is not None:
        progress.desk.leased(ranges)
    if queue.config.window_ms:
        windows.note_leased(shard, queue, record)
    if record.settled:
        _move_start(queue, partition)
        return
    held.sort(key=_by_first)
    shard.leases[record.lease] = Lease(
        record.lease, record.nonce, record.queue, record.partition, record.group, record.consumer, record.lease_ms,
        record.at, held,
    )  # fmt: skip
    heappush(shard.deadlines, (deadline, record.lease))


def _by_first(run: Held) -> int:
    return run.first


def _extended(shard: Shard, record: records.Extended) -> None:
    lease = shard.leases[record.lease]
    deadline = record.at + record.lease_ms
    for first, stop in pairs(record.ranges):
        lease.extend(first, stop, deadline)
    lease.lease_ms = record.lease_ms
    heappush(shard.deadlines, (deadline, lease.id))


def _acked(shard: Shard, record: records.Acked) -> None:
    queue = shard.queues[record.queue]
    partition = queue.partitions[record.partition]
    progress = partition.progress[record.group]
    _release(shard, progress, record.lease, record.ranges)
    progress.mark_done(list(pairs(record.ranges)))
    _move_start(queue, partition)
    _freed(shard, queue, record.at)


def _retried(shard: Shard, record: records.Retried) -> None:
    progress = shard.queues[record.queue].partitions[record.partition].progress[record.group]
    lease = shard.leases[record.lease]
    waiting: list[tuple[int, int]] = []
    for first, stop in pairs(record.ranges):
        for run in lease.parts(first, stop):
            if record.due > record.at:
                waiting.append((run.first, run.stop))
            for offset in range(run.first, run.stop):
                before = progress.retries.get(offset)
                progress.retries[offset] = Retry(
                    run.attempt, record.due, before.first_at if before else lease.at, lease.at, record.error,
                    lease.consumer, before.budget if before else -1, before.redriven if before else 0,
                )  # fmt: skip
                if record.due <= record.at:
                    # At once means before anything that is asked for at the same moment.
                    progress.make_ready(offset, offset + 1)
                else:
                    heappush(progress.waiting, (record.due, offset))
    if waiting and progress.desk is not None:
        progress.desk.delayed(waiting)
    _release(shard, progress, record.lease, record.ranges)
    shard.arm(record.due, record.queue, record.partition, record.group)


def _released(shard: Shard, record: records.Released) -> None:
    progress = shard.queues[record.queue].partitions[record.partition].progress[record.group]
    _release(shard, progress, record.lease, record.ranges)
    for first, stop in pairs(record.ranges):
        progress.make_ready(first, stop)
    _freed(shard, shard.queues[record.queue], record.at)


def _dead_lettered(shard: Shard, record: records.DeadLettered) -> None:
    queue = shard.queues[record.queue]
    partition = queue.partitions[record.partition]
    progress = partition.progress[record.group]
    lease = shard.leases[record.lease]
    parks = queue.config.park_dead_keys
    if record.kept:
        for first, stop in pairs(record.ranges):
            for run in lease.parts(first, stop):
                for offset in range(run.first, run.stop):
                    before = progress.retries.get(offset)
                    key = partition.traits.key[offset] if parks and partition.traits.key is not None else 0
                    letter = DeadLetter(
                        run.attempt, before.first_at if before else lease.at, lease.at, record.at, lease.consumer,
                        record.reason, record.error or (before.error if before else ""),
                        partition.max_retries.get(offset, before.budget if before else -1),
                        before.redriven if before else 0, key,
                    )  # fmt: skip
                    partition.dead.put(record.group, offset, letter)
                    if key and progress.desk is not None:
                        progress.desk.park(key, offset)
    _release(shard, progress, record.lease, record.ranges)
    progress.mark_done(list(pairs(record.ranges)))
    _move_start(queue, partition)
    _freed(shard, queue, record.at)


def _freed(shard: Shard, queue: Queue, at_ms: int) -> None:
    """What was let go, or waited behind it, may be the oldest now: the window may open sooner than was thought."""
    if queue.config.window_ms:
        windows.arm(shard, queue, at_ms)


def _release(shard: Shard, progress: Progress, lease_id: int, ranges: list[int]) -> None:
    lease = shard.leases[lease_id]
    lease.release(ranges)
    for first, stop in pairs(ranges):
        progress.leased.remove(first, stop)
    if progress.desk is not None:
        progress.desk.let_go(pairs(ranges))
    if not lease.held:
        del shard.leases[lease_id]
    if shard.queues[lease.queue].partitions[lease.partition].overdue:
        # Their time ran out in somebody's hands: what was let go now ends before anybody gets it again.
        shard.overdue_partitions[lease.queue, lease.partition] = None


# -- messages that wait or end by themselves --------------------------------------------------------------------


def _cancelled(shard: Shard, record: records.Cancelled) -> None:
    _ended(shard, record)
    for client_id in record.freed:
        shard.queues[record.queue].dedup.free_id(client_id)


def _ended(shard: Shard, record: records.Expired | records.Cancelled) -> None:
    """These messages are over, for every group that has not finished them."""
    queue = shard.queues[record.queue]
    partition = queue.partitions[record.partition]
    for first, stop in pairs(record.ranges):
        partition.gone.add(first, stop)
        partition.scheduled.remove(first, stop)
        if partition.moved:
            drop_range(partition.moved, first, stop)
    for progress in partition.progress.values():
        progress.mark_done(list(pairs(record.ranges)))
    _move_start(queue, partition)


def _rescheduled(shard: Shard, record: records.Rescheduled) -> None:
    partition = shard.queues[record.queue].partitions[record.partition]
    for first, stop in pairs(record.ranges):
        for offset in range(first, stop):
            partition.moved[offset] = record.due
            partition.schedule.add(record.due, offset, 1, record.at)
            partition.scheduled.add(offset, offset + 1)
            for group, progress in partition.progress.items():
                retry = progress.retries.get(offset)
                if retry is not None:
                    # Replaced, not changed: a snapshot that is being written may have the old one.
                    progress.retries[offset] = msgspec.structs.replace(retry, due=record.due)
                    heappush(progress.waiting, (record.due, offset))
                    shard.arm(record.due, record.queue, record.partition, group)
                    if progress.desk is not None:
                        progress.desk.delayed([(offset, offset + 1)])
                elif progress.desk is not None:
                    progress.desk.leave(((offset, offset + 1),))
                elif offset >= progress.cursor:
                    progress.skip.add(offset, offset + 1)
    shard.arm_agenda(partition.schedule, record.queue, record.partition)


def _drop_traits(partition: Partition, below: int) -> None:
    """What was given up may be redriven, and takes its place in the order again."""
    partition.traits.drop_below(min([below, *partition.dead.offsets()]) if partition.dead else below)


def _move_start(queue: Queue, partition: Partition) -> None:
    """Where nothing is kept for later readers, the log begins where the slowest group is; or the slowest archive."""
    if queue.config.retention.mode == "until_acked" and partition.progress:
        start = min([progress.floor for progress in partition.progress.values()])
        if partition.held_from is not None:
            start = min(start, partition.held_from)
        if start > partition.start:
            if partition.max_retries:
                drop_range(partition.max_retries, partition.start, start)
            partition.start = start
            partition.gone.remove_below(start)
            _drop_traits(partition, start)
            partition.timeless.remove_below(start)


def _hold_changed(shard: Shard, record: records.HoldSet | records.HoldEnded) -> None:
    (holds.apply_set if type(record) is records.HoldSet else holds.apply_ended)(shard, record)  # type: ignore[arg-type]
    for queue in shard.queues.values():
        for partition in queue.partitions:
            _move_start(queue, partition)


_APPLY: dict[type, Callable[[Shard, Any], None]] = {
    records.Opened: _opened,
    records.QueueConfigured: _queue_configured,
    records.QueueDeleted: _queue_deleted,
    records.QueuePurged: _queue_purged,
    records.GroupCreated: _group_created,
    records.MemberJoined: rebalancing.apply_joined,
    records.MembersLeft: rebalancing.apply_left,
    records.HandedOver: rebalancing.apply_handed_over,
    records.Trimmed: _trimmed,
    records.Published: _published,
    records.Transacted: _transacted,
    records.Leased: _leased,
    records.Extended: _extended,
    records.Acked: _acked,
    records.Retried: _retried,
    records.Released: _released,
    records.DeadLettered: _dead_lettered,
    records.Expired: _ended,
    records.Cancelled: _cancelled,
    records.Rescheduled: _rescheduled,
    records.OffsetsKept: readers.apply_kept,
    records.HoldSet: _hold_changed,
    records.HoldEnded: _hold_changed,
    records.ScheduleSet: schedules.apply_set,
    records.SchedulePaused: schedules.apply_paused,
    records.ScheduleRemoved: schedules.apply_removed,
    records.ScheduleFired: schedules.apply_fired,
    records.ScheduleRefused: schedules.apply_refused,
    records.WebhookSet: webhooks.apply_set,
    records.WebhookRotated: webhooks.apply_rotated,
    records.WebhookState: webhooks.apply_state,
    records.WebhookRemoved: webhooks.apply_removed,
    records.DeadLettersRemoved: redriven.dead_letters_removed,
    records.RedriveStarted: redriven.redrive_started,
    records.Redriven: redriven.redriven,
    records.RedriveEnded: redriven.redrive_ended,
}
assert set(_APPLY) == set(records.KINDS)
