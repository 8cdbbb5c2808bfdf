"""Numbers per queue, group and minute from the lives of messages. Those of two batches, or two slots, add up. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from penstock.analytics import sketch, tables
from penstock.pipeline import fates
from penstock.pipeline.fingerprints import pattern_of
from penstock.pipeline.ground import Ground
from penstock.pipeline.history import KIND, NONE, Flags, Integers, numbered
from penstock.pipeline.lives import PHASE, Lives, group_name, words_of

K = TypeVar("K")

MINUTE_MS = 60_000


class Minute(NamedTuple):
    queue_id: int
    group: str | None
    minute_ms: int


class Worker(NamedTuple):
    minute: Minute
    consumer: str


class Failure(NamedTuple):
    minute: Minute
    pattern: str
    reason: str


class Example(NamedTuple):
    place: int
    error: str
    partition: int
    offset: int


class Tallies(msgspec.Struct):
    """Everything that is counted."""

    counts: dict[Minute, list[int]] = {}
    """By the names of `COUNTED`."""
    sketches: dict[Minute, list[dict[int, int]]] = {}
    """By the names of `tables.MEASURES`."""
    workers: dict[Worker, list[int]] = {}
    """By the names of `WORKED`."""
    failures: dict[Failure, int] = {}
    examples: dict[Failure, Example] = {}

    def add(self, other: Tallies) -> None:
        _add_up(self.counts, other.counts)
        _add_up(self.workers, other.workers)
        for minute, sketches in other.sketches.items():
            before = self.sketches.get(minute, [{} for _ in sketches])
            self.sketches[minute] = [sketch.merged(pair) for pair in zip(before, sketches, strict=True)]
        for failure, count in other.failures.items():
            self.failures[failure] = self.failures.get(failure, 0) + count
            self.examples[failure] = min(self.examples.get(failure, other.examples[failure]), other.examples[failure])


def _add_up(mine: dict[K, list[int]], theirs: dict[K, list[int]]) -> None:
    for key, numbers in theirs.items():
        known = mine.get(key)
        mine[key] = numbers if known is None else [a + b for a, b in zip(known, numbers, strict=True)]


CHANGES = ("came", "went", "died", "undead")
COUNTED = (*tables.COUNTS, *CHANGES)
WORKED = ("delivered", "acked", "failed", "lost", "processing_ms")


def tally(lives: Lives, ground: Ground) -> Tallies:
    """What is fresh."""
    minute = lives.moment_ms // MINUTE_MS * MINUTE_MS
    what = _conditions(lives, ground)
    found = Tallies()
    chosen = np.flatnonzero(lives.fresh)
    if not len(chosen):
        return found
    queue = lives.history.queue_id[lives.row]
    number, firsts = numbered(queue[chosen], lives.group[chosen], minute[chosen])
    firsts = chosen[firsts]
    minutes = [Minute(int(queue[at]), group_name(lives, int(lives.group[at])), int(minute[at])) for at in firsts]
    sums = [np.bincount(number, what[name][chosen], len(firsts)).astype(np.int64) for name in COUNTED]
    for at, key in enumerate(minutes):
        numbers = [int(each[at]) for each in sums]
        if any(numbers):
            found.counts[key] = numbers
    of_entry = np.full(len(lives), NONE)
    of_entry[chosen] = number
    _time(lives, what, of_entry, minutes, found)
    _work(lives, what, of_entry, minutes, found)
    _fail(lives, what, of_entry, minutes, found)
    return found


def _conditions(lives: Lives, ground: Ground) -> dict[str, Flags]:
    kind, phase = lives.kind, lives.phase

    def of(name: str) -> Flags:
        return kind == KIND[name]

    acked = lives.becomes == PHASE[fates.ACKED]
    live = np.isin(phase, [PHASE[each] for each in fates.LIVE])
    expired = lives.history.reason.is_one_of("lease_expired", "session_expired")[lives.row]
    counts = lives.counts & ~_told_by_groups(lives, ground)
    return {
        "published": of("published"),
        "delivered": of("leased"),
        "redelivered": of("leased") & ~lives.is_first,
        "acked": acked,
        "retried": of("retried"),
        "lease_expired": of("retried") & expired,
        "released": of("released"),
        "dead_lettered": of("dead_lettered"),
        "redriven": of("redriven"),
        "removed": of("dead_letters_removed"),
        **{name: counts & of(name) for name in fates.ENDS},
        "came": of("published") | of("redriven"),
        "went": acked | of("dead_lettered") | (counts & live),
        "died": lives.becomes == PHASE[fates.DEAD],
        "undead": of("redriven") | of("dead_letters_removed") | (counts & (phase == PHASE[fates.DEAD])),
    }


def _told_by_groups(lives: Lives, ground: Ground) -> Flags:
    """Ends in the line of a queue itself that its groups tell of.

    What is purged, trimmed or deleted is lost by the groups, if there are any. In the line of the queue it would count
    what everybody had finished long ago, or not, depending on what is still remembered.
    """
    whole = np.isin(lives.kind, [KIND[each] for each in ("trimmed", "purged", "deleted")]) & (lives.group == NONE)
    begun = np.zeros(len(lives), dtype=bool)
    queue = lives.history.queue_id[lives.row]
    for number in np.unique(queue[whole]):
        groups = ground.meet(int(number), None).groups.values()
        begins = min((group.since for group in groups), default=2**62)
        begun |= (queue == number) & (lives.place > begins)
    return whole & begun


def _time(
    lives: Lives, what: dict[str, Flags], of_entry: Integers, minutes: list[Minute], found: Tallies
) -> None:  # fmt: skip
    at_ms, grouped = lives.at_ms, lives.group != NONE
    due = np.where(lives.due_ms == NONE, at_ms, lives.due_ms)
    took = (
        (lives.is_first & (lives.begun != NONE), np.maximum(at_ms - due[lives.begun], 0)),
        (_processed(lives, what), at_ms - at_ms[lives.leased]),
        (what["acked"] & ~lives.is_late & (lives.published != NONE), at_ms - at_ms[lives.published]),
    )
    for measure, (condition, ms) in enumerate(took):
        chosen = np.flatnonzero(condition & grouped & (of_entry != NONE))
        bucket = sketch.buckets_of(ms[chosen])
        number, firsts = numbered(of_entry[chosen], bucket)
        for at, count in zip(firsts, np.bincount(number, minlength=len(firsts)), strict=True):
            sketches = found.sketches.setdefault(minutes[of_entry[chosen[at]]], [{}, {}, {}])
            sketches[measure][int(bucket[at])] = int(count)


def _processed(lives: Lives, what: dict[str, Flags]) -> Flags:
    """Settled by whoever had it. A lease that ran out says nothing about how long the work takes."""
    settled = (lives.kind == KIND["acked"]) | what["dead_lettered"] | (what["retried"] & ~what["lease_expired"])
    return settled & (lives.leased != NONE)


def _work(
    lives: Lives, what: dict[str, Flags], of_entry: Integers, minutes: list[Minute], found: Tallies
) -> None:  # fmt: skip
    involved = what["delivered"] | what["acked"] | what["retried"] | what["dead_lettered"]
    chosen = np.flatnonzero(involved & (of_entry != NONE) & (lives.group != NONE))
    holder = np.where(lives.kind == KIND["leased"], np.arange(len(lives)), lives.leased)[chosen]
    codes = lives.history.consumer.codes[lives.row[holder]]
    consumer = np.where(holder == NONE, NONE, codes)
    number, firsts = numbered(of_entry[chosen], consumer)
    processed = _processed(lives, what)
    spent = np.where(processed, lives.at_ms - lives.at_ms[lives.leased], 0)
    columns = (
        what["delivered"], what["acked"], what["dead_lettered"] | (what["retried"] & ~what["lease_expired"]),
        what["lease_expired"], spent,
    )  # fmt: skip
    sums = [np.bincount(number, column[chosen], len(firsts)).astype(np.int64) for column in columns]
    words = lives.history.consumer.words
    for at, first in enumerate(firsts):
        name = "" if consumer[first] == NONE else words[consumer[first]]
        found.workers[Worker(minutes[of_entry[chosen[first]]], name)] = [int(each[at]) for each in sums]


def _fail(
    lives: Lives, what: dict[str, Flags], of_entry: Integers, minutes: list[Minute], found: Tallies
) -> None:  # fmt: skip
    history = lives.history
    chosen = np.flatnonzero(what["dead_lettered"] & (of_entry != NONE))
    rows = lives.row[chosen]
    failed = np.where(lives.failed[chosen] == NONE, rows, lives.row[lives.failed[chosen]])
    own, earlier, reasons = (
        words_of(history.error, rows),
        words_of(history.error, failed),
        words_of(history.reason, rows),
    )
    patterns: dict[str, str] = {}
    for at, entry in enumerate(chosen):
        error = own[at] or earlier[at] or ""
        pattern = patterns.get(error)
        if pattern is None:
            pattern = patterns[error] = pattern_of(error)
        key = Failure(minutes[of_entry[entry]], pattern, reasons[at] or "")
        row = rows[at]
        example = Example(int(lives.place[entry]), error, int(history.partition[row]), int(history.offset[row]))
        found.failures[key] = found.failures.get(key, 0) + 1
        found.examples[key] = min(found.examples.get(key, example), example)


def encode(tallies: Tallies) -> bytes:
    """For the way from a task to the driver."""
    return msgspec.msgpack.encode(
        [
            list(tallies.counts.items()), list(tallies.sketches.items()), list(tallies.workers.items()),
            list(tallies.failures.items()), list(tallies.examples.items()),
        ]
    )  # fmt: skip


def decode(data: bytes) -> Tallies:
    counts, sketches, workers, failures, examples = msgspec.msgpack.decode(
        data,
        type=tuple[
            list[tuple[Minute, list[int]]],
            list[tuple[Minute, list[dict[int, int]]]],
            list[tuple[Worker, list[int]]],
            list[tuple[Failure, int]],
            list[tuple[Failure, Example]],
        ],
    )
    return Tallies(dict(counts), dict(sketches), dict(workers), dict(failures), dict(examples))


def standing_changes(numbers: list[int]) -> tuple[int, int]:
    """How many more are live, and dead."""
    came, went, died, undead = numbers[-len(CHANGES) :]
    return came - went, died - undead


def named(numbers: list[int]) -> dict[str, Any]:
    return dict(zip(tables.COUNTS, numbers, strict=False))
