"""Dead letters and redrives, as state: which messages a partition gave up, and which runs bring them back.

A dead letter is why a message was given up; its bytes stay in the log of its partition. Letters are kept in the order
in which they were given up, so that the first page of a million of them costs no more than that of ten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, Sequence
from hashlib import blake2b
from heapq import merge
from typing import NamedTuple

import msgspec

TIDY_ABOVE = 64
"""Removed letters leave their entry in the order behind; it is swept when most entries are of that kind."""


class DeadLetter(msgspec.Struct, gc=False, omit_defaults=True):
    attempts: int
    first_at: int
    last_at: int
    dead_at: int
    consumer: str
    reason: str
    error: str
    budget: int = -1
    """The message's own `max_retries`, -1 for the queue's: a redrive starts over with it."""
    redriven: int = 0
    """How often it was redriven before, and given up again."""
    key: int = 0
    """Hash of the key that waits with it, where the queue parks keys."""


class Grave(NamedTuple):
    """Where a letter lies, in the order of a partition: oldest first."""

    dead_at: int
    offset: int
    group: int


class DeadLetters:
    """The dead letters of a partition, by (group, offset). Hard, apart from the order, which follows from them."""

    __slots__ = ("_head", "_letters", "_order")

    def __init__(self) -> None:
        self._letters: dict[tuple[int, int], DeadLetter] = {}
        self._order: list[Grave] = []
        """Sorted; entries of letters that were removed since are passed over."""
        self._head = 0
        """Before it nothing is left, so that taking the oldest again and again leaves no long way to the next."""

    def __len__(self) -> int:
        return len(self._letters)

    def items(self) -> ItemsView[tuple[int, int], DeadLetter]:
        return self._letters.items()

    def offsets(self) -> set[int]:
        return {offset for _, offset in self._letters}

    def offsets_of(self, group: int) -> list[int]:
        """The letters of one group, ascending. Looks at every letter of the partition."""
        return sorted(offset for owner, offset in self._letters if owner == group)

    def get(self, group: int, offset: int) -> DeadLetter | None:
        return self._letters.get((group, offset))

    def at(self, grave: Grave) -> DeadLetter | None:
        """The letter that lies here, unless it was taken away since, or died anew."""
        letter = self._letters.get((grave.group, grave.offset))
        return letter if letter is not None and letter.dead_at == grave.dead_at else None

    def put(self, group: int, offset: int, letter: DeadLetter) -> None:
        self._letters[group, offset] = letter
        grave = Grave(letter.dead_at, offset, group)
        place = bisect_left(self._order, grave, self._head)
        if self._order[place : place + 1] != [grave]:
            self._order.insert(place, grave)

    def take(self, group: int, offset: int) -> DeadLetter | None:
        letter = self._letters.pop((group, offset), None)
        order, head = self._order, self._head
        while head < len(order) and self.at(order[head]) is None:
            head += 1
        if head > TIDY_ABOVE and 2 * head > len(order):
            del order[:head]
            head = 0
        elif len(order) - head > TIDY_ABOVE + 2 * len(self._letters):
            self._order, head = [grave for grave in order[head:] if self.at(grave) is not None], 0
        self._head = head
        return letter

    def since(self, after: Grave | None = None) -> Iterator[tuple[Grave, DeadLetter]]:
        """Letters in the order in which they were given up, those after `after` only. Not over a put or a take."""
        order = self._order
        for place in range(self._head if after is None else bisect_right(order, after, self._head), len(order)):
            letter = self.at(order[place])
            if letter is not None:
                yield order[place], letter


class Position(NamedTuple):
    """Where a letter lies among all of a queue, over its partitions: oldest first."""

    dead_at: int
    partition: int
    offset: int
    group: int


def oldest_first(
    partitions: Sequence[DeadLetters], after: Position | None = None
) -> Iterator[tuple[Position, DeadLetter]]:
    """The letters of a queue behind `after`. Costs what is taken from it; not to be kept over a put or a take."""
    return merge(*(_of_partition(number, dead, after) for number, dead in enumerate(partitions) if len(dead)))


def _of_partition(
    number: int, dead: DeadLetters, after: Position | None
) -> Iterator[tuple[Position, DeadLetter]]:  # fmt: skip
    passed = None
    if after is not None:
        # Of two that died at the same moment the one in the lower partition comes first.
        passed = Grave(after.dead_at, after.offset, after.group)
        if number != after.partition:
            passed = Grave(after.dead_at, -1 if number > after.partition else 2**63, 0)
    for grave, letter in dead.since(passed):
        yield Position(grave.dead_at, number, grave.offset, grave.group), letter


class Redrive(msgspec.Struct):
    """A run that brings dead letters back, under an id that makes it happen once. Hard, all of it."""

    id: str
    at: int
    """When it was asked for. What is given up later is not its business."""
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
    """What is remembered of the ids when it has ended. Empty where there were none, and where it ended before this was
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
