"""The account of some messages: what became of them, and what is wrong with what is told of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.pipeline import fates
from penstock.pipeline.history import KIND, NONE, Flags, Integers, words_at
from penstock.pipeline.lives import ALLOWED, FATES, IS_CORE, PHASE, REFUSED, Lives, group_name

NAMED_MAX = 20
"""Messages that are named for one kind of trouble in one group; all of them are counted."""
HOLES_MAX = 1_000


class Who(NamedTuple):
    queue_id: int
    group: str | None


class Finding(msgspec.Struct):
    """So many messages, and the first of them by name."""

    messages: int = 0
    named: list[str] = []

    def add(self, other: Finding) -> None:
        self.messages += other.messages
        self.named = [*self.named, *other.named][:NAMED_MAX]


class Moved(NamedTuple):
    """What came and went, and how much happened at all, behind some place."""

    came: int
    went: int
    events: int


class Extent(NamedTuple):
    """The offsets of a partition that are there, and those between them that are not."""

    queue_id: int
    partition: int
    first: int
    last: int
    holes: list[tuple[int, int]]


class Done(NamedTuple):
    """What the broker says a group has finished in a partition: all below `floor`, and these ranges."""

    floor: int
    ranges: list[tuple[int, int]]
    told_until: int
    """What lies behind is not told of."""


class Account(msgspec.Struct):
    fates: list[tuple[Who, str, int]] = []
    unknown: list[tuple[Who, Finding]] = []
    """Of which no publish is told."""
    wrong: list[tuple[Who, str, Finding]] = []
    moved: list[tuple[Who, Moved]] = []
    extents: list[Extent] = []
    differing: list[tuple[Who, Finding]] = []
    """The broker says otherwise."""


def account(lives: Lives, *, since: int, done: Mapping[tuple[int, str, int], Done]) -> Account:
    """`since` is the place behind which `moved` counts; `done` is by queue, group and partition."""
    made = Account()
    if not len(lives):
        return made
    fate, known = lives.fates(), lives.is_known()
    first = lives.cells
    _count(made, lives, fate, known)
    _find_wrong(made, lives)
    _note_moves(made, lives, since)
    _measure(made, lives, known & (lives.group[first] == NONE))
    _compare(made, lives, fate, known, done)
    return made


def _who(lives: Lives, entry: int) -> Who:
    return Who(int(lives.history.queue_id[lives.row[entry]]), group_name(lives, int(lives.group[entry])))


def _name(lives: Lives, entry: int, said: str = "") -> str:
    row = lives.row[entry]
    published = lives.published[entry]
    id = words_at(lives.history.id, int(lives.row[published]) if published != NONE else int(row))
    place = f"{lives.history.partition[row]}/{lives.history.offset[row]}"
    return " ".join(filter(None, (place, id, said)))


def _finding(lives: Lives, entries: Integers) -> Finding:
    return Finding(len(entries), [_name(lives, int(entry)) for entry in entries[:NAMED_MAX]])


def _count(made: Account, lives: Lives, fate: Integers, known: Flags) -> None:
    first = lives.cells
    keys: dict[tuple[int, int, int], int] = {}
    of_queue = lives.history.queue_id[lives.row[first]]
    for key in zip(of_queue[known].tolist(), lives.group[first][known].tolist(), fate[known].tolist(), strict=True):
        keys[key] = keys.get(key, 0) + 1
    for (queue, group, what), count in keys.items():
        made.fates.append((Who(queue, group_name(lives, group)), FATES[what], count))
    for who, entries in _by_who(lives, first[~known]):
        made.unknown.append((who, _finding(lives, entries)))


def _by_who(lives: Lives, entries: Integers) -> list[tuple[Who, Integers]]:
    found: dict[Who, list[int]] = {}
    for entry in entries.tolist():
        found.setdefault(_who(lives, entry), []).append(entry)
    return [(who, np.array(each)) for who, each in found.items()]


def _find_wrong(made: Account, lives: Lives) -> None:
    kind, phase = lives.kind, lives.phase
    core = IS_CORE[kind]
    published = kind == KIND["published"]
    leased_as = np.where(lives.leased == NONE, NONE, lives.history.lease[lives.row[lives.leased]])
    of_a_lease = np.isin(kind, [KIND[each] for each in fates.OF_A_LEASE])
    # What is known of a message before its first event that is told cannot be held against it.
    known = phase != NONE
    after_end = known & core & (lives.ended != NONE)
    twice = known & published
    untimely = known & (core & ~published & ~ALLOWED[kind, phase] | REFUSED[kind, phase])
    other_lease = known & of_a_lease & (lives.history.lease[lives.row] != leased_as)
    found: dict[tuple[Who, str], list[int]] = {}
    for entry in np.flatnonzero(after_end | twice | untimely | other_lease).tolist():
        what = fates.KINDS[kind[entry]]
        if after_end[entry]:
            said = f"{what} after {fates.KINDS[lives.ended[entry]]}"
        elif twice[entry]:
            said = "published twice"
        elif untimely[entry]:
            said = f"{what} while {fates.PHASES[phase[entry]]}"
        else:
            given = lives.history.lease[lives.row[entry]]
            said = f"{what} under lease {given}, but it was leased as {leased_as[entry]}"
        found.setdefault((_who(lives, entry), said), []).append(entry)
    for (who, said), entries in found.items():
        made.wrong.append((who, said, _finding(lives, np.array(entries))))


def _note_moves(made: Account, lives: Lives, since: int) -> None:
    came = np.isin(lives.kind, [KIND["published"], KIND["redriven"]])
    went = lives.counts | np.isin(lives.becomes, [PHASE[each] for each in fates.DONE])
    for who, entries in _by_who(lives, np.flatnonzero(lives.place >= since)):
        made.moved.append((who, Moved(int(came[entries].sum()), int(went[entries].sum()), len(entries))))


def _measure(made: Account, lives: Lives, chosen: Flags) -> None:
    """Offsets are dense: where one is missing, so is the record of its publishing."""
    rows = lives.row[lives.cells[chosen]]
    history = lives.history
    places = sorted(set(zip(history.queue_id[rows].tolist(), history.partition[rows].tolist(), strict=True)))
    for queue, partition in places:
        of_it = (history.queue_id[rows] == queue) & (history.partition[rows] == partition)
        offsets = np.sort(history.offset[rows[of_it]])
        jumps = np.flatnonzero(np.diff(offsets) > 1)
        holes = [(int(offsets[at]) + 1, int(offsets[at + 1])) for at in jumps[:HOLES_MAX]]
        made.extents.append(Extent(queue, partition, int(offsets[0]), int(offsets[-1]), holes))


def _compare(
    made: Account, lives: Lives, fate: Integers, known: Flags, done: Mapping[tuple[int, str, int], Done]
) -> None:
    first, history = lives.cells, lives.history
    rows = lives.row[first]
    live = np.isin(fate, [PHASE[each] for each in fates.LIVE])
    for (queue, group, partition), told in done.items():
        if group not in lives.groups:
            continue
        of_it = (history.queue_id[rows] == queue) & (history.partition[rows] == partition) & known
        of_it &= (lives.group[first] == lives.groups.index(group)) & (history.offset[rows] < told.told_until)
        cells = np.flatnonzero(of_it)
        offsets = history.offset[rows[cells]]
        theirs = offsets >= told.floor
        for begin, stop in told.ranges:
            theirs &= ~((offsets >= begin) & (offsets < stop))
        differing = cells[theirs != live[cells]]
        if len(differing):
            named = []
            for cell in differing[:NAMED_MAX]:
                says = "the broker is done with it" if live[cell] else "the broker still has it"
                named.append(_name(lives, int(first[cell]), f"({FATES[fate[cell]]}; {says})"))
            made.differing.append((Who(queue, group), Finding(len(differing), named)))


_decoder = msgspec.msgpack.Decoder(Account)


def encode(made: Account) -> bytes:
    return msgspec.msgpack.encode(made)


def decode(data: bytes) -> Account:
    return _decoder.decode(data)


def merged(findings: list[tuple[Any, Finding]]) -> dict[Any, Finding]:
    found: dict[Any, Finding] = {}
    for key, finding in findings:
        found.setdefault(key, Finding()).add(finding)
    return found
