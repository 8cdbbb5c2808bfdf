"""Dead letters and redrives, as state: which messages a partition gave up, and which runs bring them back.

A dead letter is why a message was given up; its bytes stay in the log of its partition. Letters are kept in the order
in which they were given up, so that any page of a million of them costs no more than that of ten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from heapq import merge
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from penstock.core.state.letter_chunks import DeadLetter, LetterChunk
from penstock.core.state.sorted_pairs import LAST, PairChunk, SortedPairs, runs_of, sorted_pairs


class _GroupLetters:
    """The letters of one group in one partition."""

    __slots__ = ("by_offset", "by_time")

    def __init__(self) -> None:
        self.by_time = SortedPairs(LetterChunk)
        """(dead_at, offset), and the letter. Hard."""
        self.by_offset = SortedPairs(PairChunk)
        """(offset, dead_at): follows from it."""

    def dead_at(self, offset: int) -> int | None:
        found = self.by_offset.last_until((offset, LAST))
        return found[1] if found is not None and found[0] == offset else None

    def letters(self) -> Iterator[tuple[int, DeadLetter]]:
        for chunk, row in self.by_time.since((0, 0)):
            yield chunk.seconds[row], chunk.letter(row)


class DeadLetters:
    """The dead letters of a partition, by (group, offset)."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[int, _GroupLetters] = {}
        """Without groups that have no letters."""

    def __len__(self) -> int:
        return sum([len(group.by_time) for group in self._groups.values()])

    def items(self) -> Iterator[tuple[tuple[int, int], DeadLetter]]:
        """Of each letter its group and offset, and the letter."""
        for group, letters in self._groups.items():
            for offset, letter in letters.letters():
                yield (group, offset), letter

    def keys(self, group: int) -> Iterator[tuple[int, int]]:
        """(offset, key) of the letters of one group that a key waits with."""
        for chunk in self.order(group).chunks:
            yield from chunk.keys()

    def offsets(self) -> set[int]:
        return {offset for group in self._groups.values() for offset, _ in group.by_offset}

    def lowest(self) -> int | None:
        """The lowest offset of a letter; None if there is none."""
        return min([group.by_offset.chunks[0].firsts[0] for group in self._groups.values()], default=None)

    def groups(self) -> Collection[int]:
        """The groups that have letters."""
        return self._groups.keys()

    def order(self, group: int) -> SortedPairs[LetterChunk]:
        """(dead_at, offset) of the letters of one group, oldest first."""
        found = self._groups.get(group)
        return _NONE if found is None else found.by_time

    def offsets_of(self, group: int) -> list[int]:
        """The letters of one group, ascending."""
        found = self._groups.get(group)
        return [] if found is None else [offset for offset, _ in found.by_offset]

    def runs_in(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The runs of `[first, stop)` that are letters of some group; in order for each group."""
        for group in self._groups.values():
            offsets = []
            for chunk, row in group.by_offset.since((first, 0)):
                if chunk.firsts[row] >= stop:
                    break
                offsets.append(chunk.firsts[row])
            yield from runs_of(offsets)

    def get(self, group: int, offset: int) -> DeadLetter | None:
        letters = self._groups.get(group)
        dead_at = None if letters is None else letters.dead_at(offset)
        if letters is None or dead_at is None:
            return None
        found = letters.by_time.find((dead_at, offset))
        assert found is not None
        chunk, row = found
        return chunk.letter(row)

    def put(self, group: int, offset: int, letter: DeadLetter) -> None:
        self.take(group, offset)
        letters = self._groups.get(group)
        if letters is None:
            letters = self._groups[group] = _GroupLetters()
        chunk, row = letters.by_time.place((letter.dead_at, offset))
        chunk.insert_letter(row, offset, letter)
        letters.by_offset.add((offset, letter.dead_at))

    def take(self, group: int, offset: int) -> DeadLetter | None:
        letter = self.get(group, offset)
        if letter is not None:
            letters = self._groups[group]
            letters.by_time.remove((letter.dead_at, offset))
            letters.by_offset.remove((offset, letter.dead_at))
            if not len(letters.by_time):
                del self._groups[group]
        return letter

    def load(self, group: int, chunks: list[LetterChunk]) -> None:
        """The letters of a group, of which there were none, in the order of `order(group).chunks`."""
        letters = self._groups[group] = _GroupLetters()
        letters.by_time.chunks = chunks
        letters.by_time.count = sum(map(len, chunks))
        letters.by_offset = sorted_pairs(
            sorted(
                zip(
                    chain.from_iterable(chunk.seconds for chunk in chunks),
                    chain.from_iterable(chunk.firsts for chunk in chunks),
                    strict=True,
                )
            )
        )


_NONE = SortedPairs(LetterChunk)


class Position(NamedTuple):
    """The place of a letter among all letters of a queue: oldest first."""

    dead_at: int
    partition: int
    offset: int
    group: int


def count_letters(partitions: Sequence[DeadLetters], group: int | None = None, until_ms: int | None = None) -> int:
    """Letters of the queue, or of one group of it; with `until_ms` only those that were given up by then."""
    orders = [order for _, _, order in _orders(partitions, group)]
    return sum(len(order) if until_ms is None else order.before((until_ms + 1, 0)) for order in orders)


def oldest_first(
    partitions: Sequence[DeadLetters], after: Position | None = None, group: int | None = None
) -> Iterator[tuple[Position, DeadLetter]]:
    """The letters of a queue, or of one group of it, behind `after`. Costs what is taken from it; not to be kept over a
    put or a take."""
    for position, chunk, row in _places(partitions, after, group):
        yield position, chunk.letter(row)


def position_at(partitions: Sequence[DeadLetters], index: int, group: int | None = None) -> Position | None:
    """The letter that has `index` older ones; None if there are not so many."""
    orders = _orders(partitions, group)
    if index >= sum(len(order) for _, _, order in orders):
        return None
    if len(orders) == 1:
        number, owner, order = orders[0]
        dead_at, offset = order.at(index)
        return Position(dead_at, number, offset, owner)
    low = min(order.chunks[0].firsts[0] for _, _, order in orders)
    high = max(order.chunks[-1].firsts[-1] for _, _, order in orders)
    while low < high:  # to the millisecond in which it was given up
        middle = (low + high) // 2
        if count_letters(partitions, group, middle) > index:
            high = middle
        else:
            low = middle + 1
    older = count_letters(partitions, group, low - 1)
    behind = _places(partitions, Position(low - 1, len(partitions), 0, 0), group)
    return next(islice(behind, index - older, None))[0]


_Place = tuple[Position, LetterChunk, int]
"""Where a letter is among all of them, and in memory."""


def _places(partitions: Sequence[DeadLetters], after: Position | None, group: int | None) -> Iterator[_Place]:
    found = [_behind(number, owner, partitions[number], after) for number, owner, _ in _orders(partitions, group)]
    return found[0] if len(found) == 1 else merge(*found)


def _orders(partitions: Sequence[DeadLetters], group: int | None) -> list[tuple[int, int, SortedPairs[LetterChunk]]]:
    """(partition, group, order) of the letters of the queue, or of one group of it."""
    return [
        (number, owner, dead.order(owner))
        for number, dead in enumerate(partitions)
        for owner in dead.groups()
        if group is None or owner == group
    ]


def _behind(number: int, group: int, dead: DeadLetters, after: Position | None) -> Iterator[_Place]:
    first = (0, 0)
    if after is not None and number == after.partition:
        first = (after.dead_at, after.offset + (group <= after.group))
    elif after is not None:
        # Of two that were given up at the same moment the one in the lower partition comes first.
        first = (after.dead_at + (number < after.partition), 0)
    for chunk, row in dead.order(group).since(first):
        yield Position(chunk.firsts[row], number, chunk.seconds[row], group), chunk, row


class Redrive(msgspec.Struct):
    """A run that brings dead letters back, under an id that makes it happen once. Hard, all of it."""

    id: str
    at: int
    """When it was asked for. Messages that are given up later are left out."""
    group: str
    filter: str | None
    ids: list[bytes]
    """Of the messages, where they were named; let go when it ends."""
    target: str
    """Path of another queue that gets copies; empty where the messages become ready again in their own."""
    delay_ms: int
    priority: int | None
    rate_per_s: int
    redriven: int = 0
    skipped: int = 0
    outcome: str = ""
    """Empty as long as it runs; then finished, stopped or failed."""
    ended_at: int = 0
    error: str = ""
    ids_digest: bytes = b""
    """Digest of the ids, kept after the redrive has ended. Empty if it named no ids, or ended before digests were
    kept."""

    @property
    def running(self) -> bool:
        return not self.outcome

    def end(self, outcome: str, at_ms: int) -> None:
        self.outcome, self.ended_at = outcome, at_ms
        self.ids_digest, self.ids = digest_of(self.ids), []

    def named(self, ids: list[bytes]) -> bool:
        """True if these are the messages that were named, in whatever order, as far as that is remembered."""
        if not self.running and not self.ids_digest:
            return True
        return digest_of(ids) == (digest_of(self.ids) if self.running else self.ids_digest)


def digest_of(ids: list[bytes]) -> bytes:
    """Sixteen bytes that stand for these messages; nothing for none."""
    return blake2b(b"".join(sorted(ids)), digest_size=16).digest() if ids else b""
