"""The messages that a lease would deliver next, in that order, without leasing them.

A group that exists is asked where its cursor, or its dispatcher, is. A group that does not exist yet would begin at the
oldest message that is kept: in a fifo queue that is a walk over the log; where the order needs an index, the index that
the first lease would build is built here, in steps, and dropped (`Newcomer`).

Windows and exclusive queues say when messages may go and not which, so they make no difference here.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from heapq import merge
from itertools import islice

from penstock.core.decide.leasing import partitions_before
from penstock.core.order.dispatch import Dispatcher
from penstock.core.order.dispatcher_adapter import DispatcherAdapter
from penstock.core.order.fifo import ascending
from penstock.core.order.oldest import free_for_newcomers, is_free_for_newcomers
from penstock.core.state import Partition, Progress, Queue

_NEWCOMER = -1
"""The number of a group that does not exist."""


def next_runs(queue: Queue, group: int | None, now_ms: int) -> Iterator[tuple[int, int, int]]:
    """(partition, first, stop) of what this group would be given; without a group, one that begins now in a line."""
    if group is not None and group in queue.dispatchers:
        return ((number, offset, offset + 1) for number, offset in queue.dispatchers[group].upcoming(now_ms))
    assert not queue.config.indexed
    return _in_line(queue, group, now_ms)


def _in_line(queue: Queue, group: int | None, now_ms: int) -> Iterator[tuple[int, int, int]]:
    """The partitions one after the other, as a lease takes from them; offsets ascend within each."""
    parts = len(queue.partitions)
    for number in [number % parts for number in range(queue.turn, queue.turn + parts)]:
        partition = queue.partitions[number]
        if group is None:
            waits = queue.growths and _waits_as_newcomer(queue, number)
            runs = free_for_newcomers(queue, partition)
        else:
            waits = queue.growths and any(True for _ in partitions_before(queue, group, number))
            runs = _ready_runs(partition, partition.progress[group], now_ms)
        for first, stop in () if waits else runs:
            yield number, first, stop


def _waits_as_newcomer(queue: Queue, number: int) -> bool:
    """The rule of `leasing.partitions_before` for a group that begins now."""
    return any(
        number >= len(ends)
        and any(
            next((first for first, _ in free_for_newcomers(queue, queue.partitions[older])), end) < end
            for older, end in enumerate(ends)
        )
        for ends in queue.growths
    )


def _ready_runs(partition: Partition, progress: Progress, now_ms: int) -> Iterator[tuple[int, int]]:
    """The runs that `leasing._select` would choose without a limit."""
    ready = ascending(progress.ready)
    upcoming = next(ready, None)
    cursor, passed = progress.cursor, -1
    while True:
        cursor = progress.on_path(partition, cursor)
        if upcoming is not None and upcoming < cursor:
            offset, upcoming = upcoming, next(ready, None)
            if offset > passed and progress.may_deliver(partition, offset, now_ms):
                passed = offset
                yield offset, offset + 1
        elif cursor < partition.end:
            first, cursor = cursor, progress.off_path(partition, cursor)
            passed = cursor - 1
            yield first, cursor
        else:
            return


class Newcomer:
    """The messages of a queue whose order is kept in an index, as a group that begins now would find them.

    Loaded in steps, because it costs as much as there are messages. Records that are applied between two steps do
    not change the index; messages that were finished, cancelled or moved by then are left out in the end.
    """

    def __init__(self, queue: Queue, at_once: int):
        self._queue = queue
        self._at_once = at_once
        beside = copy(queue)
        beside.partitions = queue.partitions.replaced([_begun_now(partition) for partition in queue.partitions])
        self._dispatcher = Dispatcher(beside, _NEWCOMER)
        adapters = [DispatcherAdapter(beside, self._dispatcher, number) for number in range(len(beside.partitions))]
        self._places = merge(
            *(
                _places(adapter, free_for_newcomers(beside, partition), at_once)
                for adapter, partition in zip(adapters, queue.partitions, strict=True)
            )
        )
        self._number = 0 if len(adapters) == 1 else None

    def load(self) -> Iterator[None]:
        """Loads `at_once` messages with each step."""
        while some := list(islice(self._places, self._at_once)):
            self._dispatcher.ready_all(some, number=self._number)
            yield

    def upcoming(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """(partition, offset), the next one first."""
        for number, offset in self._dispatcher.upcoming(now_ms):
            if is_free_for_newcomers(self._queue, number, offset):
                yield number, offset


def _begun_now(partition: Partition) -> Partition:
    """The same partition, with no group but the one that begins now."""
    beside = copy(partition)
    beside.progress = {_NEWCOMER: Progress(partition.start)}
    return beside


def _places(adapter: DispatcherAdapter, ranges: Iterator[tuple[int, int]], at_once: int) -> Iterator[int]:
    for first, stop in ranges:
        for begin in range(first, stop, at_once):
            yield from adapter.places(begin, min(stop, begin + at_once))
