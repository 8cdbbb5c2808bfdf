"""Holds: what an archive has not copied yet is not let go.

A hold has a name, a frame of the journal and offsets of queues. As long as it stands, journal files from that frame on
stay, and so do messages from those offsets on, also when all groups have finished them and retention would remove them.
A hold does not change deliveries: groups do not see it, and a purge or a deletion of the queue overrides it.

A hold has a bound. When what it spans is more than that, it is let go, and remembered as lost until its owner has taken
note of that: an archive that has stopped must not fill the disk of the broker.
"""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision, queue_of
from penstock.core.state import Shard
from penstock.core.state.holds import hold_of
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
    hold = hold_of(made)
    if known is not None and known == msgspec.structs.replace(hold, set_at=known.set_at):
        return Decision([], known)  # where it is
    return Decision([made], hold)


def end(shard: Shard, command: commands.EndHold, now_ms: int) -> Decision:
    """Answers whether there was one."""
    known = shard.holds.get(command.name)
    if known is None or (command.reason == "max_bytes" and known.lost_at):
        return Decision([], False)
    return Decision([records.HoldEnded(now_ms, command.name, command.reason)], True)
