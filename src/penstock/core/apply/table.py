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
from penstock.core import records
from penstock.core.apply import groups, holds, keys, readers, rebalancing, redriven, schedules, users, webhooks
from penstock.core.config import QueueConfig, same_order, shared
from penstock.core.offsets.ranges import RangeSet, drop_range, pairs
from penstock.core.order.dispatcher_adapter import follow_settings
from penstock.core.rebuild import rebuild_queue
from penstock.core.records import Record
from penstock.core.state import FormerQueue, Partition, Progress, Queue, Shard, sessions, windows
from penstock.core.state.client_ids import Place
from penstock.core.state.dedup import SeqRun
from penstock.core.state.holds import follow_queue
from penstock.core.state.leases import Held, Lease
from penstock.core.state.letter_chunks import DeadLetter
from penstock.core.state.log_start import drop_traits, move_start
from penstock.core.state.retries import Retry


def apply(shard: Shard, record: Record) -> None:
    if shard.changing is not None and (queue := getattr(record, "queue", None)) is not None:
        shard.changing(queue)
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
    sessions.start_over(shard, record.at)


def _queue_configured(shard: Shard, record: records.QueueConfigured) -> None:
    queue = shard.queues.get(record.queue)
    if queue is None:
        shard.queues[record.queue] = Queue(record.queue, record.path, shared(record.config), record.routing)
        shard.paths[record.path] = record.queue
        shard.next_queue = record.queue + 1
        return
    before, queue.config = queue.config, record.config
    shard.placements += before.placement != record.config.placement
    kept_nothing = before.retention.mode == "until_acked"
    for partition in queue.partitions:
        if kept_nothing and record.config.retention.mode == "keep":
            # Messages that every group had finished were removed; readers that begin later do not get them.
            for first, stop in partition.finished(partition.start, partition.end):
                partition.gone.add(first, stop)
        move_start(queue, partition)
    if queue.config.partitions > len(queue.partitions):
        _grow(queue)
        follow_queue(shard, queue)
    if before.indexed or queue.config.indexed:
        _change_order(shard, queue, before)
    if before.window_ms or record.config.window_ms:
        windows.configured(shard, queue, before, record.at)


def _grow(queue: Queue) -> None:
    queue.growths.append([partition.end for partition in queue.partitions])
    while len(queue.partitions) < queue.config.partitions:
        queue.partitions.append_blank()
        for group in queue.group_names:
            queue.partitions[-1].progress[group] = Progress(0)
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
        for _, partition in queue.partitions.used():
            partition.traits.follow(queue.config)
            for progress in partition.progress.values():
                progress.cursor = partition.end
                progress.undelayed = RangeSet()
            partition.delayed = RangeSet()
    rebuild_queue(shard, queue)


def _queue_deleted(shard: Shard, record: records.QueueDeleted) -> None:
    queue = shard.queues.pop(record.queue)
    del shard.paths[queue.path]
    holds.forget_queue(shard, record.queue)
    shard.former_queues[record.queue] = FormerQueue(queue.path, {**queue.former_groups, **queue.group_names})
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
    follow_queue(shard, queue)
    rebuild_queue(shard, queue)


def _trimmed(shard: Shard, record: records.Trimmed) -> None:
    partition = shard.queues[record.queue].partitions[record.partition]
    before, partition.start = partition.start, max(partition.start, record.start)
    partition.gone.remove_below(partition.start)
    partition.scheduled.remove(before, partition.start)
    if partition.moved:
        drop_range(partition.moved, before, partition.start)
    for progress in partition.progress.values():
        # Messages before the old beginning were redriven or leased: they stay until they are finished. Messages that
        # were redriven for this group stay as well; for the other groups retention ends them.
        for first, stop in list(progress.leased.gaps(max(progress.floor, before), record.start)):
            redriven_here = [
                (offset, offset + 1)
                for inside, after in partition.timeless.within(first, stop)
                for offset in range(inside, after)
                if offset in progress.retries and progress.retries[offset].redriven
            ]
            progress.mark_done(list(RangeSet(redriven_here).gaps(first, stop)))
    # A leased message keeps its budget, its traits and its exemption from time limits until it is finished.
    wanted = min([partition.start, *(progress.floor for progress in partition.progress.values())])
    partition.timeless.remove_below(wanted)
    partition.delayed.remove_below(wanted)
    drop_traits(partition, wanted)
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
        queue.dedup.remember_ids(batch.strings(layout.ID), record.at, Place(record.partition, first, record.id))
    if record.producer:
        runs, row = [], 0
        for seq, seq_stop in pairs(record.seqs):
            runs.append(SeqRun(seq, seq_stop, record.partition, first + row, record.id + row))
            row += seq_stop - seq
        queue.dedup.remember_seqs(record.producer, record.epoch, record.at, runs)
    if queue.dedup.ids.chunks or queue.dedup.producers:
        queue.dedup.forget(
            record.at, lambda place: queue.partitions[place.partition].is_unfinished(place.offset), 2 * batch.count + 16
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
            if partition.progress and not queue.config.indexed:
                partition.delayed.add(first, stop)
    shard.arm_agenda(partition.schedule, record.queue, record.partition)


def _put_in_order(partition: Partition, record: records.Published) -> None:
    """Tell the dispatchers about every message that is not to be later."""
    first, stop = record.offset, record.offset + record.batch.count
    partition.traits.note(first, record.batch)
    for progress in partition.progress.values():
        progress.cursor = stop
        if progress.adapter is not None:
            for begin, end in partition.scheduled.gaps(first, stop):
                progress.adapter.ready(begin, end, fresh=True)


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
        if stop > progress.cursor and progress.moves_cursor(partition, max(first, progress.cursor), stop):
            progress.cursor = stop
            progress.undelayed.remove_below(stop)
            partition.tidy_delayed()
        if not record.settled:
            progress.leased.add(first, stop)
            held.append(Held(first, stop, attempt, deadline))
    if record.settled:
        progress.mark_done(ranges)
    elif progress.adapter is not None:
        progress.adapter.leased(ranges)
    if queue.config.window_ms:
        windows.note_leased(shard, queue, record)
    if record.settled:
        move_start(queue, partition)
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
    move_start(queue, partition)
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
    if waiting and progress.adapter is not None:
        progress.adapter.delayed(waiting)
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
                    if key and progress.adapter is not None:
                        progress.adapter.park(key, offset)
    _release(shard, progress, record.lease, record.ranges)
    progress.mark_done(list(pairs(record.ranges)))
    move_start(queue, partition)
    _freed(shard, queue, record.at)


def _freed(shard: Shard, queue: Queue, at_ms: int) -> None:
    """A released message, or one behind it, may be the oldest now: arm the window again, it may open sooner."""
    if queue.config.window_ms:
        windows.arm(shard, queue, at_ms)


def _release(shard: Shard, progress: Progress, lease_id: int, ranges: list[int]) -> None:
    lease = shard.leases[lease_id]
    lease.release(ranges)
    for first, stop in pairs(ranges):
        progress.leased.remove(first, stop)
    if progress.adapter is not None:
        progress.adapter.let_go(pairs(ranges))
    if not lease.held:
        del shard.leases[lease_id]
    if shard.queues[lease.queue].partitions[lease.partition].overdue:
        # Their time to live ran out while they were leased: they expire before they can be leased again.
        shard.overdue_partitions[lease.queue, lease.partition] = None


# -- messages that wait or end by themselves --------------------------------------------------------------------


def _cancelled(shard: Shard, record: records.Cancelled) -> None:
    _ended(shard, record)
    for client_id in record.freed:
        shard.queues[record.queue].dedup.free_id(client_id, record.at)


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
    move_start(queue, partition)


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
                    if progress.adapter is not None:
                        progress.adapter.delayed([(offset, offset + 1)])
                elif progress.adapter is not None:
                    progress.adapter.leave(((offset, offset + 1),))
                elif offset >= progress.cursor:
                    partition.delayed.add(offset, offset + 1)
                    progress.undelayed.remove(offset, offset + 1)
    shard.arm_agenda(partition.schedule, record.queue, record.partition)


def _hold_changed(shard: Shard, record: records.HoldSet | records.HoldEnded) -> None:
    named = [shard.holds[record.name]] if record.name in shard.holds else []
    (holds.apply_set if type(record) is records.HoldSet else holds.apply_ended)(shard, record)  # type: ignore[arg-type]
    named += [shard.holds[record.name]] if record.name in shard.holds else []
    for number in sorted({number for hold in named for number in hold.offsets if number in shard.queues}):
        if shard.changing is not None:
            shard.changing(number)
        for partition in shard.queues[number].partitions:
            move_start(shard.queues[number], partition)


_APPLY: dict[type, Callable[[Shard, Any], None]] = {
    records.Opened: _opened,
    records.QueueConfigured: _queue_configured,
    records.QueueDeleted: _queue_deleted,
    records.QueuePurged: _queue_purged,
    records.GroupCreated: groups.apply_created,
    records.GroupMoved: groups.apply_moved,
    records.GroupDeleted: groups.apply_deleted,
    records.MemberJoined: rebalancing.apply_joined,
    records.MembersLeft: rebalancing.apply_left,
    records.HandedOver: rebalancing.apply_handed_over,
    records.Trimmed: _trimmed,
    records.Published: _published,
    records.EncryptedPublished: _published,
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
    records.KeyCreated: keys.apply_created,
    records.KeyRotated: keys.apply_rotated,
    records.KeyRevoked: keys.apply_revoked,
    records.UserSet: users.apply_set,
    records.UserRemoved: users.apply_removed,
    records.DeadLettersRemoved: redriven.dead_letters_removed,
    records.RedriveStarted: redriven.redrive_started,
    records.Redriven: redriven.redriven,
    records.RedriveEnded: redriven.redrive_ended,
}
assert set(_APPLY) == set(records.KINDS)
