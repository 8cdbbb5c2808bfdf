"""Holds as state: the offsets and journal frames that a hold keeps from being removed."""

from __future__ import annotations

from penstock.core import records
from penstock.core.state.shard import Hold, Queue, Shard


def follow(shard: Shard) -> None:
    """Tell every partition from where on it is held."""
    for queue in shard.queues.values():
        follow_queue(shard, queue)


def follow_queue(shard: Shard, queue: Queue) -> None:
    """The same for one queue, after it got partitions or other ones."""
    holding = [hold.offsets[queue.number] for hold in _standing(shard) if queue.number in hold.offsets]
    for number, partition in enumerate(queue.partitions):
        held_from = min([offsets.get(number, 0) for offsets in holding], default=None)
        if partition.held_from != held_from:
            queue.partitions[number].held_from = held_from


def journal_held_from(shard: Shard) -> int | None:
    """The first frame that a hold still needs; None if there is none."""
    return min([hold.index for hold in _standing(shard) if hold.index], default=None)


def _standing(shard: Shard) -> list[Hold]:
    return [hold for hold in shard.holds.values() if not hold.lost_at]


def hold_of(record: records.HoldSet) -> Hold:
    offsets: dict[int, dict[int, int]] = {}
    flat = record.offsets
    for queue, partition, offset in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        offsets.setdefault(queue, {})[partition] = offset
    return Hold(record.name, record.max_bytes, record.index, offsets, record.at)
