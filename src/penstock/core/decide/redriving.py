"""Deciding about dead letters: brought back, copied to another queue, deleted, or let go when there are too many.

The letters were selected before, by reading the messages; a decision is made on the present state. A letter that was
removed meanwhile, or was given up again, is skipped.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

from penstock import limits
from penstock.core import commands, records
from penstock.core.commands import Letter, Publish
from penstock.core.decide.publishing import decide_publish
from penstock.core.decision import Decision, queue_of
from penstock.core.offsets.ranges import RangeSet
from penstock.core.records import Record
from penstock.core.state import Queue, Shard
from penstock.core.state.dead_letters import Redrive, oldest_first
from penstock.errors import Conflict


def start(shard: Shard, command: commands.StartRedrive, now_ms: int) -> Decision:
    queue = queue_of(shard, command.queue)
    known = queue.redrives.get(command.redrive)
    if known is not None:
        if not _same(known, command):
            raise Conflict(
                f"redrive {command.redrive!r} of queue {queue.path} was started with other terms; choose another id",
                details={"redrive_id": command.redrive},
            )
        return Decision([], None)
    running = [redrive.id for redrive in queue.redrives.values() if redrive.running]
    if len(running) >= limits.REDRIVES_RUNNING_MAX:
        raise Conflict(
            f"queue {queue.path} has {len(running)} redrives under way already, which is the limit",
            details={"redrives": running},
        )
    return Decision([records.RedriveStarted(now_ms, *command)], None)


def _same(known: Redrive, command: commands.StartRedrive) -> bool:
    return (known.group, known.filter, known.target, known.delay_ms, known.priority, known.rate_per_s) == (
        command.group, command.filter, command.target, command.delay_ms, command.priority, command.rate_per_s
    ) and known.named(command.ids)  # fmt: skip


def step(shard: Shard, command: commands.RedriveLetters, now_ms: int) -> Decision:
    """The letters that are still there go where the redrive says, and leave the dead ones, all in one decision."""
    queue = queue_of(shard, command.queue)
    redrive = queue.redrives.get(command.redrive)
    if redrive is None or not redrive.running:
        return Decision([], 0)
    rows = _present(queue, command.letters)
    letters = [command.letters[row] for row in rows]
    if not letters:
        return Decision([], 0)
    made: list[Record] = []
    if command.target is None:
        due = now_ms + redrive.delay_ms
        for (partition, group), ranges in _grouped(letters).items():
            made.append(records.Redriven(now_ms, queue.number, partition, group, ranges, due, redrive.id))
        return Decision(made, len(letters))
    part = command.target
    if len(rows) < part.batch.count:
        part = part._replace(batch=part.batch.pick(rows))
    published, _ = decide_publish(shard, Publish([part], command.entropy), now_ms)
    return Decision([*_removed(queue, letters, "copied", now_ms, redrive.id), *published], len(letters))


def end(shard: Shard, command: commands.EndRedrive, now_ms: int) -> Decision:
    redrive = queue_of(shard, command.queue).redrives.get(command.redrive)
    if redrive is None or not redrive.running:
        return Decision([], None)
    return Decision([records.RedriveEnded(now_ms, *command)], None)


def delete(shard: Shard, command: commands.DeleteLetters, now_ms: int) -> Decision:
    queue = queue_of(shard, command.queue)
    letters = [command.letters[row] for row in _present(queue, command.letters)]
    return Decision(_removed(queue, letters, "deleted", now_ms), len(letters))


def prune(shard: Shard, command: commands.PruneLetters, now_ms: int) -> Decision:
    """Up to `limits.PRUNE_STEP` of the oldest that are too old or too many; answers how many. 0: all is in bounds."""
    queue = queue_of(shard, command.queue)
    config = queue.config
    made: list[Record] = []
    excess = queue.dead_letters() - (config.dead_letter_max or 2**62)
    too_old = now_ms - config.dead_letter_ttl_ms if config.dead_letter_ttl_ms is not None else -1
    expired: list[Letter] = []
    over: list[Letter] = []
    oldest = oldest_first([partition.dead for partition in queue.partitions])
    for (dead_at, partition, offset, group), _ in islice(oldest, limits.PRUNE_STEP):
        if dead_at <= too_old:
            expired.append(Letter(partition, group, offset, dead_at))
        elif len(expired) + len(over) < excess:
            over.append(Letter(partition, group, offset, dead_at))
        else:
            break
    for letters, reason in ((expired, "expired"), (over, "limit")):
        made += _removed(queue, letters, reason, now_ms)  # type: ignore[arg-type]
    return Decision(made, len(expired) + len(over))


def _removed(
    queue: Queue, letters: list[Letter], reason: Literal["deleted", "expired", "limit", "copied"], now_ms: int,
    redrive: str = "",
) -> list[Record]:  # fmt: skip
    return [
        records.DeadLettersRemoved(now_ms, queue.number, partition, group, ranges, reason, redrive)
        for (partition, group), ranges in _grouped(letters).items()
    ]


def _grouped(letters: list[Letter]) -> dict[tuple[int, int], list[int]]:
    """(partition, group) -> flat ranges of offsets."""
    found: dict[tuple[int, int], list[int]] = {}
    for letter in letters:
        found.setdefault((letter.partition, letter.group), []).append(letter.offset)
    return {
        place: RangeSet([(offset, offset + 1) for offset in sorted(offsets)]).flat() for place, offsets in found.items()
    }


def _present(queue: Queue, letters: list[Letter]) -> list[int]:
    """Which of them are still there, each once."""
    first = {letter: row for row, letter in reversed(list(enumerate(letters)))}
    return [row for row, letter in enumerate(letters) if first[letter] == row and _is_there(queue, letter)]


def _is_there(queue: Queue, letter: Letter) -> bool:
    if letter.partition >= len(queue.partitions):
        return False
    present = queue.partitions[letter.partition].dead.get(letter.group, letter.offset)
    return present is not None and present.dead_at == letter.dead_at
