"""Counts of one slot for the audit: outcomes of messages, impossible events, and differences to the broker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.pipeline import lifecycle_rules as rules
from penstock.pipeline.history import KIND, NONE, Flags, Integers, words_at
from penstock.pipeline.timelines import ALLOWED, FATES, IS_CORE, PHASE, REFUSED, Timelines, group_name

NAMED_MAX = 20
"""Messages that are named for one kind of discrepancy in one group; all of them are counted."""
HOLES_MAX = 1_000


class GroupKey(NamedTuple):
    queue_id: int
    group: str | None


class MessageSample(msgspec.Struct):
    """A number of messages, and the names of the first of them."""

    messages: int = 0
    named: list[str] = []

    def add(self, other: MessageSample) -> None:
        self.messages += other.messages
        self.named = [*self.named, *other.named][:NAMED_MAX]


class Movement(NamedTuple):
    """Messages that became live and that ended, and the number of events, after a place in the journal."""

    came: int
    went: int
    events: int


class Extent(NamedTuple):
    """The first and the last offset of a partition, and the missing ranges between them."""

    queue_id: int
    partition: int
    first: int
    last: int
    holes: list[tuple[int, int]]


class FinishedRanges(NamedTuple):
    """The offsets that a group has finished in a partition, by the broker: all below `floor`, and these ranges."""

    floor: int
    ranges: list[tuple[int, int]]
    known_until: int
    """From this offset on the broker reports nothing."""


class Account(msgspec.Struct):
    fates: list[tuple[GroupKey, str, int]] = []
    unknown: list[tuple[GroupKey, MessageSample]] = []
    """Messages without a `published` event."""
    wrong: list[tuple[GroupKey, str, MessageSample]] = []
    moved: list[tuple[GroupKey, Movement]] = []
    extents: list[Extent] = []
    differing: list[tuple[GroupKey, MessageSample]] = []
    """Messages that are live by the records and finished by the broker, or the reverse."""


def account(timelines: Timelines, *, since: int, done: Mapping[tuple[int, str, int], FinishedRanges]) -> Account:
    """`since` is the place behind which `moved` counts; `done` is by queue, group and partition."""
    made = Account()
    if not len(timelines):
        return made
    fate, known = timelines.fates(), timelines.is_known()
    first = timelines.cells
    _count(made, timelines, fate, known)
    _find_wrong(made, timelines)
    _count_movements(made, timelines, since)
    _measure(made, timelines, known & (timelines.group[first] == NONE))
    _compare(made, timelines, fate, known, done)
    return made


def _group_key(timelines: Timelines, entry: int) -> GroupKey:
    return GroupKey(
        int(timelines.history.queue_id[timelines.row[entry]]), group_name(timelines, int(timelines.group[entry]))
    )


def _name(timelines: Timelines, entry: int, problem: str = "") -> str:
    row = timelines.row[entry]
    published = timelines.published[entry]
    id = words_at(timelines.history.id, int(timelines.row[published]) if published != NONE else int(row))
    place = f"{timelines.history.partition[row]}/{timelines.history.offset[row]}"
    return " ".join(filter(None, (place, id, problem)))


def _finding(timelines: Timelines, entries: Integers) -> MessageSample:
    return MessageSample(len(entries), [_name(timelines, int(entry)) for entry in entries[:NAMED_MAX]])


def _count(made: Account, timelines: Timelines, fate: Integers, known: Flags) -> None:
    first = timelines.cells
    keys: dict[tuple[int, int, int], int] = {}
    of_queue = timelines.history.queue_id[timelines.row[first]]
    for key in zip(of_queue[known].tolist(), timelines.group[first][known].tolist(), fate[known].tolist(), strict=True):
        keys[key] = keys.get(key, 0) + 1
    for (queue, group, what), count in keys.items():
        made.fates.append((GroupKey(queue, group_name(timelines, group)), FATES[what], count))
    for group_key, entries in _by_group(timelines, first[~known]):
        made.unknown.append((group_key, _finding(timelines, entries)))


def _by_group(timelines: Timelines, entries: Integers) -> list[tuple[GroupKey, Integers]]:
    found: dict[GroupKey, list[int]] = {}
    for entry in entries.tolist():
        found.setdefault(_group_key(timelines, entry), []).append(entry)
    return [(key, np.array(each)) for key, each in found.items()]


def _find_wrong(made: Account, timelines: Timelines) -> None:
    kind, phase = timelines.kind, timelines.phase
    core = IS_CORE[kind]
    published = kind == KIND["published"]
    leased_as = np.where(timelines.leased == NONE, NONE, timelines.history.lease[timelines.row[timelines.leased]])
    of_a_lease = np.isin(kind, [KIND[each] for each in rules.OF_A_LEASE])
    # Without an earlier event the phase is unknown, and nothing is impossible.
    known = phase != NONE
    after_end = known & core & (timelines.ended != NONE)
    twice = known & published
    untimely = known & (core & ~published & ~ALLOWED[kind, phase] | REFUSED[kind, phase])
    other_lease = known & of_a_lease & (timelines.history.lease[timelines.row] != leased_as)
    found: dict[tuple[GroupKey, str], list[int]] = {}
    for entry in np.flatnonzero(after_end | twice | untimely | other_lease).tolist():
        what = rules.KINDS[kind[entry]]
        if after_end[entry]:
            problem = f"{what} after {rules.KINDS[timelines.ended[entry]]}"
        elif twice[entry]:
            problem = "published twice"
        elif untimely[entry]:
            problem = f"{what} while {rules.PHASES[phase[entry]]}"
        else:
            given = timelines.history.lease[timelines.row[entry]]
            problem = f"{what} under lease {given}, but it was leased as {leased_as[entry]}"
        found.setdefault((_group_key(timelines, entry), problem), []).append(entry)
    for (key, problem), entries in found.items():
        made.wrong.append((key, problem, _finding(timelines, np.array(entries))))


def _count_movements(made: Account, timelines: Timelines, since: int) -> None:
    came = np.isin(timelines.kind, [KIND["published"], KIND["redriven"]])
    went = timelines.counts | np.isin(timelines.becomes, [PHASE[each] for each in rules.DONE])
    for key, entries in _by_group(timelines, np.flatnonzero(timelines.place >= since)):
        made.moved.append((key, Movement(int(came[entries].sum()), int(went[entries].sum()), len(entries))))


def _measure(made: Account, timelines: Timelines, chosen: Flags) -> None:
    """Offsets are dense: a missing offset is a missing `published` event."""
    rows = timelines.row[timelines.cells[chosen]]
    history = timelines.history
    places = sorted(set(zip(history.queue_id[rows].tolist(), history.partition[rows].tolist(), strict=True)))
    for queue, partition in places:
        of_it = (history.queue_id[rows] == queue) & (history.partition[rows] == partition)
        offsets = np.sort(history.offset[rows[of_it]])
        jumps = np.flatnonzero(np.diff(offsets) > 1)
        holes = [(int(offsets[at]) + 1, int(offsets[at + 1])) for at in jumps[:HOLES_MAX]]
        made.extents.append(Extent(queue, partition, int(offsets[0]), int(offsets[-1]), holes))


def _compare(
    made: Account,
    timelines: Timelines,
    fate: Integers,
    known: Flags,
    done: Mapping[tuple[int, str, int], FinishedRanges],
) -> None:
    first, history = timelines.cells, timelines.history
    rows = timelines.row[first]
    live = np.isin(fate, [PHASE[each] for each in rules.LIVE])
    for (queue, group, partition), told in done.items():
        if group not in timelines.groups:
            continue
        of_it = (history.queue_id[rows] == queue) & (history.partition[rows] == partition) & known
        of_it &= (timelines.group[first] == timelines.groups.index(group)) & (history.offset[rows] < told.known_until)
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
                named.append(_name(timelines, int(first[cell]), f"({FATES[fate[cell]]}; {says})"))
            made.differing.append((GroupKey(queue, group), MessageSample(len(differing), named)))


_decoder = msgspec.msgpack.Decoder(Account)


def encode(made: Account) -> bytes:
    return msgspec.msgpack.encode(made)


def decode(data: bytes) -> Account:
    return _decoder.decode(data)


def merged(findings: list[tuple[Any, MessageSample]]) -> dict[Any, MessageSample]:
    found: dict[Any, MessageSample] = {}
    for key, finding in findings:
        found.setdefault(key, MessageSample()).add(finding)
    return found
