"""Dead letters and redrives, as state: which messages a partition gave up, and which runs bring them back.

A dead letter is why a message was given up; its bytes stay in the log of its partition. Letters are kept in the order
in which they were given up, so that any page of a million of them costs no more than that of ten.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import NamedTuple

import msgspec
from sortedcontainers import SortedList

TIDY_ABOVE = 64
"""Removed letters leave their entry in the heap behind; it is swept when most entries are of that kind."""


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


class DeadLetters:
    """The dead letters of a partition, by (group, offset). Hard, apart from the orders, which follow from them."""

    __slots__ = ("_letters", "_lowest", "_orders")

    def __init__(self) -> None:
        self._letters: dict[tuple[int, int], DeadLetter] = {}
        self._orders: dict[int, SortedList] = {}
        """Group -> (dead_at, offset) of its letters. A place in it is found in logarithmic time, by value or number."""
        self._lowest: list[tuple[int, int]] | None = None
        """Heap of (offset, group); may hold stale entries. None until the lowest offset is asked for: only queues that
        keep traits ask."""

    def __len__(self) -> int:
        return len(self._letters)

    def items(self) -> ItemsView[tuple[int, int], DeadLetter]:
        return self._letters.items()

    def copy(self) -> tuple[list[tuple[int, int]], list[DeadLetter]]:
        """The places of all letters, and the letters. Two lists of pointers, because a list of pairs takes long."""
        return list(self._letters), list(self._letters.values())

    def offsets(self) -> set[int]:
        return {offset for _, offset in self._letters}

    def lowest(self) -> int | None:
        """The lowest offset of a letter; None if there is none."""
        if not self._letters:
            return None
        if self._lowest is None or len(self._lowest) > TIDY_ABOVE + 2 * len(self._letters):
            self._lowest = [(offset, group) for group, offset in self._letters]
            heapify(self._lowest)
        while self._lowest[0][::-1] not in self._letters:
            heappop(self._lowest)
        return self._lowest[0][0]

    def groups(self) -> Collection[int]:
        """The groups that have letters."""
        return self._orders.keys()

    def order(self, group: int) -> SortedList:
        """(dead_at, offset) of the letters of one group, oldest first."""
        return self._orders.get(group, _NONE)

    def offsets_of(self, group: int) -> list[int]:
        """The letters of one group, ascending."""
        return sorted(offset for _, offset in self.order(group))

    def get(self, group: int, offset: int) -> DeadLetter | None:
        return self._letters.get((group, offset))

    def put(self, group: int, offset: int, letter: DeadLetter) -> None:
        self.take(group, offset)
        self._letters[group, offset] = letter
        if self._lowest is not None:
            heappush(self._lowest, (offset, group))
        order = self._orders.get(group)
        if order is None:
            order = self._orders[group] = SortedList()
        order.add((letter.dead_at, offset))

    def take(self, group: int, offset: int) -> DeadLetter | None:
        letter = self._letters.pop((group, offset), None)
        if letter is not None:
            order = self._orders[group]
            order.remove((letter.dead_at, offset))
            if not order:
                del self._orders[group]
        return letter


_NONE = SortedList()


class Position(NamedTuple):
    """The place of a letter among all letters of a queue: oldest first."""

    dead_at: int
    partition: int
    offset: int
    group: int


def count_letters(partitions: Sequence[DeadLetters], group: int | None = None, until_ms: int | None = None) -> int:
    """Letters of the queue, or of one group of it; with `until_ms` only those that were given up by then."""
    orders = [order for _, _, order in _orders(partitions, group)]
    return sum(len(order) if until_ms is None else order.bisect_left((until_ms + 1,)) for order in orders)


def oldest_first(
    partitions: Sequence[DeadLetters], after: Position | None = None, group: int | None = None
) -> Iterator[tuple[Position, DeadLetter]]:
    """The letters of a queue, or of one group of it, behind `after`. Costs what is taken from it; not to be kept over a
    put or a take."""
    found = [_behind(number, owner, partitions[number], after) for number, owner, _ in _orders(partitions, group)]
    return found[0] if len(found) == 1 else merge(*found)


def position_at(partitions: Sequence[DeadLetters], index: int, group: int | None = None) -> Position | None:
    """The letter that has `index` older ones; None if there are not so many."""
    orders = _orders(partitions, group)
    if index >= sum(len(order) for _, _, order in orders):
        return None
    if len(orders) == 1:
        number, owner, order = orders[0]
        return Position(order[index][0], number, order[index][1], owner)
    low, high = min(order[0][0] for _, _, order in orders), max(order[-1][0] for _, _, order in orders)
    while low < high:  # to the millisecond in which it was given up
        middle = (low + high) // 2
        if count_letters(partitions, group, middle) > index:
            high = middle
        else:
            low = middle + 1
    older = count_letters(partitions, group, low - 1)
    behind = oldest_first(partitions, Position(low - 1, len(partitions), 0, 0), group)
    return next(islice(behind, index - older, None))[0]


def _orders(partitions: Sequence[DeadLetters], group: int | None) -> list[tuple[int, int, SortedList]]:
    """(partition, group, order) of the letters of the queue, or of one group of it."""
    return [
        (number, owner, dead.order(owner))
        for number, dead in enumerate(partitions)
        for owner in dead.groups()
        if group is None or owner == group
    ]


def _behind(
    number: int, group: int, dead: DeadLetters, after: Position | None
) -> Iterator[tuple[Position, DeadLetter]]:
    first = None
    if after is not None and number == after.partition:
        first = (after.dead_at, after.offset + (group <= after.group))
    elif after is not None:
        # Of two that were given up at the same moment the one in the lower partition comes first.
        first = (after.dead_at + (number < after.partition), -1)
    for dead_at, offset in dead.order(group).irange(first):
        letter = dead.get(group, offset)
        assert letter is not None
        yield Position(dead_at, number, offset, group), letter


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
