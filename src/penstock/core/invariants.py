"""Invariants of the state. Checked by tests and by the simulator after every step; not by the running server."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from penstock import limits
from penstock.core.offsets.ranges import RangeSet
from penstock.core.order.dispatch import Dispatcher
from penstock.core.order.dispatcher_adapter import open_dispatchers
from penstock.core.order.fifo import partition_and_offset
from penstock.core.order.keys import KeyGate
from penstock.core.state import Partition, Progress, Queue, Shard
from penstock.core.state.dead_letters import oldest_first
from penstock.core.state.members import Membership
from penstock.core.state.shard import BLANK


def check(shard: Shard) -> None:
    """Raises AssertionError with the place and the rule."""
    held: dict[tuple[int, int, int], RangeSet] = {}
    for lease in shard.leases.values():
        assert lease.held, f"lease {lease.id} holds nothing and is still there"
        assert lease.id < shard.next_lease
        ranges = held.setdefault((lease.queue, lease.partition, lease.group), RangeSet())
        for run in lease.held:
            assert run.first < run.stop
            assert not ranges.overlaps(run.first, run.stop), f"offset {run.first} is under two leases"
            ranges.add(run.first, run.stop)
    assert not (BLANK.end or BLANK.gone or BLANK.dead or BLANK.schedule.count or BLANK.expiries.count), (
        "blank is shared"
    )
    for queue in shard.queues.values():
        assert shard.paths[queue.path] == queue.number
        for group, membership in queue.memberships.items():
            assert len(membership.slots) == len(queue.partitions), queue.path
            _check_membership(membership, f"{queue.path}, group {group}")
        for number, partition in enumerate(queue.partitions):
            _check_partition(partition, where := f"{queue.path}/{number}")
            for group, progress in partition.progress.items():
                leased = held.pop((queue.number, number, group), RangeSet())
                assert progress.leased == leased, f"{where}, group {group}: leased ranges and leases disagree"
                _check_progress(partition, progress, f"{where}, group {group}", max(shard.now_ms, shard.advanced_ms))
        for group, dispatcher in queue.dispatchers.items():
            _check_dispatcher(queue, group, dispatcher, f"{queue.path}, group {group}")
    assert not held, f"leases of groups that do not exist: {held}"
    _check_schedules(shard)
    _check_webhooks(shard)
    _check_keys(shard)


def check_dispatch(shard: Shard) -> None:
    """That every index knows what one that is built now would know. Costs as much as building them all."""
    now_ms = max(shard.now_ms, shard.advanced_ms)
    for queue in shard.queues.values():
        known = {group: _offered(queue, group, now_ms) for group in queue.dispatchers}
        for group in queue.dispatchers:
            _check_oldest(queue, group, now_ms)
        adapters = [progress.adapter for partition in queue.partitions for progress in partition.progress.values()]
        before = queue.dispatchers
        open_dispatchers(queue)
        fresh = {group: _offered(queue, group, now_ms) for group in queue.dispatchers}
        queue.dispatchers = before
        for progress, adapter in zip(_all_progress(queue), adapters, strict=True):
            progress.adapter = adapter
        for group, offered in known.items():
            # A redriven message counts as new: which message of its key is let through may differ after a restart.
            if not any(
                retry.attempt == 0 for part in queue.partitions for retry in part.progress[group].retries.values()
            ):
                assert offered == fresh[group], f"{queue.path}: the index and the state disagree on the ready messages"


def _check_oldest(queue: Queue, group: int, now_ms: int) -> None:
    """Check that the oldest deliverable message of the index is the oldest in the state. A retry enters the index only
    when it is due, so retries are left out."""
    dispatcher = queue.dispatchers[group]
    free: dict[int, list[int]] = {}
    for number, offset in dispatcher.offered(now_ms):
        partition = queue.partitions[number]
        tenant = partition.traits.tenant[offset] if partition.traits.tenant is not None else 0
        full = dispatcher.shares is not None and dispatcher.shares.is_full(tenant)
        if not full and offset not in partition.progress[group].retries:
            free.setdefault(number, []).append(offset)
    for number, partition in enumerate(queue.partitions):
        oldest, expected = dispatcher.oldest(number), min(free.get(number, []), default=None)
        if oldest is None or oldest not in partition.progress[group].retries:
            assert oldest == expected, f"{queue.path}/{number}: the oldest is {expected}, not {oldest}"


def _offered(queue: Queue, group: int, now_ms: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Messages that can be leased now, and keys that have such a message; which message of a key it is may differ.

    Messages that were tried before, and their keys, are left out: an index gets them when they are due.
    """
    messages, keys = set(), set()
    for number, offset in queue.dispatchers[group].offered(now_ms):
        partition = queue.partitions[number]
        if offset not in partition.progress[group].retries:
            key = partition.traits.key[offset] if partition.traits.key is not None else 0
            if key:
                keys.add(key)
            else:
                messages.add((number, offset))
    for partition in queue.partitions:
        if partition.traits.key is not None:
            keys -= {partition.traits.key[offset] for offset in partition.progress[group].retries}
            # An overdue message that was let through keeps its key; which message of the key was, may differ.
            late = (offset for first, stop in partition.overdue for offset in range(first, stop))
            keys -= {partition.traits.key[offset] for offset in late}
    return sorted(messages), sorted(keys)


def _all_progress(queue: Queue) -> list[Progress]:
    return [progress for partition in queue.partitions for progress in partition.progress.values()]


def _check_dispatcher(queue: Queue, group: int, dispatcher: Dispatcher, where: str) -> None:
    keys: set[int] = set()
    tenants: Counter[int] = Counter()
    for partition in queue.partitions:
        progress = partition.progress[group]
        leased = [offset for first, stop in progress.leased for offset in range(first, stop)]
        if partition.traits.tenant is not None:
            tenants.update(partition.traits.tenant[offset] for offset in leased)
        if partition.traits.key is not None:
            tried = [offset for offset, retry in progress.retries.items() if retry.attempt]
            for offset in {*leased, *tried}:
                key = partition.traits.key[offset]
                assert not key or key not in keys, f"{where}: two messages of one key are leased or to be tried again"
                keys.add(key)
    if dispatcher.gate is not None:
        stuck = _stuck_keys(queue, group, dispatcher.gate)
        assert dispatcher.gate.blocked == stuck, f"{where}: {dispatcher.gate.blocked} keys are blocked, not {stuck}"
    if dispatcher.shares is not None:
        assert dispatcher.shares.in_flight == dict(tenants), f"{where}: tenants have other messages in flight"


def _stuck_keys(queue: Queue, group: int, gate: KeyGate) -> int:
    """Keys with messages behind one that is to be tried later, or behind a dead letter."""
    later = {
        (number, offset)
        for number, partition in enumerate(queue.partitions)
        for due, offset in partition.progress[group].waiting
        if (retry := partition.progress[group].retries.get(offset)) is not None
        and retry.due == due
        and offset not in partition.progress[group].leased
    }
    holders = {key: gate.holder(key) for key in gate.keys_behind()}
    return sum(
        bool(gate.parked_for(key)) or (holder is not None and partition_and_offset(holder) in later)
        for key, holder in holders.items()
    )


def _check_schedules(shard: Shard) -> None:
    alarms = set(shard.alarms)
    for name, schedule in shard.schedules.items():
        assert name == schedule.name
        if schedule.next is None:
            continue
        assert schedule.last_fire is None or schedule.last_fire < schedule.next, f"schedule {name} goes back"
        if not schedule.paused:
            armed = (schedule.wakes_at(), name) in alarms or name in shard.due_schedules
            assert armed, f"schedule {name} is at {schedule.next}, and no timer is set for it"


def _check_keys(shard: Shard) -> None:
    assert len(shard.keys) <= limits.KEYS_MAX
    for id, key in shard.keys.items():
        assert key.id == id
        assert 1 <= len(key.secrets) <= limits.KEY_SECRETS_MAX, f"key {id} has {len(key.secrets)} secrets"
        assert [secret.until for secret in key.secrets].index(0) == 0, f"key {id}: no newest secret"
    hashes = [secret.hash for key in shard.keys.values() for secret in key.secrets]
    assert len(set(hashes)) == len(hashes), "two keys have the same secret"


def _check_webhooks(shard: Shard) -> None:
    places = {(hook.spec.queue, hook.spec.group): hook for hook in shard.webhooks.values()}
    assert len(places) == len(shard.webhooks), "a group has two webhooks"
    assert places == shard.webhook_groups, "the webhooks and their groups disagree"
    for name, hook in shard.webhooks.items():
        assert name == hook.id
        assert [secret.until for secret in hook.secrets].index(None) == 0, f"webhook {name}: no newest secret"
        assert len(hook.secrets) <= limits.WEBHOOK_SECRETS_MAX


def _check_membership(membership: Membership, where: str) -> None:
    members, slots = membership.members, membership.slots
    loads = [sum(slot.owner == member for slot in slots) for member in members]
    assert max(loads, default=0) - min(loads, default=0) <= 1, f"{where}: partitions are not balanced: {loads}"
    for slot in slots:
        assert bool(slot.owner) == bool(members) and (not slot.owner or slot.owner in members), f"{where}: {slot}"
        assert slot.since <= membership.generation, f"{where}: {slot} is ahead of its group"
        assert not slot.giver or (slot.giver in members and slot.giver != slot.owner and slot.until), f"{where}: {slot}"
    for member in members.values():
        assert member.joined <= member.changed <= membership.generation, f"{where}: {member.id} is ahead of its group"


def _check_partition(partition: Partition, where: str) -> None:
    assert 0 <= partition.start <= partition.end, where
    for _, stop in partition.gone:
        assert stop <= partition.end, where
    for (group, offset), _ in partition.dead.items():
        assert offset < partition.end, where
        assert partition.progress[group].is_done(offset), f"{where}: offset {offset} is a dead letter and not done"
    assert [tuple(position) for position, _ in oldest_first([partition.dead])] == sorted(
        (letter.dead_at, 0, offset, group) for (group, offset), letter in partition.dead.items()
    ), f"{where}: dead letters out of order"


def _check_progress(partition: Partition, progress: Progress, where: str, now_ms: int) -> None:
    dues = sorted(retry.due for retry in progress.retries.values())
    for due in dues:
        assert progress.retries.waiting(due) == len(dues) - bisect_right(dues, due), f"{where}: retries are miscounted"
    assert progress.floor <= progress.cursor <= partition.end, f"{where}: floor, cursor, end out of order"
    assert progress.floor not in progress.done, f"{where}: the floor is done"
    for first, stop in progress.done.gaps(progress.floor, partition.start):
        # Retention moves the start over a leased message; the message stays in the queue until it is finished.
        for offset in range(first, stop):
            delivered = offset < progress.cursor or progress.is_delayed(partition, offset)
            assert delivered, f"{where}: the log begins after offset {offset}, which no group has had"
    for first, stop in progress.leased:
        assert not progress.done.overlaps(first, stop), f"{where}: leased and done at once"
        assert first >= progress.floor, f"{where}: leased below the floor"
    for first, _ in progress.undelayed:
        assert first >= progress.cursor, f"{where}: an exception to the delays below the cursor"
    untouched = progress.untouched_from(partition)
    for offset in range(untouched, min(untouched + 20, partition.end)):
        assert progress.may_deliver(partition, offset, 0), f"{where}: something has happened to offset {offset}"
    for offset, retry in progress.retries.items():
        assert retry.due <= now_ms or offset not in progress.leased, (
            f"{where}: offset {offset} is leased before its time"
        )
        assert offset <= progress.retries.highest, f"{where}: offset {offset} is beyond all that failed"
        assert not progress.is_done(offset), f"{where}: offset {offset} is done and to be retried"
        delivered = offset < progress.cursor or progress.is_delayed(partition, offset)
        assert delivered, f"{where}: retried before it was delivered"
