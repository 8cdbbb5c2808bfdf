"""Holds: what an archive has not copied yet is not let go.

A hold has a name, a frame of the journal and offsets of queues. As long as it stands, journal files from that frame on
stay, and so do messages from those offsets on, also when everybody has finished them and retention would let them go.
It does not keep messages alive: groups see nothing of it, and who purges or deletes a queue means it.

A hold has a bound. When what it spans is more than that, it is let go, and remembered as lost until its owner has taken
note of that: a broker that fills the disk for an archive that has stopped serves nobody.
"""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision, queue_of
from penstock.core.state import Hold, Queue, Shard
from penstock.errors import Conflict, InvalidRequest


def set_hold(shard: Shard, command: commands.SetHold, now_ms: int) -> Decision:
    """Make the hold, or move it to these places. Answers with it."""
    known = shard.holds.get(command.name)
    if known is None and len(shard.holds) >= limits.HOLDS_MAX:
        raise Conflict(f"there are {limits.HOLDS_MAX} holds already, which is the limit; delete one")
    if known is not None and known.lost_at:
        raise Conflict(
            f"hold {command.name!r} spanned more than its {known.max_bytes} bytes and was let go; what it held may be "
            "gone. Delete it to take note of that, then set it again",
            details={"lost_at_ms": known.lost_at},
        )
    flat: list[int] = []
    for number, offsets in sorted(command.offsets.items()):
        queue = queue_of(shard, number)
        for partition, offset in sorted((offsets or {0: 0}).items()):
            if not 0 <= partition < len(queue.partitions):
                raise InvalidRequest(
                    f"queues: queue {queue.path} has partitions 0 to {len(queue.partitions) - 1}, not {partition}",
                    details={"field": "queues"},
                )
            if offset > queue.partitions[partition].end:
                raise InvalidRequest(
                    f"queues: partition {partition} of {queue.path} ends at {queue.partitions[partition].end}, before "
                    f"{offset}",
                    details={"field": "queues"},
                )
            flat += (number, partition, offset)
    made = records.HoldSet(now_ms, command.name, command.max_bytes, command.frame, flat)
    hold = _hold_of(made)
    if known is not None and known == msgspec.structs.replace(hold, set_at=known.set_at):
        return Decision([], known)  # where it is
    return Decision([made], hold)


def end(shard: Shard, command: commands.EndHold, now_ms: int) -> Decision:
    """Answers whether there was one."""
    known = shard.holds.get(command.name)
    if known is None or (command.reason == "max_bytes" and known.lost_at):
        return Decision([], False)
    return Decision([records.HoldEnded(now_ms, command.name, command.reason)], True)


def apply_set(shard: Shard, record: records.HoldSet) -> None:
    shard.holds[record.name] = _hold_of(record)
    follow(shard)


def apply_ended(shard: Shard, record: records.HoldEnded) -> None:
    if record.reason == "removed":
        del shard.holds[record.name]
    else:
        shard.holds[record.name].lost_at = record.at
    follow(shard)


def forget_queue(shard: Shard, number: int) -> None:
    """It was deleted: there is nothing to hold any more."""
    for hold in shard.holds.values():
        hold.offsets.pop(number, None)


def follow(shard: Shard) -> None:
    """Tell every partition from where on it is held."""
    for queue in shard.queues.values():
        follow_queue(shard, queue)


def follow_queue(shard: Shard, queue: Queue) -> None:
    """The same for one queue, after it got partitions or other ones."""
    holding = [hold.offsets[queue.number] for hold in _standing(shard) if queue.number in hold.offsets]
    for number, partition in enumerate(queue.partitions):
        partition.held_from = min([offsets.get(number, 0) for offsets in holding], default=None)


def journal_held_from(shard: Shard) -> int | None:
    """The first frame that somebody still wants; None if nobody does."""
    return min([hold.index for hold in _standing(shard) if hold.index], default=None)


def _standing(shard: Shard) -> list[Hold]:
    return [hold for hold in shard.holds.values() if not hold.lost_at]


def _hold_of(record: records.HoldSet) -> Hold:
    offsets: dict[int, dict[int, int]] = {}
    flat = record.offsets
    for queue, partition, offset in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        offsets.setdefault(queue, {})[partition] = offset
    return Hold(record.name, record.max_bytes, record.index, offsets, record.at)
