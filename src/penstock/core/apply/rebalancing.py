"""Applying changes of membership: members joined or left, partitions handed over."""

from __future__ import annotations

from penstock.core import records
from penstock.core.state import Shard
from penstock.core.state.members import Membership, Move
from penstock.core.state.sessions import arm, busy_partitions


def apply_joined(shard: Shard, record: records.MemberJoined) -> None:
    queue = shard.queues[record.queue]
    membership = queue.memberships.get(record.group)
    if membership is None:
        membership = queue.memberships[record.group] = Membership(len(queue.partitions))
    move = Move(record.at, record.generation, record.moved, record.owners)
    busy = busy_partitions(queue, record.group)
    membership.join(record.member, record.session_ms, record.drain_ms, move, busy)
    arm(shard, record.queue, record.group)


def apply_left(shard: Shard, record: records.MembersLeft) -> None:
    queue = shard.queues[record.queue]
    move = Move(record.at, record.generation, record.moved, record.owners)
    queue.memberships[record.group].leave(record.members, move, busy_partitions(queue, record.group))
    arm(shard, record.queue, record.group)


def apply_handed_over(shard: Shard, record: records.HandedOver) -> None:
    shard.queues[record.queue].memberships[record.group].hand_over(record.partitions)
