"""The connection of a partition's progress to the dispatcher of its group.

A `Progress` has the offsets of one partition; a `Dispatcher` has places, which order the messages of all partitions.
One `DispatcherAdapter` per progress passes changes on and converts offsets to places. Dispatchers and adapters are soft
state: they are built from hard state after a restart, and when a queue gets an order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, compress, islice
from typing import TypeAlias

from penstock.core.config import QueueConfig
from penstock.core.offsets.ranges import RangeSet
from penstock.core.order.ages import Ages
from penstock.core.order.dispatch import LOAD_AT_ONCE, Dispatcher
from penstock.core.order.fifo import PARTITION_BITS, place_of
from penstock.core.state import Partition, Progress, Queue

LEFT_OUT_MAX = 16
"""If two ranges are at most so many offsets apart, on average, all are read in one pass, with the offsets between."""
Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Ranges `[first, stop)` of offsets, in any order."""


class DispatcherAdapter:
    """Passes changes of one `Progress` on to the dispatcher of its group."""

    __slots__ = ("_dispatcher", "_partition", "_queue")

    def __init__(self, queue: Queue, dispatcher: Dispatcher, partition: int):
        self._queue = queue
        self._dispatcher = dispatcher
        self._partition = partition

    def places(self, first: int, stop: int) -> Sequence[int]:
        if not self._queue.growths:
            return range(place_of(self._partition, first), place_of(self._partition, stop), 1 << PARTITION_BITS)
        return [self.place(offset) for offset in range(first, stop)]

    def place(self, offset: int) -> int:
        return place_of(self._partition, offset, self._queue.age_of(self._partition, offset))

    def ready(self, first: int, stop: int, *, fresh: bool = False) -> None:
        if fresh:
            self._dispatcher.ready_all(list(self.places(first, stop)), number=self._partition)
            return
        for place in self.places(first, stop):
            self._dispatcher.ready(place)

    def oldest(self) -> int | None:
        """The lowest offset that can be leased now."""
        return self._dispatcher.oldest(self._partition)

    def leave(self, ranges: Ranges) -> None:
        """The messages are done, or were moved to a later time."""
        dispatcher = self._dispatcher
        dispatcher.not_offered(self._partition, ranges)
        if dispatcher.gate is not None:
            dispatcher.leave(dispatcher.gate, self._keyed(ranges))
        dispatcher.ended(sum([stop - first for first, stop in ranges]))

    def leased(self, ranges: Ranges) -> None:
        dispatcher = self._dispatcher
        dispatcher.not_offered(self._partition, ranges)
        if dispatcher.gate is not None:
            seize = dispatcher.gate.seize
            for key, place in self._keyed(ranges):
                seize(key, place)
        if dispatcher.shares is not None:
            for first, stop in ranges:
                for place in self.places(first, stop):
                    dispatcher.leased(place)

    def _keyed(self, ranges: Ranges) -> Iterable[tuple[int, int]]:
        """(key, place) of each; none if no message of the partition has a key."""
        column = self._queue.partitions[self._partition].traits.key
        if column is None or not ranges:
            return ()
        begin, end = ranges[0][0], ranges[-1][1]
        left_out = end - begin - sum([stop - first for first, stop in ranges])
        near = left_out <= LEFT_OUT_MAX * len(ranges) and not self._queue.growths
        if near and (inside := _inside(ranges, begin, end)) is not None:
            # One pass over the whole stretch; the offsets between the ranges are skipped.
            return compress(zip(column.stretch(begin, end), self.places(begin, end), strict=True), inside)
        keys = array("q")
        for first, stop in ranges:
            keys += column.stretch(first, stop)
        return zip(keys, chain.from_iterable([self.places(first, stop) for first, stop in ranges]), strict=True)

    def waiting(self, offset: int) -> None:
        """The message waits for its next attempt and holds its key until it is done. Also for a redriven dead letter
        whose key was parked."""
        place = self.place(offset)
        self._dispatcher.hold(place)
        self._dispatcher.wait(place)

    def delayed(self, ranges: Ranges) -> None:
        """Messages that were tried before cannot be leased for a while. They keep the keys that they hold."""
        self._dispatcher.not_offered(self._partition, ranges)
        if self._dispatcher.gate is not None:
            wait = self._dispatcher.gate.wait
            for key, place in self._keyed(ranges):
                wait(key, place)

    def park(self, key: int, offset: int) -> None:
        self._dispatcher.park(key, self.place(offset))

    def unpark(self, key: int, offset: int) -> None:
        self._dispatcher.unpark(key, self.place(offset))

    def let_go(self, ranges: Iterable[tuple[int, int]]) -> None:
        if self._dispatcher.shares is not None:
            for first, stop in ranges:
                for place in self.places(first, stop):
                    self._dispatcher.let_go(place)


def _inside(ranges: Ranges, begin: int, end: int) -> bytearray | None:
    """For each offset of `[begin, end)`, 1 if it is in one of these; None if they are not in order."""
    inside = bytearray(b"\1") * (end - begin)
    at = begin
    for first, stop in ranges:
        if first > at:
            inside[at - begin : first - begin] = bytes(first - at)
        elif first < at:
            return None
        at = stop
    return inside


def open_dispatchers(queue: Queue) -> None:
    """Build the dispatchers of a queue from its hard state. An unordered queue has none: its cursor is enough."""
    close_dispatchers(queue)
    if queue.config.indexed:
        for group in queue.group_names:
            open_dispatcher(queue, group)


def close_dispatchers(queue: Queue) -> None:
    """Remove the dispatchers; ready messages are not indexed until the dispatchers are opened again."""
    queue.dispatchers = {}
    for partition in queue.partitions:
        for progress in partition.progress.values():
            progress.adapter = None


def follow_settings(queue: Queue, before: QueueConfig) -> None:
    """Keep the dispatchers of a queue whose settings, or number of partitions, changed, but not its order."""
    for group, dispatcher in queue.dispatchers.items():
        dispatcher.follow(before)
        dispatcher.ages += [Ages() for _ in queue.partitions[len(dispatcher.ages) :]]
        for number, partition in enumerate(queue.partitions):
            progress = partition.progress[group]
            if progress.adapter is None:
                progress.adapter = DispatcherAdapter(queue, dispatcher, number)


def open_dispatcher(queue: Queue, group: int) -> None:
    """Build the dispatcher of one group. A message that waits for its next attempt is offered when it is due."""
    dispatcher = queue.dispatchers[group] = Dispatcher(queue, group)
    free: list[Iterator[int]] = []
    for number, partition in enumerate(queue.partitions):
        progress = partition.progress[group]
        adapter = progress.adapter = DispatcherAdapter(queue, dispatcher, number)
        held = progress.leased.copy()
        adapter.leased(list(progress.leased))
        for offset, retry in sorted(progress.retries.items()):
            held.add(offset, offset + 1)
            # A redriven message counts as new, unless its key has waited for it.
            if offset not in progress.leased and (retry.attempt or queue.config.park_dead_keys):
                adapter.waiting(offset)
        if queue.config.park_dead_keys:
            for offset, key in partition.dead.keys(group):
                adapter.park(key, offset)
        free.append(_free_places(partition, progress, held, adapter))
    if dispatcher.load(free):
        return
    places = merge(*free)
    while some := list(islice(places, LOAD_AT_ONCE)):
        dispatcher.ready_all(some, number=0 if len(free) == 1 else None)


def _free_places(partition: Partition, progress: Progress, held: RangeSet, adapter: DispatcherAdapter) -> Iterator[int]:
    """Places of the messages that are neither done, nor leased, nor scheduled for later, in ascending order."""
    for first, stop in progress.done.gaps(progress.floor, partition.end):
        for inside, after in held.gaps(first, stop):
            for free, busy in partition.scheduled.gaps(inside, after):
                for begin in range(free, busy, LOAD_AT_ONCE):
                    yield from adapter.places(begin, min(busy, begin + LOAD_AT_ONCE))
