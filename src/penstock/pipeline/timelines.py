"""Timelines: the events of each message in each group in order, each with the state before it. Pure.

The input is a complete history, or new events with the stored events of open messages (`open_events`). Both give the
same timelines for the new events, which are marked `fresh`; so batches add up to the result of a complete run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.pipeline import lifecycle_rules as rules
from penstock.pipeline.history import KIND, NONE, OTHER, Flags, History, Integers, Words, numbered
from penstock.pipeline.queue_catalog import GroupFacts, QueueCatalog, QueueFacts, RangeEnd

PHASE = {phase: number for number, phase in enumerate(rules.PHASES)}
FATES = (*rules.PHASES, *rules.ENDS)
"""The state of a cell: its phase, or the event that ended it."""
FAR = 2**62


def _table(rules: dict[str, tuple[str, ...]]) -> Flags:
    """An array [kind, phase] of flags; the last phase is that of a message without an earlier event."""
    table = np.zeros((len(KIND) + 1, len(PHASE) + 1), dtype=bool)
    for kind, phases in rules.items():
        for phase in phases:
            table[KIND[kind], PHASE[phase]] = True
    return table


ALLOWED, COUNTS, REFUSED = (
    _table(rules.ALLOWED),
    _table(rules.ENDS),
    _table(rules.ENDS_REFUSED),
)
_BECOMES = np.array([PHASE[rules.BECOMES[kind]] if kind in rules.BECOMES else NONE for kind in rules.KINDS] + [NONE])
IS_CORE = _BECOMES != NONE
_IS_END = np.isin(np.arange(len(KIND) + 1), [KIND[kind] for kind in rules.ENDS])
_OF_A_GROUP = np.isin(np.arange(len(KIND) + 1), [KIND[kind] for kind in rules.OF_A_GROUP])


@dataclass(frozen=True)
class Timelines:
    """Entries by cell, and in a cell by place. A cell of group `NONE` has the events of the message for all groups."""

    history: History
    groups: list[str]
    row: Integers
    """Entry -> the row of the history."""
    cell: Integers
    cells: Integers
    """Of each cell, its first entry."""
    message: Integers
    group: Integers
    place: Integers
    kind: Integers
    fresh: Flags
    is_late: Flags
    """The message was published before the group was created, and other groups existed."""
    moment_ms: Integers
    """The time at which the entry counts: not before the group was created."""
    due_ms: Integers
    becomes: Integers
    """The phase after the entry; `NONE` for events that end messages for all groups."""
    phase: Integers
    """The phase before the entry; `NONE` if there is no earlier event."""
    ended: Integers
    """The kind of the earlier event that ended the cell; `NONE` if there was none."""
    counts: Flags
    """True for the event that ends the cell."""
    previous: Integers
    """The earlier entry that set the phase; `NONE` if there is none. The next fields are entries in the same way."""
    redriven: Integers
    leased: Integers
    published: Integers
    begun: Integers
    """The last publish, reschedule or redrive, which decides when the message is due."""
    failed: Integers
    """The last failed attempt."""
    is_first: Flags
    """True for the first delivery since the publish or the redrive."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def at_ms(self) -> Integers:
        return self.history.at_ms[self.row]

    def fates(self) -> Integers:
        """Of each cell, its state as an index of `FATES`."""
        at = np.arange(len(self))
        last = _last(IS_CORE[self.kind], at, self.cells, self.cell)[_ends_of(self.cells, len(self))]
        phase = np.where(last == NONE, NONE, self.becomes[last])
        end = np.full(len(self.cells), NONE, dtype=np.int64)
        ends = np.flatnonzero(self.counts)
        end[self.cell[ends]] = _FATE_OF_KIND[self.kind[ends]]
        return np.where(end == NONE, phase, end)

    def is_known(self) -> Flags:
        """Of each cell: True if the history has the `published` event of its message."""
        known = np.zeros(len(self.cells), dtype=bool)
        known[self.cell[self.kind == KIND["published"]]] = True
        return known


_FATE_OF_KIND = np.array([FATES.index(kind) if kind in FATES else NONE for kind in rules.KINDS] + [NONE])


def build_timelines(
    history: History, catalog: QueueCatalog, ends: Sequence[RangeEnd] = (), *, after: int = -1
) -> Timelines:
    """`ends` are the new ones of `catalog`; events after the place `after` are fresh."""
    history = _delayed(history.with_ends(ends), catalog)
    message, _ = numbered(history.queue_id, history.partition, history.offset)
    expansion = _GroupExpansion(history, message, after)
    for number in np.unique(history.queue_id):
        queue = catalog.queues.get(int(number))
        if queue is not None:
            for name, group in sorted(queue.groups.items(), key=lambda each: each[1].since):
                expansion.add_group(int(number), queue, name, group)
    return _assemble(expansion)


def _delayed(history: History, catalog: QueueCatalog) -> History:
    """The history with due times that include the delay of the queue."""
    due_ms = history.due_ms
    for number, queue in catalog.queues.items():
        if queue.delays:
            of_it = (history.queue_id == number) & (history.kind == KIND["published"])
            places = np.array([place for place, _ in queue.delays])
            delays = np.array([0, *(delay for _, delay in queue.delays)])
            delay = delays[np.searchsorted(places, history.place)]
            due_ms = np.where(of_it & (delay > 0), np.maximum(due_ms, history.at_ms + delay), due_ms)
    return replace(history, due_ms=due_ms)


class _GroupExpansion:
    """Repeats the events that concern a message in all groups, once for each group that reads the message."""

    def __init__(self, history: History, message: Integers, after: int):
        self.history, self.message, self.after = history, message, after
        self.fresh = history.place > after
        self.groups = list(history.group.words)
        everything = np.arange(len(history))
        self.row = [everything]
        self.group = [history.group.codes]
        self.place = [history.place]
        self.moment = [history.at_ms]
        self.due = [history.due_ms]
        self.late = [np.zeros(len(history), dtype=bool)]
        self.is_fresh = [self.fresh]
        count = int(message.max()) + 1 if len(message) else 0
        self.ended = np.full(count, FAR)
        ended = _IS_END[history.kind]
        np.minimum.at(self.ended, message[ended], history.place[ended])
        self.published = np.full(count, NONE)
        published = history.kind == KIND["published"]
        self.published[message[published]] = history.place[published]
        self._excluded: dict[tuple[int, str], Flags] = {}
        """(queue, group) -> messages that were finished when the group was created."""

    def add_group(self, number: int, queue: QueueFacts, name: str, group: GroupFacts) -> None:
        history = self.history
        rows = np.flatnonzero((history.queue_id == number) & (history.group.codes == NONE))
        message = self.message[rows]
        reads = (history.offset[rows] >= _starts(group, history.partition[rows])) & (self.ended[message] > group.since)
        if group.left_out is not None:
            excluded = self._excluded[number, name] = self._finished(number, queue, group.left_out)
            reads &= ~excluded[message]
        rows = rows[reads]
        if name not in self.groups:
            self.groups.append(name)
        place = history.place[rows]
        is_early = (place < group.since) & (history.kind[rows] == KIND["published"])
        is_late = is_early & (group.since > min(each.since for each in queue.groups.values()))
        self.row.append(rows)
        self.group.append(np.full(len(rows), self.groups.index(name)))
        self.place.append(np.maximum(place, group.since))
        self.moment.append(np.where(is_early, group.since_ms, history.at_ms[rows]))
        self.due.append(np.where(is_late, np.maximum(history.due_ms[rows], group.since_ms), history.due_ms[rows]))
        self.late.append(is_late)
        self.is_fresh.append(self.fresh[rows] | ((place < group.since) & (group.since > self.after)))

    def _finished(self, number: int, queue: QueueFacts, at: int) -> Flags:
        """Of each message: True if all groups that existed at this place had finished it."""
        history = self.history
        earlier = {name: group for name, group in queue.groups.items() if group.since < at}
        if not earlier:
            return np.zeros(len(self.published), dtype=bool)
        finished = (self.published != NONE) & (self.published < at)
        of_queue = (history.queue_id == number) & IS_CORE[history.kind] & (history.place < at)
        offsets = np.zeros(len(self.published), dtype=np.int64)
        parts = np.zeros(len(self.published), dtype=np.int64)
        offsets[self.message], parts[self.message] = history.offset, history.partition
        for name, group in earlier.items():
            code = self.groups.index(name) if name in self.groups else OTHER + len(self.groups)
            rows = np.flatnonzero(of_queue & (history.group.codes == code))
            rows = rows[np.argsort(history.place[rows], kind="stable")]
            phase = np.full(len(self.published), NONE)
            phase[self.message[rows]] = _becomes(history, rows)
            is_done = np.isin(phase, [PHASE[each] for each in rules.DONE])
            excluded = self._excluded.get((number, name), False)
            finished &= is_done | (offsets < _starts(group, parts)) | excluded
        return finished


def _starts(group: GroupFacts, partitions: Integers) -> Integers:
    starts = np.zeros(len(partitions), dtype=np.int64)
    for partition, start in group.starts.items():
        starts[partitions == partition] = start
    return starts


def _becomes(history: History, rows: Integers) -> Integers:
    kinds = history.kind[rows]
    phases = _BECOMES[kinds]
    at_once = (kinds == KIND["leased"]) & history.reason.is_one_of("at_most_once")[rows]
    dropped = (kinds == KIND["dead_lettered"]) & (history.kept[rows] == 0)
    return np.where(at_once, PHASE[rules.ACKED], np.where(dropped, PHASE[rules.REMOVED], phases))


def _assemble(expansion: _GroupExpansion) -> Timelines:
    row, group, place = np.concatenate(expansion.row), np.concatenate(expansion.group), np.concatenate(expansion.place)
    history, message = expansion.history, expansion.message[row]
    order = np.lexsort((history.place[row], place, group, message))
    row, group, place, message = row[order], group[order], place[order], message[order]
    cell, _ = numbered(message, group)
    count = len(row)
    cells = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]]) if count else np.zeros(0, dtype=np.int64)
    kind = history.kind[row]
    becomes = _becomes(history, row)
    at = np.arange(count)

    def before(condition: Flags) -> Integers:
        return _shifted(_last(condition, at, cells, cell), cells)

    def of(*kinds: str) -> Flags:
        return np.isin(kind, [KIND[each] for each in kinds])

    core = before(IS_CORE[kind])
    phase = np.where(core == NONE, NONE, becomes[core])
    redriven = before(of("redriven"))
    hits = COUNTS[kind, phase] & ~(of("trimmed") & (redriven != NONE))
    first_hit = np.full(len(cells), FAR)
    np.minimum.at(first_hit, cell[hits], at[hits])
    ended_by = first_hit[cell] if count else at
    began = before(of("published", "leased", "redriven"))
    return Timelines(
        history, expansion.groups, row, cell, cells, message, group, place, kind,
        fresh=np.concatenate(expansion.is_fresh)[order],
        is_late=_carried(np.concatenate(expansion.late)[order], _last(of("published"), at, cells, cell)),
        moment_ms=np.concatenate(expansion.moment)[order],
        due_ms=np.concatenate(expansion.due)[order],
        becomes=becomes,
        phase=phase,
        ended=np.where(ended_by < at, kind[np.minimum(ended_by, max(0, count - 1))], NONE),
        counts=hits & (ended_by == at),
        previous=core,
        redriven=redriven,
        leased=before(of("leased")),
        published=_last(of("published"), at, cells, cell),
        begun=before(of("published", "rescheduled", "redriven")),
        failed=before(of("retried")),
        is_first=of("leased") & (began != NONE) & (kind[began] != KIND["leased"]),
    )  # fmt: skip


def _last(condition: Flags, at: Integers, cells: Integers, cell: Integers) -> Integers:
    """Of each entry, the latest entry of its cell up to itself that satisfies the condition; `NONE` if none does."""
    found = np.maximum.accumulate(np.where(condition, at, NONE)) if len(at) else at
    return np.where(found >= cells[cell], found, NONE) if len(at) else at


def _shifted(found: Integers, cells: Integers) -> Integers:
    """The result of `_last`, without the entry itself."""
    if not len(found):
        return found
    shifted = np.r_[NONE, found[:-1]]
    shifted[cells] = NONE
    return shifted


def _carried(values: Flags, entry: Integers) -> Flags:
    return np.where(entry == NONE, False, values[entry]) if len(values) else values


def _ends_of(cells: Integers, count: int) -> Integers:
    return np.r_[cells[1:], count] - 1 if len(cells) else cells


def open_events(timelines: Timelines, catalog: QueueCatalog) -> Integers:
    """The events of open messages that later batches need, as rows of the history.

    A message is open until every group has finished it; in a queue that keeps its log, or without groups, until it has
    ended for all groups.
    """
    history = timelines.history
    fate, of_cell = timelines.fates(), timelines.cells
    group = timelines.group[of_cell] if len(of_cell) else of_cell
    in_use = np.isin(fate, [PHASE[each] for each in (*rules.LIVE, rules.DEAD)])
    stays = [number for number, queue in catalog.queues.items() if queue.keeps or not queue.groups]
    keeps = np.isin(history.queue_id[timelines.row[of_cell]], stays)
    wanted = np.where(group == NONE, keeps & (fate == PHASE[rules.PENDING]), in_use)
    is_open = np.zeros(int(timelines.message.max()) + 1 if len(timelines) else 0, dtype=bool)
    is_open[timelines.message[of_cell][wanted]] = True
    # Events that were repeated for a group are stored once, with the message.
    own = (history.group.codes[timelines.row] == timelines.group) & is_open[timelines.message]
    newest = np.zeros(len(timelines), dtype=bool)
    of_groups = own & _OF_A_GROUP[timelines.kind]
    newest[_latest(of_groups, timelines.cell)] = True
    for kind in ("leased", "redriven"):
        latest = _latest(of_groups & (timelines.kind == KIND[kind]), timelines.cell)
        newest[latest] |= in_use[timelines.cell[latest]]
    of_all = own & (timelines.group == NONE)
    moved = timelines.kind == KIND["rescheduled"]
    newest[np.flatnonzero(of_all & ~moved)] = True
    newest[_latest(of_all & moved, timelines.cell)] = True
    # Keep end events that did not apply, with the entries that decided it, so that the next batch skips them again.
    passed = _IS_END[timelines.kind] & ~timelines.counts & is_open[timelines.message] & (timelines.group != NONE)
    for entry in (timelines.previous[passed], timelines.redriven[passed]):
        newest[entry[entry != NONE]] = True
    for queue, before in _beginnings(catalog, np.unique(history.queue_id)):
        # A group that was created later needs the phases of the other groups at that place.
        of_queue = (history.queue_id[timelines.row] == queue) & (timelines.place < before)
        newest[_latest(of_groups & IS_CORE[timelines.kind] & of_queue, timelines.cell)] = True
    return np.unique(timelines.row[newest])


def _beginnings(catalog: QueueCatalog, queues: Integers) -> list[tuple[int, int]]:
    """(queue, place) of groups that do not read messages which the earlier groups had finished at that place."""
    found = []
    for number in queues.tolist():
        groups = catalog.queues[number].groups.values() if number in catalog.queues else ()
        first = min((group.since for group in groups), default=FAR)
        found += [(number, group.left_out) for group in groups if group.left_out is not None and first < group.left_out]
    return found


def _latest(condition: Flags, cell: Integers) -> Integers:
    """Of each cell, the last entry that satisfies the condition."""
    entries = np.flatnonzero(condition)
    if not len(entries):
        return entries
    return entries[np.r_[cell[entries][1:] != cell[entries][:-1], True]]


def group_name(timelines: Timelines, code: int) -> str | None:
    return None if code == NONE else timelines.groups[code]


def words_of(words: Words, rows: Integers) -> list[Any]:
    """The texts of these rows."""
    known = [*words.words, None]
    return [known[code] for code in words.codes[rows]]
