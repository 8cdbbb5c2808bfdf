"""The next message, where the order is more than a cursor over the log: lanes, heaps, ordered keys, fair shares.

One dispatcher per group of such a queue, over all its partitions. Three questions are put to a message one after the
other, and each has a file of its own:

    may its key have another one?    `keys.py`      not while a message with the same key is let through
    whose turn is it?                `tenants.py`   fairness comes before priority
    which of theirs?                 `line.py`, `lanes.py`, `heap.py`

All of it is soft state: found again from the traits of the messages and from what is done, leased and waiting. Entries
may be stale; they are dropped when they come up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from penstock.core.config import QueueConfig
from penstock.core.order.ages import Ages
from penstock.core.order.fair_share import FairShare, Order
from penstock.core.order.fifo import (
    OFFSET_MASK,
    PARTITION_BITS,
    PARTITION_MASK,
    Line,
    Valid,
    partition_and_offset,
    place_of,
)
from penstock.core.order.heap import Heap
from penstock.core.order.keys import KeyGate
from penstock.core.order.lanes import Lanes
from penstock.core.state import Queue
from penstock.core.state.traits import Column, hash_of

SWEEP_EVERY = 512
"""Messages that end between two looks at how much of the index is stale."""
SWEEPS_AT_ONCE = 32
"""Looks that are made up for together where many have ended at once; the others follow when more end."""
LOAD_AT_ONCE = 1 << 16
"""Places that are held as a list at a time while an index is built."""


class Dispatcher:
    """The ready messages of one group, by place (`line.py`)."""

    __slots__ = ("_asleep", "_ended", "_group", "_queue", "_source", "ages", "gate", "shares")

    def __init__(self, queue: Queue, group: int):
        self._queue = queue
        self._group = group
        self._ended = 0
        config = queue.config
        self.ages = [Ages() for _ in queue.partitions]
        """By partition: what is offered, whatever the order."""
        self._asleep: dict[int, set[int]] = {}
        """Tenants that were found at their cap -> the partitions in which that made a difference."""
        self.gate = KeyGate() if config.ordered_keys else None
        self.shares: FairShare | None = None
        self._source: FairShare | Order
        if config.fair_share.enabled:
            self._source = self.shares = FairShare(self._make_order, _weights(config), _cap(config))
        else:
            self._source = self._make_order()

    def _make_order(self) -> Order:
        config = self._queue.config
        if config.order == "heap":
            return Heap(config.heap_mode, config.top_k, len(self._queue.partitions))
        return Lanes(config.lane_weights) if config.order == "lanes" else Line()

    def follow(self, before: QueueConfig) -> None:
        """Other weights, caps or more partitions than before, in the same order (`config.same_order`)."""
        config = self._queue.config
        if self.shares is not None and (before.fair_share, before.delivery) != (config.fair_share, config.delivery):
            self.shares.follow(_weights(config), _cap(config))
            for tenant, numbers in self._asleep.items():
                for number in numbers:
                    self.ages[number].wake(tenant)
            self._asleep.clear()
        lanes = before.lane_weights != config.lane_weights
        heaps = (before.top_k, before.partitions) != (config.top_k, config.partitions)
        if (lanes and config.order == "lanes") or (heaps and config.order == "heap"):
            for order in self._source.orders() if isinstance(self._source, FairShare) else [self._source]:
                if isinstance(order, Lanes):
                    order.follow(config.lane_weights)
                elif isinstance(order, Heap):
                    order.follow(config.top_k, config.partitions)

    # -- what happens to messages -------------------------------------------------------------------------------------

    def ready(self, place: int, *, fresh: bool = False) -> None:
        """This message may be given out now, as far as it alone is concerned. `fresh`: it was published just now."""
        if self.gate is None or self.gate.enter(self._key(place), place, fresh=fresh):
            self._offer(place, fresh=fresh)

    def ready_all(self, places: Sequence[int], *, number: int | None) -> None:
        """The same for many fresh ones, ascending; of this partition, or of any."""
        if self.gate is not None and places:
            places = self.gate.enter_all(self._traits("key", places, number), places)
        if not places:
            return
        if not isinstance(self._source, FairShare):
            self._source.push_all(places, self._traits("priority", places, number))
            self._add_ages(0, places, number)
            return
        for tenant, theirs in _grouped(self._traits("tenant", places, number), places).items():
            self._source.push_all(tenant, theirs, self._traits("priority", theirs, number))
            self._add_ages(tenant, theirs, number)

    def load(self, partitions: list[Iterator[int]]) -> bool:
        """Load all ready messages at once, if the order does not depend on the order of insertion; otherwise False."""
        if self.gate is not None or not isinstance(self._source, Heap):
            return False
        for number, places in enumerate(partitions):
            every = array("q", places)
            priorities = array("q")
            for at in range(0, len(every), LOAD_AT_ONCE):
                some = every[at : at + LOAD_AT_ONCE]
                priorities.extend(self._traits("priority", some, number))
                self._add_ages(0, some, number)
            self._source.load(every, priorities)
        return True

    def _add_ages(self, tenant: int, places: Sequence[int], number: int | None) -> None:
        if number is None:
            for each, theirs in _grouped([place & PARTITION_MASK for place in places], places).items():
                self._add_ages(tenant, theirs, each)
        else:
            self.ages[number].add_all(tenant, _offsets(places))

    def hold(self, place: int) -> None:
        """This message is leased or waits for its next attempt: its key is taken."""
        if self.gate is not None:
            self.gate.seize(self._key(place), place)

    def wait(self, place: int) -> None:
        """This message failed, and is ready again when its time has come."""
        if self.gate is not None:
            self.gate.wait(self._key(place), place)

    def leave(self, gate: KeyGate, keyed: Iterable[tuple[int, int]]) -> None:
        """These messages, each with its key, are done or were moved to a later time: others may have their keys."""
        if following := gate.leave_all(keyed, self._valid(None)):
            self._offer_all(following)

    def ended(self, count: int) -> None:
        """So many messages are done or were moved: what the index says about them may be stale, and may stay so."""
        self._ended += count
        if self._ended < SWEEP_EVERY:
            return
        wanted = sum(partition.progress[self._group].undone(partition.end) for partition in self._queue.partitions)
        unsettled = self._valid(None)
        for _ in range(SWEEPS_AT_ONCE):
            if len(self._source) <= wanted + wanted // 4 + SWEEP_EVERY:
                self._ended %= SWEEP_EVERY
            if self._ended < SWEEP_EVERY:
                return
            self._ended -= SWEEP_EVERY
            for _ in range(4):
                self._source.sweep(unsettled)

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
            tenant = self._tenant(place)
            self.shares.let_go(tenant, 1)
            for number in self._asleep.pop(tenant, ()):
                self.ages[number].wake(tenant)

    def not_offered(self, partition: int, ranges: Sequence[tuple[int, int]]) -> None:
        """These messages are leased, or done, or were moved to later."""
        ages = self.ages[partition]
        if self.shares is None:
            ages.remove(0, ranges)
            return
        tenants = self._queue.partitions[partition].traits.tenant
        for first, stop in ranges:
            if stop - first > SWEEP_EVERY:
                ages.remove_all(first, stop)
            else:
                for offset in range(first, stop):
                    ages.remove(tenants[offset] if tenants is not None else 0, ((offset, offset + 1),))

    def _offer_all(self, places: list[int]) -> None:
        """Those that waited behind others."""
        if len(places) == 1 or isinstance(self._source, FairShare):
            for place in places:
                self._offer(place, fresh=False)
            return
        for place, priority in zip(places, self._traits("priority", places, None), strict=True):
            self._source.push(place, priority, fresh=False)
        self._add_ages(0, sorted(places), None)

    def _offer(self, place: int, *, fresh: bool) -> None:
        number, offset = partition_and_offset(place)
        if isinstance(self._source, FairShare):
            tenant = self._tenant(place)
            self._source.push(tenant, place, self._priority(place), fresh=fresh)
            self.ages[number].add(tenant, offset, offset + 1)
        else:
            self._source.push(place, self._priority(place), fresh=fresh)
            self.ages[number].add(0, offset, offset + 1)

    # -- the next messages --------------------------------------------------------------------------------------------

    def take(self, wanted: int, now_ms: int, room_after: Callable[[int], int] | None) -> list[int]:
        """Up to this many places, best first, until there is no room left after one of them, if that is asked.

        They are out of here until they are leased. One at a time: what is looked at and not given spends no share.
        """
        taken: list[int] = []
        seen: set[int] = set()
        valid = self._valid(now_ms, seen)
        if self.shares is not None:
            self.shares.begin()
        while len(taken) < wanted:
            place = self._source.pop(valid, now_ms)
            if place is None:
                break
            seen.add(place)
            taken.append(place)
            if room_after is not None and room_after(place) <= 0:
                break
        return taken

    def upcoming(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """(partition, offset) of what `take` would take, in that order, without taking it. To be looked through before
        anything is applied."""
        seen: set[int] = set()
        still = self._valid(now_ms, seen)
        for place in self._source.turns(still, now_ms):
            seen.add(place)
            yield partition_and_offset(place)

    def offered(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """(partition, offset) of what could be taken, as if no tenant were at its cap; in no particular order."""
        valid = self._valid(now_ms)
        return (partition_and_offset(place) for place in self._source if valid(place))

    def oldest(self, number: int) -> int | None:
        """The lowest offset of a partition that a large enough lease would deliver; None if there is none.

        Messages that have become due count, also if the caller asks about an earlier moment.
        """
        queue, partition, gate = self._queue, self._queue.partitions[number], self.gate
        progress = partition.progress[self._group]

        def valid(offset: int) -> bool:
            if not progress.may_deliver(partition, offset, None) or offset in partition.overdue:
                return False
            place = place_of(number, offset, queue.age_of(number, offset))
            return gate is None or gate.lets(self._key(place), place)

        def rests(tenant: int) -> bool:
            if self.shares is None or not self.shares.is_full(tenant):
                return False
            self._asleep.setdefault(tenant, set()).add(number)
            return True

        return self.ages[number].oldest(rests, valid)

    def order_of(self, place: int) -> Order | None:
        """The order that this message stands in: of its tenant's messages, or of all."""
        return self._source.order_of(self._tenant(place)) if isinstance(self._source, FairShare) else self._source

    def ahead_of(self, place: int, now_ms: int, most: int) -> tuple[int, bool]:
        """How many of its order would be given out before this message; False if there may be more of them, because
        only `most` entries were looked at."""
        order = self.order_of(place)
        still = self._valid(now_ms)
        seen: set[int] = set()
        looked = 0

        def valid(other: int) -> bool:
            nonlocal looked
            looked += 1
            if looked > most:
                raise _Enough
            if other in seen or not still(other):
                return False
            seen.add(other)
            return True

        ahead = 0
        try:
            for other in order.turns(valid, now_ms) if order is not None else ():
                if other == place:
                    break
                ahead += 1
        except _Enough:
            return ahead, False
        return ahead, True

    def lanes_before(self, place: int) -> list[int]:
        """Lanes that are served before this message's own, because its share of this round is spent."""
        order = self.order_of(place)
        return order.served_before(self._priority(place)) if isinstance(order, Lanes) else []

    def _valid(self, now_ms: int | None, seen: Collection[int] = ()) -> Valid:
        """Entries are stale if their message was settled, leased, moved to later or taken away since, or was seen.

        Without a time, a message that waits for its next attempt, or for its end, counts as ready: the caller asks for
        the holder of a key. Valid until a record is applied: it caches the offset from which no message was touched.
        """
        partitions, group = self._queue.partitions, self._group
        gate = self.gate if now_ms is not None else None
        untouched: dict[int, int] = {}
        """Partition -> `Progress.untouched_from`: most of what is asked about lies beyond."""

        def valid(place: int) -> bool:
            if place in seen:
                return False
            number, offset = place & PARTITION_MASK, place >> PARTITION_BITS & OFFSET_MASK
            begin = untouched.get(number)
            if begin is None:
                partition = partitions[number]
                begin = untouched[number] = partition.progress[group].untouched_from(partition)
            if offset < begin:
                partition = partitions[number]
                if not partition.progress[group].may_deliver(partition, offset, now_ms):
                    return False
            if gate is None or (column := partitions[number].traits.key) is None:
                return True
            return gate.lets(column[offset], place)

        return valid

    @property
    def blocked_keys(self) -> int:
        return self.gate.blocked if self.gate is not None else 0

    # -- traits -------------------------------------------------------------------------------------------------------

    def _key(self, place: int) -> int:
        column = self._queue.partitions[place & PARTITION_MASK].traits.key
        return column[place >> PARTITION_BITS & OFFSET_MASK] if column is not None else 0

    def _tenant(self, place: int) -> int:
        column = self._queue.partitions[place & PARTITION_MASK].traits.tenant
        return column[place >> PARTITION_BITS & OFFSET_MASK] if column is not None else 0

    def _priority(self, place: int) -> int:
        column = self._queue.partitions[place & PARTITION_MASK].traits.priority
        return column[place >> PARTITION_BITS & OFFSET_MASK] if column is not None else 0

    def _traits(self, name: str, places: Sequence[int], number: int | None) -> Sequence[int]:
        """One trait of messages of this partition, or of any; all 0 where the queue does not ask for it."""
        partitions = self._queue.partitions
        column: Column | None = getattr(partitions[number or 0].traits, name)
        if column is None:
            return bytes(len(places))  # as many zeros
        if number is not None:
            return column.get_all(_offsets(places))
        return [
            getattr(partitions[place & PARTITION_MASK].traits, name)[place >> PARTITION_BITS & OFFSET_MASK]
            for place in places
        ]


def _offsets(places: Sequence[int]) -> list[int]:
    return [place >> PARTITION_BITS & OFFSET_MASK for place in places]


def _grouped(names: Sequence[int], places: Sequence[int]) -> dict[int, Sequence[int]]:
    """Name -> its places, in the order in which they come."""
    if len(set(names)) == 1:
        return {names[0]: places}
    groups: dict[int, list[int]] = {}
    for name, place in zip(names, places, strict=True):
        group = groups.get(name)
        if group is None:
            groups[name] = [place]
        else:
            group.append(place)
    return dict(groups)


def _weights(config: QueueConfig) -> dict[int, int]:
    return {hash_of(tenant.encode()): weight for tenant, weight in config.fair_share.weights.items()}


def _cap(config: QueueConfig) -> int | None:
    """The cap of a tenant. Messages delivered at most once are done by delivery and never in flight: no cap."""
    return config.fair_share.max_in_flight if config.delivery == "at_least_once" else None


class _Enough(Exception):
    """Looked at enough entries."""
