"""Members of a group join and leave, and partitions move between them: deciding it, and applying the records.

A group is *plain* (any worker leases from any partition) until a member joins it, and again when the last member has
left. In between it is *assigned*: each partition is leased by its owner alone. The rules of a move are in `members.py`;
here they meet leases and time:

- A member that leaves, or must give something up, may finish what it holds for its `drain_ms`; what is left then is
  released, and that delivery does not count as an attempt.
- A member that falls silent, or whose name is taken by a newer one, is taken for dead: what it holds ends at once. That
  counts as a failed attempt, so that a message which kills its worker ends among the dead letters, and it is due again
  at once, so that the next owner gets it before what comes after it.
"""

from __future__ import annotations

from typing import Literal

from penstock import limits
from penstock.core import commands, records
from penstock.core.decide.groups import leases_of, new_group, release_leases
from penstock.core.decide.settling import fail
from penstock.core.decision import Decision, queue_of
from penstock.core.records import Record
from penstock.core.state import Queue, Shard
from penstock.core.state.assignment import NO_MEMBER, assign
from penstock.core.state.members import Member, Membership, Move, unknown_member
from penstock.core.state.sessions import arm, busy_partitions
from penstock.errors import Conflict


def join(shard: Shard, command: commands.Join, now_ms: int) -> Decision:
    queue = queue_of(shard, command.queue)
    if queue.config.indexed:
        raise Conflict(
            f"queue {queue.path} is ordered over all its partitions, which have no single owners; lease from it "
            "without joining",
            details={"field": "queue"},
        )
    made: list[Record] = []
    group = queue.groups.get(command.group)
    if group is None:
        created = new_group(queue, command.group, now_ms)
        made.append(created)
        group = created.group
    before = queue.memberships.get(group) or Membership(len(queue.partitions))
    busy = busy_partitions(queue, group)
    if command.member in before.members:
        busy -= _bury(shard, queue, group, before, [command.member], now_ms, made)
    elif len(before.members) >= limits.MEMBERS_PER_GROUP_MAX:
        raise Conflict(f"group {command.group} has {limits.MEMBERS_PER_GROUP_MAX} members already, which is the limit")
    members = [*before.members, *([] if command.member in before.members else [command.member])]
    move = _move(before, members, now_ms)
    made.append(
        records.MemberJoined(
            now_ms, queue.number, group, command.member, move.generation, command.session_ms, command.drain_ms,
            move.moved, move.owners,
        )
    )  # fmt: skip
    after = before.copy()
    after.join(command.member, command.session_ms, command.drain_ms, move, busy)
    return Decision(made, after.share(command.member, busy))


def heartbeat(shard: Shard, command: commands.Heartbeat, now_ms: int) -> Decision:
    """A sign of life, and what has changed. Makes facts only of what has become true by it."""
    queue = queue_of(shard, command.queue)
    group, membership = _membership(queue, command.group, command.member)
    member = membership.require(command.member, command.generation)
    member.heard_ms = max(member.heard_ms, now_ms)
    member.confirmed = max(member.confirmed, min(command.generation, member.changed))
    made: list[Record] = []
    busy = busy_partitions(queue, group)
    given_up = set(membership.share(member.id, busy).giving_up).intersection(command.released)
    if given_up:
        release_leases(shard, queue, group, given_up, now_ms, made)
        busy -= given_up
    free = membership.free(busy)
    if free:
        made.append(records.HandedOver(now_ms, queue.number, group, free))
    return Decision(made, membership.share(member.id, busy))


def leave(shard: Shard, command: commands.Leave, now_ms: int) -> Decision:
    """True if it was a member until now."""
    queue = queue_of(shard, command.queue)
    group = queue.groups.get(command.group)
    membership = queue.memberships.get(group) if group is not None else None
    if group is None or membership is None or command.member not in membership.members:
        return Decision([], False)
    if command.generation is not None:
        membership.require(command.member, command.generation)
    return Decision([_left(queue, group, membership, [command.member], "left", now_ms)], True)


def seat_of(
    queue: Queue, group: int, command: commands.Lease, now_ms: int
) -> tuple[Member | None, list[int], list[Record]]:
    """The member that leases, its partitions, the next one first, and the handovers to record before.

    Refuses members of former generations, and in a group that has members, callers that are not members.
    """
    membership = queue.memberships.get(group)
    if not command.member:
        if membership is not None and membership.members:
            raise Conflict(
                f"group {command.group} has members, so its partitions are leased by them alone: join it, and lease "
                "with the member and the generation",
                details={"group": command.group, "members": len(membership.members)},
            )
        return None, [], []
    if membership is None:
        raise unknown_member(command.member)
    member = membership.require(command.member, command.generation)
    busy = busy_partitions(queue, group)
    reach = membership.reach(member, command.generation, busy)
    free = [partition for partition in reach if membership.slots[partition].until]
    return member, reach, [records.HandedOver(now_ms, queue.number, group, free)] if free else []


def is_assigned(queue: Queue, name: str) -> bool:
    """True if this group of the queue has members."""
    group = queue.groups.get(name)
    membership = queue.memberships.get(group) if group is not None else None
    return membership is not None and bool(membership.members)


def has_changed(shard: Shard, command: commands.Lease) -> bool:
    """True for a waiting lease whose member should look again: its partitions are not what they were."""
    queue = shard.queues.get(command.queue)
    group = queue.groups.get(command.group) if queue is not None else None
    membership = queue.memberships.get(group) if queue is not None and group is not None else None
    if not command.member:
        return membership is not None and bool(membership.members)
    member = membership.members.get(command.member) if membership is not None else None
    return member is None or command.generation < member.changed


def tick(shard: Shard, now_ms: int, made: list[Record]) -> None:
    """Sessions and times to finish that ran out. `advance` has listed the groups."""
    overdue, shard.overdue_groups = shard.overdue_groups, {}
    for number, group in overdue:
        queue = shard.queues.get(number)
        membership = queue.memberships.get(group) if queue is not None else None
        if queue is None or membership is None:
            continue
        gone = membership.silent(now_ms, shard.grace)
        if gone:
            _bury(shard, queue, group, membership, gone, now_ms, made)
            made.append(_left(queue, group, membership, gone, "session_expired", now_ms))
        else:
            late = membership.late(now_ms, shard.grace)
            if late:
                release_leases(shard, queue, group, late, now_ms, made)
                made.append(records.HandedOver(now_ms, number, group, sorted(late)))
        arm(shard, number, group)


def grown(queue: Queue, partitions: int, now_ms: int) -> list[Record]:
    """Partitions are being added: assign them to the members of each group."""
    made: list[Record] = []
    for group, membership in queue.memberships.items():
        if membership.members:
            after = membership.copy()
            after.grow(partitions)
            made.append(_left(queue, group, after, [], "partitions_added", now_ms))
    return made


def _membership(queue: Queue, name: str, member: str) -> tuple[int, Membership]:
    group = queue.groups.get(name)
    membership = queue.memberships.get(group) if group is not None else None
    if group is None or membership is None:
        raise unknown_member(member)
    return group, membership


def _move(membership: Membership, members: list[str], now_ms: int) -> Move:
    owners = [slot.owner for slot in membership.slots]
    target = assign(members, owners)
    moved = [partition for partition, owner in enumerate(owners) if target[partition] != owner]
    return Move(now_ms, membership.generation + 1, moved, [target[partition] for partition in moved])


def _left(
    queue: Queue,
    group: int,
    membership: Membership,
    gone: list[str],
    reason: Literal["left", "session_expired", "partitions_added"],
    now_ms: int,
) -> records.MembersLeft:
    move = _move(membership, [member for member in membership.members if member not in gone], now_ms)
    return records.MembersLeft(
        now_ms, queue.number, group, gone, move.generation,
        reason, move.moved, move.owners,
    )  # fmt: skip


def _bury(
    shard: Shard, queue: Queue, group: int, membership: Membership, dead: list[str], now_ms: int, made: list[Record]
) -> set[int]:
    """End what these members hold, as failed; the partitions that are free because of it."""
    partitions = membership.holdings(dead, busy_partitions(queue, group))
    for lease in leases_of(shard, queue, group, partitions):
        fail(shard, lease, lease.held, "session_expired", "", 0, now_ms, made)
    return partitions


assert not NO_MEMBER, "records and slots use the empty name for no member"
