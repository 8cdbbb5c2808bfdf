"""From events to the lives of messages: for everything that happened to a message in a group, what went before. Pure.

The input is a set of events: a whole history, or new events together with those that are left of messages whose life
is not over (`left_open`). Either way the same is done, so an account that grows batch by batch is the same as one in a
single go. Only what is `fresh` is new; the rest is there to be remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.pipeline import fates
from penstock.pipeline.ground import End, Ground, Group, Queue
from penstock.pipeline.history import KIND, NONE, OTHER, Flags, History, Integers, Words, numbered

PHASE = {phase: number for number, phase in enumerate(fates.PHASES)}
FATES = (*fates.PHASES, *fates.ENDS)
"""What has become of a cell: its phase, or what ended it."""
FAR = 2**62


def _table(rules: dict[str, tuple[str, ...]]) -> Flags:
    """[kind, phase] -> whether; the last phase is that of a message of which nothing is known."""
    table = np.zeros((len(KIND) + 1, len(PHASE) + 1), dtype=bool)
    for kind, phases in rules.items():
        for phase in phases:
            table[KIND[kind], PHASE[phase]] = True
    return table


ALLOWED, COUNTS, REFUSED = _table(fates.ALLOWED), _table(fates.ENDS), _table(fates.ENDS_REFUSED)
_BECOMES = np.array([PHASE[fates.BECOMES[kind]] if kind in fates.BECOMES else NONE for kind in fates.KINDS] + [NONE])
IS_CORE = _BECOMES != NONE
_IS_END = np.isin(np.arange(len(KIND) + 1), [KIND[kind] for kind in fates.ENDS])
_OF_A_GROUP = np.isin(np.arange(len(KIND) + 1), [KIND[kind] for kind in fates.OF_A_GROUP])


@dataclass(frozen=True)
class Lives:
    """Entries in order: by cell, and in a cell as it happened. A cell of group `NONE` is the message as such."""

    history: History
    groups: list[str]
    row: Integers
    """Which event of the history this is."""
    cell: Integers
    cells: Integers
    """Of each cell, its first entry."""
    message: Integers
    group: Integers
    place: Integers
    kind: Integers
    fresh: Flags
    is_late: Flags
    """It was there for others before the group began."""
    moment_ms: Integers
    """When it counts: at the earliest when the group began."""
    due_ms: Integers
    becomes: Integers
    """The phase after it; `NONE` for what ends messages."""
    phase: Integers
    """The phase before it; `NONE` if nothing is known."""
    ended: Integers
    """The kind of what had ended it before; `NONE` if nothing had."""
    counts: Flags
    """This is what ends it."""
    previous: Integers
    """The entry before it that made its phase; `NONE` if there was none. So for the following."""
    redriven: Integers
    leased: Integers
    published: Integers
    begun: Integers
    """What says from when on it could be delivered."""
    failed: Integers
    """The last failed attempt."""
    is_first: Flags
    """A delivery, and none before it since it was published or redriven."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def at_ms(self) -> Integers:
        return self.history.at_ms[self.row]

    def fates(self) -> Integers:
        """Of each cell, what has become of it, as a number of `FATES`."""
        at = np.arange(len(self))
        last = _last(IS_CORE[self.kind], at, self.cells, self.cell)[_ends_of(self.cells, len(self))]
        phase = np.where(last == NONE, NONE, self.becomes[last])
        end = np.full(len(self.cells), NONE, dtype=np.int64)
        ends = np.flatnonzero(self.counts)
        end[self.cell[ends]] = _FATE_OF_KIND[self.kind[ends]]
        return np.where(end == NONE, phase, end)

    def is_known(self) -> Flags:
        """Of each cell: its message was published in this history."""
        known = np.zeros(len(self.cells), dtype=bool)
        known[self.cell[self.kind == KIND["published"]]] = True
        return known


_FATE_OF_KIND = np.array([FATES.index(kind) if kind in FATES else NONE for kind in fates.KINDS] + [NONE])


def unfold(history: History, ground: Ground, ends: Sequence[End] = (), *, after: int = -1) -> Lives:
    """`ends` are the fresh ones of `ground`; events behind the place `after` are fresh."""
    history = _delayed(history.with_ends(ends), ground)
    message, _ = numbered(history.queue_id, history.partition, history.offset)
    told = _Told(history, message, after)
    for number in np.unique(history.queue_id):
        queue = ground.queues.get(int(number))
        if queue is not None:
            for name, group in sorted(queue.groups.items(), key=lambda each: each[1].since):
                told.for_group(int(number), queue, name, group)
    return _remembering(told)


def _delayed(history: History, ground: Ground) -> History:
    """With the delay that a queue gives to all its messages."""
    due_ms = history.due_ms
    for number, queue in ground.queues.items():
        if queue.delays:
            of_it = (history.queue_id == number) & (history.kind == KIND["published"])
            places = np.array([place for place, _ in queue.delays])
            delays = np.array([0, *(delay for _, delay in queue.delays)])
            delay = delays[np.searchsorted(places, history.place)]
            due_ms = np.where(of_it & (delay > 0), np.maximum(due_ms, history.at_ms + delay), due_ms)
    return replace(history, due_ms=due_ms)


class _Told:
    """What happened to a message for everybody is told once for each group that reads it."""

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
        self.gone = np.full(count, FAR)
        ended = _IS_END[history.kind]
        np.minimum.at(self.gone, message[ended], history.place[ended])
        self.born = np.full(count, NONE)
        published = history.kind == KIND["published"]
        self.born[message[published]] = history.place[published]
        self._unseen: dict[tuple[int, str], Flags] = {}
        """Of groups: messages that were finished when they began."""

    def for_group(self, number: int, queue: Queue, name: str, group: Group) -> None:
        history = self.history
        rows = np.flatnonzero((history.queue_id == number) & (history.group.codes == NONE))
        message = self.message[rows]
        reads = (history.offset[rows] >= _starts(group, history.partition[rows])) & (self.gone[message] > group.since)
        if group.left_out is not None:
            unseen = self._unseen[number, name] = self._finished(number, queue, group.left_out)
            reads &= ~unseen[message]
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

    def _finished(self, number: int, queue: Queue, at: int) -> Flags:
        """Of each message: at this place all groups that there were had finished it."""
        history = self.history
        earlier = {name: group for name, group in queue.groups.items() if group.since < at}
        if not earlier:
            return np.zeros(len(self.born), dtype=bool)
        finished = (self.born != NONE) & (self.born < at)
        of_queue = (history.queue_id == number) & IS_CORE[history.kind] & (history.place < at)
        offsets = np.zeros(len(self.born), dtype=np.int64)
        parts = np.zeros(len(self.born), dtype=np.int64)
        offsets[self.message], parts[self.message] = history.offset, history.partition
        for name, group in earlier.items():
            code = self.groups.index(name) if name in self.groups else OTHER + len(self.groups)
            rows = np.flatnonzero(of_queue & (history.group.codes == code))
            rows = rows[np.argsort(history.place[rows], kind="stable")]
            phase = np.full(len(self.born), NONE)
            phase[self.message[rows]] = _becomes(history, rows)
            is_done = np.isin(phase, [PHASE[each] for each in fates.DONE])
            unseen = self._unseen.get((number, name), False)
            finished &= is_done | (offsets < _starts(group, parts)) | unseen
        return finished


def _starts(group: Group, partitions: Integers) -> Integers:
    starts = np.zeros(len(partitions), dtype=np.int64)
    for partition, start in group.starts.items():
        starts[partitions == partition] = start
    return starts


def _becomes(history: History, rows: Integers) -> Integers:
    kinds = history.kind[rows]
    phases = _BECOMES[kinds]
    at_once = (kinds == KIND["leased"]) & history.reason.is_one_of("at_most_once")[rows]
    dropped = (kinds == KIND["dead_lettered"]) & (history.kept[rows] == 0)
    return np.where(at_once, PHASE[fates.ACKED], np.where(dropped, PHASE[fates.REMOVED], phases))


def _remembering(told: _Told) -> Lives:
    row, group, place = np.concatenate(told.row), np.concatenate(told.group), np.concatenate(told.place)
    history, message = told.history, told.message[row]
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
    return Lives(
        history, told.groups, row, cell, cells, message, group, place, kind,
        fresh=np.concatenate(told.is_fresh)[order],
        is_late=_carried(np.concatenate(told.late)[order], _last(of("published"), at, cells, cell)),
        moment_ms=np.concatenate(told.moment)[order],
        due_ms=np.concatenate(told.due)[order],
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
    """Of each entry, the latest in its cell, itself included, for which this holds; `NONE` if there is none."""
    found = np.maximum.accumulate(np.where(condition, at, NONE)) if len(at) else at
    return np.where(found >= cells[cell], found, NONE) if len(at) else at


def _shifted(found: Integers, cells: Integers) -> Integers:
    """The same without the entry itself."""
    if not len(found):
        return found
    shifted = np.r_[NONE, found[:-1]]
    shifted[cells] = NONE
    return shifted


def _carried(values: Flags, entry: Integers) -> Flags:
    return np.where(entry == NONE, False, values[entry]) if len(values) else values


def _ends_of(cells: Integers, count: int) -> Integers:
    return np.r_[cells[1:], count] - 1 if len(cells) else cells


def left_open(lives: Lives, ground: Ground) -> Integers:
    """Of messages whose life is not over, the events that have to be remembered, as rows of the history.

    A message is done with when every group is; where the queue keeps its log, or has no group yet, when it is gone.
    """
    history = lives.history
    fate, of_cell = lives.fates(), lives.cells
    group = lives.group[of_cell] if len(of_cell) else of_cell
    in_use = np.isin(fate, [PHASE[each] for each in (*fates.LIVE, fates.DEAD)])
    stays = [number for number, queue in ground.queues.items() if queue.keeps or not queue.groups]
    keeps = np.isin(history.queue_id[lives.row[of_cell]], stays)
    wanted = np.where(group == NONE, keeps & (fate == PHASE[fates.PENDING]), in_use)
    is_open = np.zeros(int(lives.message.max()) + 1 if len(lives) else 0, dtype=bool)
    is_open[lives.message[of_cell][wanted]] = True
    # What was told again for a group is remembered with its message.
    own = (history.group.codes[lives.row] == lives.group) & is_open[lives.message]
    newest = np.zeros(len(lives), dtype=bool)
    of_groups = own & _OF_A_GROUP[lives.kind]
    newest[_latest(of_groups, lives.cell)] = True
    for kind in ("leased", "redriven"):
        latest = _latest(of_groups & (lives.kind == KIND[kind]), lives.cell)
        newest[latest] |= in_use[lives.cell[latest]]
    of_all = own & (lives.group == NONE)
    moved = lives.kind == KIND["rescheduled"]
    newest[np.flatnonzero(of_all & ~moved)] = True
    newest[_latest(of_all & moved, lives.cell)] = True
    # What passed a message by, because somebody had it or it was redriven, must pass it by again.
    passed = _IS_END[lives.kind] & ~lives.counts & is_open[lives.message] & (lives.group != NONE)
    for entry in (lives.previous[passed], lives.redriven[passed]):
        newest[entry[entry != NONE]] = True
    for queue, before in _beginnings(ground, np.unique(history.queue_id)):
        # Who began later must find the message as it was then.
        of_queue = (history.queue_id[lives.row] == queue) & (lives.place < before)
        newest[_latest(of_groups & IS_CORE[lives.kind] & of_queue, lives.cell)] = True
    return np.unique(lives.row[newest])


def _beginnings(ground: Ground, queues: Integers) -> list[tuple[int, int]]:
    """(queue, place) of groups that do not see what the groups before them had finished at that place."""
    found = []
    for number in queues.tolist():
        groups = ground.queues[number].groups.values() if number in ground.queues else ()
        first = min((group.since for group in groups), default=FAR)
        found += [(number, group.left_out) for group in groups if group.left_out is not None and first < group.left_out]
    return found


def _latest(condition: Flags, cell: Integers) -> Integers:
    """Of each cell, the last entry for which this holds."""
    entries = np.flatnonzero(condition)
    if not len(entries):
        return entries
    return entries[np.r_[cell[entries][1:] != cell[entries][:-1], True]]


def group_name(lives: Lives, code: int) -> str | None:
    return None if code == NONE else lives.groups[code]


def words_of(words: Words, rows: Integers) -> list[Any]:
    """The texts of these rows."""
    known = [*words.words, None]
    return [known[code] for code in words.codes[rows]]
