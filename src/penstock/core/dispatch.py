"""Who is next, where that is more than a cursor over the log: lanes, heaps, ordered keys, fair shares.

One dispatcher per group of such a queue, over all its partitions. Three questions are put to a message one after the
other, and each has a file of its own:

    may its key have another one?    `keys.py`      not while a message with the same key is let through
    whose turn is it?                `tenants.py`   fairness comes before priority
    which of theirs?                 `line.py`, `lanes.py`, `heap.py`

All of it is soft state: found again from the traits of the messages and from what is done, leased and waiting. Entries
may be stale; they are dropped when they come up.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from penstock.core.heap import Heap
from penstock.core.keys import KeyGate
from penstock.core.lanes import Lanes
from penstock.core.line import PARTITION_BITS, PARTITION_MASK, Line, Valid
from penstock.core.ranges import RangeSet
from penstock.core.state import Partition, Progress, Queue
from penstock.core.tenants import FairShare, Order
from penstock.core.traits import hash_of


class Dispatcher:
    """The ready messages of one group, by place (`offset << 8 | partition`)."""

    __slots__ = ("_group", "_queue", "_source", "gate", "shares")

    def __init__(self, queue: Queue, group: int):
        self._queue = queue
        self._group = group
        config = queue.config
        self.gate = KeyGate() if config.ordered_keys else None
        self.shares: FairShare | None = None
        self._source: FairShare | Order
        if config.fair_share.enabled:
            weights = {hash_of(tenant.encode()): weight for tenant, weight in config.fair_share.weights.items()}
            self._source = self.shares = FairShare(self._make_order, weights, config.fair_share.max_in_flight)
        else:
            self._source = self._make_order()

    def _make_order(self) -> Order:
        config = self._queue.config
        if config.order == "heap":
            return Heap(config.heap_mode, config.top_k, len(self._queue.partitions))
        return Lanes(config.lane_weights) if config.order == "lanes" else Line()

    # -- what happens to messages -------------------------------------------------------------------------------------

    def ready(self, place: int, *, fresh: bool = False) -> None:
        """This message may be given out now, as far as it alone is concerned. `fresh`: it was published just now."""
        if self.gate is None or self.gate.enter(self._key(place), place, fresh=fresh):
            self._offer(place, fresh=fresh)

    def hold(self, place: int) -> None:
        """This message is leased or waits for its next attempt: its key is taken."""
        if self.gate is not None:
            self.gate.seize(self._key(place), place)

    def leave(self, place: int) -> None:
        """This message is done, or was moved to a later time: its key is free for the next one."""
        if self.gate is not None:
            following = self.gate.leave(self._key(place), place, self._valid(None))
            if following is not None:
                self._offer(following, fresh=False)

    def park(self, key: int, place: int) -> None:
        """This message was given up, and its key waits with it."""
        if self.gate is not None:
            self.gate.park(key, place)

    def unpark(self, key: int, place: int) -> None:
        if self.gate is not None:
            following = self.gate.unpark(key, place, self._valid(None))
            if following is not None:
                self._offer(following, fresh=False)

    def leased(self, place: int) -> None:
        if self.shares is not None:
            self.shares.leased(self._tenant(place), 1)

    def let_go(self, place: int) -> None:
        if self.shares is not None:
            self.shares.let_go(self._tenant(place), 1)

    def _offer(self, place: int, *, fresh: bool) -> None:
        if isinstance(self._source, FairShare):
            self._source.push(self._tenant(place), place, self._priority(place), fresh=fresh)
        else:
            self._source.push(place, self._priority(place), fresh=fresh)

    # -- who is next --------------------------------------------------------------------------------------------------

    def take(self, wanted: int, now_ms: int) -> list[int]:
        """Up to this many places, best first. They are out of here until they are leased or given back."""
        taken: list[int] = []
        seen: set[int] = set()
        valid = self._valid(now_ms)
        if self.shares is not None:
            self.shares.begin()
        while len(taken) < wanted:
            place = self._source.pop(valid, now_ms)
            if place is None:
                break
            if place not in seen:
                seen.add(place)
                taken.append(place)
        return taken

    def give_back(self, places: list[int]) -> None:
        for place in places:
            self._offer(place, fresh=False)

    def upcoming(self, now_ms: int) -> Iterator[int]:
        """What would be taken, without taking it; where lanes or tenants take turns, about in this order."""
        valid = self._valid(now_ms)
        return (place for place in self._source if valid(place))

    def _valid(self, now_ms: int | None) -> Valid:
        """Entries are stale if their message was settled, leased, moved to later or taken away since.

        Without a time, a message that waits for its next attempt counts as ready: it is about who holds a key.
        """
        partitions, group, gate = self._queue.partitions, self._group, self.gate

        def valid(place: int) -> bool:
            partition, offset = partitions[place & PARTITION_MASK], place >> PARTITION_BITS
            if not partition.progress[group].may_deliver(partition, offset, now_ms):
                return False
            return gate is None or now_ms is None or gate.lets(self._key(place), place)

        return valid

    @property
    def blocked_keys(self) -> int:
        return self.gate.blocked if self.gate is not None else 0

    # -- traits -------------------------------------------------------------------------------------------------------

    def _key(self, place: int) -> int:
        column = self._queue.partitions[place & PARTITION_MASK].traits.key
        return column[place >> PARTITION_BITS] if column is not None else 0

    def _tenant(self, place: int) -> int:
        column = self._queue.partitions[place & PARTITION_MASK].traits.tenant
        return column[place >> PARTITION_BITS] if column is not None else 0

    def _priority(self, place: int) -> int:
        column = self._queue.partitions[place & PARTITION_MASK].traits.priority
        return column[place >> PARTITION_BITS] if column is not None else 0


class Desk:
    """One partition's way to the dispatcher of its group: what a `Progress` tells it."""

    __slots__ = ("_dispatcher", "_partition")

    def __init__(self, dispatcher: Dispatcher, partition: int):
        self._dispatcher = dispatcher
        self._partition = partition

    def ready(self, first: int, stop: int, *, fresh: bool = False) -> None:
        for offset in range(first, stop):
            self._dispatcher.ready(offset << PARTITION_BITS | self._partition, fresh=fresh)

    def leave(self, first: int, stop: int) -> None:
        if self._dispatcher.gate is not None:
            for offset in range(first, stop):
                self._dispatcher.leave(offset << PARTITION_BITS | self._partition)

    def leased(self, first: int, stop: int) -> None:
        for offset in range(first, stop):
            self._dispatcher.hold(offset << PARTITION_BITS | self._partition)
            self._dispatcher.leased(offset << PARTITION_BITS | self._partition)

    def park(self, key: int, offset: int) -> None:
        self._dispatcher.park(key, offset << PARTITION_BITS | self._partition)

    def unpark(self, key: int, offset: int) -> None:
        self._dispatcher.unpark(key, offset << PARTITION_BITS | self._partition)

    def let_go(self, first: int, stop: int) -> None:
        if self._dispatcher.shares is not None:
            for offset in range(first, stop):
                self._dispatcher.let_go(offset << PARTITION_BITS | self._partition)


def open_desks(queue: Queue) -> None:
    """The dispatchers of a queue from its hard state; none where a cursor is enough."""
    queue.dispatchers = {}
    for group in queue.group_names:
        if queue.config.indexed:
            open_desk(queue, group)
        else:
            for partition in queue.partitions:
                partition.progress[group].desk = None


def open_desk(queue: Queue, group: int) -> None:
    """The dispatcher of one group. What waits for its next attempt is told to it when that is due."""
    dispatcher = queue.dispatchers[group] = Dispatcher(queue, group)
    free = []
    for number, partition in enumerate(queue.partitions):
        progress = partition.progress[group]
        progress.desk = Desk(dispatcher, number)
        held = progress.leased.copy()
        for first, stop in progress.leased:
            progress.desk.leased(first, stop)
        for offset in progress.retries:
            held.add(offset, offset + 1)
            dispatcher.hold(offset << PARTITION_BITS | number)
        for (owner, offset), letter in partition.dead.items():
            if owner == group and letter.key:
                progress.desk.park(letter.key, offset)
        free.append(_free_places(partition, progress, held, number))

    def by_age(place: int) -> tuple[int, int]:
        return queue.age_of(place & PARTITION_MASK, place >> PARTITION_BITS), place

    for place in merge(*free, key=by_age if queue.growths else None):
        dispatcher.ready(place, fresh=True)


def _free_places(partition: Partition, progress: Progress, held: RangeSet, number: int) -> Iterator[int]:
    """Neither done nor in somebody's hands, nor to be later: ascending."""
    for first, stop in progress.done.gaps(progress.floor, partition.end):
        for inside, after in held.gaps(first, stop):
            for free, busy in partition.scheduled.gaps(inside, after):
                for offset in range(free, busy):
                    yield offset << PARTITION_BITS | number
