"""Positions that readers of the log leave with the broker, by a name of their own (`client_id`).

A position does not delay retention: a reader that comes too late is told the offsets that it missed. A position that is
not used for thirty days is removed.
"""

from __future__ import annotations

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision, queue_of
from penstock.core.state import KeptOffsets, Queue, Shard
from penstock.errors import Conflict, InvalidRequest

REFRESH_MS = 24 * 3_600_000
"""A use is written down if the last one is longer ago than this."""


def keep(shard: Shard, command: commands.KeepOffsets, now_ms: int) -> Decision:
    """Keep these positions; those of partitions that are not named stay. Answers with all of them.

    Without any it is a question, and counts as a use.
    """
    queue = queue_of(shard, command.queue)
    kept = kept_of(queue, command.client, now_ms)
    if kept is None and not command.offsets:
        return Decision([], None)
    for number, offset in command.offsets.items():
        if not 0 <= number < len(queue.partitions):
            raise InvalidRequest(
                f"offsets: queue {queue.path} has partitions 0 to {len(queue.partitions) - 1}, not {number}",
                details={"field": "offsets"},
            )
        if offset > queue.partitions[number].end:
            raise InvalidRequest(
                f"offsets: partition {number} ends at {queue.partitions[number].end}, before {offset}",
                details={"field": "offsets"},
            )
    if kept is None and not _has_room(queue, now_ms):
        raise Conflict(
            f"queue {queue.path} keeps the offsets of {limits.READERS_PER_QUEUE_MAX} readers already, which is the "
            "limit; delete some, or wait until they are forgotten",
        )
    before = {} if kept is None else kept.offsets
    after = {**before, **command.offsets}
    if kept is not None and after == before and kept.used_at > now_ms - REFRESH_MS:
        return Decision([], kept)
    flat = [value for pair in sorted(after.items()) for value in pair]
    return Decision([records.OffsetsKept(now_ms, queue.number, command.client, flat)], KeptOffsets(after, now_ms))


def forget(shard: Shard, command: commands.ForgetOffsets, now_ms: int) -> Decision:
    queue = queue_of(shard, command.queue)
    if command.client not in queue.readers:
        return Decision([], None)
    return Decision([records.OffsetsKept(now_ms, queue.number, command.client, [])], None)


def kept_of(queue: Queue, client: str, now_ms: int) -> KeptOffsets | None:
    """The stored position of this reader, if there is one."""
    kept = queue.readers.get(client)
    return None if kept is None or kept.used_at <= now_ms - limits.READER_FORGOTTEN_MS else kept


def _has_room(queue: Queue, now_ms: int) -> bool:
    if len(queue.readers) < limits.READERS_PER_QUEUE_MAX:
        return True
    # Those that are forgotten are let go with the record: the one that was used longest ago is the first.
    return next(iter(queue.readers.values())).used_at <= now_ms - limits.READER_FORGOTTEN_MS
