"""The partitions of a queue, made when they are used: 256 partitions of an idle queue cost next to nothing.

A partition is used when it is asked for by its number, or when the queue gets its first group. Until then it is blank:
iterating over all partitions yields one shared empty partition in its place, which refuses to be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from penstock.core.state.shard import Partition


class Partitions(Sequence["Partition"]):
    __slots__ = ("_blank", "_count", "_make", "_used")

    def __init__(self, make: Callable[[], Partition], blank: Partition, count: int):
        self._make = make
        self._blank = blank
        self._count = count
        self._used: list[Partition | None] = []
        """Up to the highest that is used; None for a blank one."""

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Partition: ...

    @overload
    def __getitem__(self, number: slice) -> list[Partition]: ...

    def __getitem__(self, number: int | slice) -> Partition | list[Partition]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._count))]
        if number < 0:
            number += self._count
        partition = self._used[number] if 0 <= number < len(self._used) else None
        if partition is None:
            partition = self[number] = self._make()
        return partition

    def __setitem__(self, number: int, partition: Partition) -> None:
        if not 0 <= number < self._count:
            raise IndexError(f"there is no partition {number} of {self._count}")
        self._used += [None] * (number + 1 - len(self._used))
        self._used[number] = partition

    def __iter__(self) -> Iterator[Partition]:
        for partition in self._used:
            yield partition if partition is not None else self._blank
        for _ in range(len(self._used), self._count):
            yield self._blank

    def used(self) -> Iterator[tuple[int, Partition]]:
        """(number, partition) of those that are used."""
        for number, partition in enumerate(self._used):
            if partition is not None:
                yield number, partition

    def use_all(self) -> Partitions:
        """Make all of them, to be changed."""
        for number in range(self._count):
            self[number]
        return self

    def append_blank(self) -> None:
        """Another one."""
        self._count += 1

    def replaced(self, partitions: Sequence[Partition | None]) -> Partitions:
        """These partitions; None for a blank one."""
        twin = Partitions(self._make, self._blank, len(partitions))
        for number, partition in enumerate(partitions):
            if partition is not None:
                twin[number] = partition
        return twin

    def is_blank(self, number: int) -> bool:
        return number >= len(self._used) or self._used[number] is None
