"""Counts per queue, group and minute, from timelines. Tallies of two batches, or of two slots, can be added. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from penstock.analytics import sketch, tables
from penstock.fingerprints import pattern_of
from penstock.pipeline import lifecycle_rules as rules
from penstock.pipeline.history import KIND, NONE, Flags, Integers, numbered
from penstock.pipeline.queue_catalog import QueueCatalog
from penstock.pipeline.timelines import PHASE, Timelines, group_name, words_of

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
    """All counts of a batch or a slot."""

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


def tally(timelines: Timelines, catalog: QueueCatalog) -> Tallies:
    """The tallies of the fresh entries."""
    minute = timelines.moment_ms // MINUTE_MS * MINUTE_MS
    what = _conditions(timelines, catalog)
    found = Tallies()
    chosen = np.flatnonzero(timelines.fresh)
    if not len(chosen):
        return found
    queue = timelines.history.queue_id[timelines.row]
    number, firsts = numbered(queue[chosen], timelines.group[chosen], minute[chosen])
    firsts = chosen[firsts]
    minutes = [
        Minute(int(queue[at]), group_name(timelines, int(timelines.group[at])), int(minute[at])) for at in firsts
    ]
    sums = [np.bincount(number, what[name][chosen], len(firsts)).astype(np.int64) for name in COUNTED]
    for at, key in enumerate(minutes):
        numbers = [int(each[at]) for each in sums]
        if any(numbers):
            found.counts[key] = numbers
    of_entry = np.full(len(timelines), NONE)
    of_entry[chosen] = number
    _time(timelines, what, of_entry, minutes, found)
    _work(timelines, what, of_entry, minutes, found)
    _fail(timelines, what, of_entry, minutes, found)
    return found


def _conditions(timelines: Timelines, catalog: QueueCatalog) -> dict[str, Flags]:
    kind, phase = timelines.kind, timelines.phase

    def of(name: str) -> Flags:
        return kind == KIND[name]

    acked = timelines.becomes == PHASE[rules.ACKED]
    live = np.isin(phase, [PHASE[each] for each in rules.LIVE])
    expired = timelines.history.reason.is_one_of("lease_expired", "session_expired")[timelines.row]
    counts = timelines.counts & ~_counted_by_groups(timelines, catalog)
    return {
        "published": of("published"),
        "delivered": of("leased"),
        "redelivered": of("leased") & ~timelines.is_first,
        "acked": acked,
        "retried": of("retried"),
        "lease_expired": of("retried") & expired,
        "released": of("released"),
        "dead_lettered": of("dead_lettered"),
        "redriven": of("redriven"),
        "removed": of("dead_letters_removed"),
        **{name: counts & of(name) for name in rules.ENDS},
        "came": of("published") | of("redriven"),
        "went": acked | of("dead_lettered") | (counts & live),
        "died": timelines.becomes == PHASE[rules.DEAD],
        "undead": of("redriven") | of("dead_letters_removed") | (counts & (phase == PHASE[rules.DEAD])),
    }


def _counted_by_groups(timelines: Timelines, catalog: QueueCatalog) -> Flags:
    """Purges, trims and deletions of a queue that has groups: the groups count the messages that they lose.

    On the row of the queue the count would include messages that all groups had finished, if they are still stored.
    """
    whole = np.isin(timelines.kind, [KIND[each] for each in ("trimmed", "purged", "deleted")]) & (
        timelines.group == NONE
    )
    begun = np.zeros(len(timelines), dtype=bool)
    queue = timelines.history.queue_id[timelines.row]
    for number in np.unique(queue[whole]):
        groups = catalog.ensure(int(number), None).groups.values()
        begins = min((group.since for group in groups), default=2**62)
        begun |= (queue == number) & (timelines.place > begins)
    return whole & begun


def _time(
    timelines: Timelines, what: dict[str, Flags], of_entry: Integers, minutes: list[Minute], found: Tallies
) -> None:  # fmt: skip
    at_ms, grouped = timelines.at_ms, timelines.group != NONE
    due = np.where(timelines.due_ms == NONE, at_ms, timelines.due_ms)
    took = (
        (timelines.is_first & (timelines.begun != NONE), np.maximum(at_ms - due[timelines.begun], 0)),
        (_processed(timelines, what), at_ms - at_ms[timelines.leased]),
        (what["acked"] & ~timelines.is_late & (timelines.published != NONE), at_ms - at_ms[timelines.published]),
    )
    for measure, (condition, ms) in enumerate(took):
        chosen = np.flatnonzero(condition & grouped & (of_entry != NONE))
        bucket = sketch.buckets_of(ms[chosen])
        number, firsts = numbered(of_entry[chosen], bucket)
        for at, count in zip(firsts, np.bincount(number, minlength=len(firsts)), strict=True):
            sketches = found.sketches.setdefault(minutes[of_entry[chosen[at]]], [{}, {}, {}])
            sketches[measure][int(bucket[at])] = int(count)


def _processed(timelines: Timelines, what: dict[str, Flags]) -> Flags:
    """Settled by the consumer. A lease that expired does not say how long the work takes."""
    settled = (timelines.kind == KIND["acked"]) | what["dead_lettered"] | (what["retried"] & ~what["lease_expired"])
    return settled & (timelines.leased != NONE)


def _work(
    timelines: Timelines, what: dict[str, Flags], of_entry: Integers, minutes: list[Minute], found: Tallies
) -> None:  # fmt: skip
    involved = what["delivered"] | what["acked"] | what["retried"] | what["dead_lettered"]
    chosen = np.flatnonzero(involved & (of_entry != NONE) & (timelines.group != NONE))
    holder = np.where(timelines.kind == KIND["leased"], np.arange(len(timelines)), timelines.leased)[chosen]
    codes = timelines.history.consumer.codes[timelines.row[holder]]
    consumer = np.where(holder == NONE, NONE, codes)
    number, firsts = numbered(of_entry[chosen], consumer)
    processed = _processed(timelines, what)
    spent = np.where(processed, timelines.at_ms - timelines.at_ms[timelines.leased], 0)
    columns = (
        what["delivered"], what["acked"], what["dead_lettered"] | (what["retried"] & ~what["lease_expired"]),
        what["lease_expired"], spent,
    )  # fmt: skip
    sums = [np.bincount(number, column[chosen], len(firsts)).astype(np.int64) for column in columns]
    words = timelines.history.consumer.words
    for at, first in enumerate(firsts):
        name = "" if consumer[first] == NONE else words[consumer[first]]
        found.workers[Worker(minutes[of_entry[chosen[first]]], name)] = [int(each[at]) for each in sums]


def _fail(
    timelines: Timelines, what: dict[str, Flags], of_entry: Integers, minutes: list[Minute], found: Tallies
) -> None:  # fmt: skip
    history = timelines.history
    chosen = np.flatnonzero(what["dead_lettered"] & (of_entry != NONE))
    rows = timelines.row[chosen]
    failed = np.where(timelines.failed[chosen] == NONE, rows, timelines.row[timelines.failed[chosen]])
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
        example = Example(int(timelines.place[entry]), error, int(history.partition[row]), int(history.offset[row]))
        found.failures[key] = found.failures.get(key, 0) + 1
        found.examples[key] = min(found.examples.get(key, example), example)


def encode(tallies: Tallies) -> bytes:
    """The result of a task, for the driver."""
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
    """(change of the number of live messages, change of the number of dead messages)."""
    came, went, died, undead = numbers[-len(CHANGES) :]
    return came - went, died - undead


def named(numbers: list[int]) -> dict[str, Any]:
    return dict(zip(tables.COUNTS, numbers, strict=False))
