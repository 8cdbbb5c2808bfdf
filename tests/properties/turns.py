"""The next message of a queue, by the simplest code: every order of a queue as loops over lists.

Two kinds of statements about a lease. *Rules* hold for any lease of any queue and know nothing of how the machine finds
the next message: never two of one key at once, never past an older one of the key, never over a tenant's cap, and
nothing left behind that could have been given. *Prediction* says message by message what a lease gets, from the ready
messages and from whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from naive import Life, Message, NaiveQueue

from penstock.core.order.lanes import BOOST_AFTER_MS

Chosen = tuple[int, int]
"""(partition, offset)."""


def age_of(queue: NaiveQueue, message: Message) -> int:
    if not queue.growths:
        return 0
    return sum(message.partition >= len(ends) or message.offset >= ends[message.partition] for ends in queue.growths)


def seniority(queue: NaiveQueue, message: Message) -> tuple[int, int, int]:
    """Of two messages with one key the older one has the lower one."""
    return age_of(queue, message), message.offset, message.partition


# -- rules ---------------------------------------------------------------------------------------------------------


def taken_keys(queue: NaiveQueue, group: int, now: int) -> set[bytes]:
    """Keys with a message that is leased or waiting for its next attempt."""
    return {
        message.key
        for message in queue.messages()
        if message.key
        and (life := message.lives[group]).end is None
        and (life.lease is not None or (life.attempt and life.due > now))
    }


def in_flight(queue: NaiveQueue, group: int) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for message in queue.messages():
        if message.lives[group].lease is not None:
            counts[message.tenant] = counts.get(message.tenant, 0) + 1
    return counts


def check_rules(
    queue: NaiveQueue, group: int, now: int, wanted: int, chosen: Sequence[Chosen], parked: set[bytes]
) -> None:
    """What a lease gave, against the state before it."""
    messages = [queue.logs[partition][offset] for partition, offset in chosen]
    assert len(set(chosen)) == len(chosen) <= wanted, "nothing twice, nothing more than asked for"
    for message in messages:
        assert message.deliverable(group, now), f"{message} is not ready"
    ordered, share = queue.config.ordered_keys, queue.config.fair_share
    blocked = taken_keys(queue, group, now) | parked if ordered else set()
    flying = in_flight(queue, group)
    cap = share.max_in_flight if share.enabled and queue.config.delivery == "at_least_once" else None
    for message in messages:
        if ordered and message.key:
            assert message.key not in blocked, f"key {message.key!r} has two at once, or is parked"
            blocked.add(message.key)
            _check_overtakes_nobody(queue, group, message)
        flying[message.tenant] = flying.get(message.tenant, 0) + 1
        assert cap is None or flying[message.tenant] <= cap, f"tenant {message.tenant!r} has more than its cap"
    if len(chosen) < wanted:
        left = [m for m in queue.messages() if m.deliverable(group, now) and m not in messages]
        capped = [m for m in left if cap is not None and flying.get(m.tenant, 0) >= cap]
        if ordered:
            # A redriven dead letter may have its key already while it waits.
            blocked |= {m.key for m in queue.messages() if m.lives[group].redriven and m.lives[group].end is None}
            # A message that another group holds past its time keeps its position until it ends.
            blocked |= {m.key for m in queue.messages() if m.lives[group].end is None and m.overdue(now)}
            blocked |= {m.key for m in capped if m.key}  # the first of the key is one whose tenant must wait
        for message in left:
            behind = ordered and message.key in blocked
            assert behind or message in capped, f"{message} could have been given, and was not"
    if share.enabled and cap is None and not ordered:
        _check_turns(queue, group, now, messages)


def _check_overtakes_nobody(queue: NaiveQueue, group: int, message: Message) -> None:
    """An older message of the key that is not over must have been moved to a time of its own, or was over once."""
    for other in queue.messages():
        if other.key == message.key and seniority(queue, other) < seniority(queue, message):
            life = other.lives[group]
            assert life.end is not None or other.due or life.redriven, f"{message} overtakes {other}"


def _check_turns(queue: NaiveQueue, group: int, now: int, chosen: list[Message]) -> None:
    """Tenants that still have something were served about equally often, measured in turns."""
    left = {m.tenant for m in queue.messages() if m.deliverable(group, now) and m not in chosen}
    turns = {
        tenant: sum(m.tenant == tenant for m in chosen) / queue.config.fair_share.weights.get(tenant.decode(), 1)
        for tenant in left
    }
    assert max(turns.values(), default=0) - min(turns.values(), default=0) < 2, turns


# -- prediction ----------------------------------------------------------------------------------------------------


class Ranks:
    """How each ready message joined the line of its group: in the row, or coming back to before it."""

    def __init__(self) -> None:
        self._rank: dict[tuple[int, int, int, int], tuple[int, object]] = {}
        self._counter = 0

    def observe(
        self, number: int, queue: NaiveQueue, now: int, offered: Callable[[int, Message], bool], fresh: Iterable[Chosen]
    ) -> None:
        """After a step: a message that is offered now and was not before has joined."""
        new = set(fresh)
        for message in queue.messages():
            for group in message.lives:
                name = (number, group, message.partition, message.offset)
                if not message.deliverable(group, now) or not offered(group, message):
                    self._rank.pop(name, None)
                elif name not in self._rank:
                    if (message.partition, message.offset) in new:
                        self._join(name)
                    else:
                        self._rank[name] = (0, seniority(queue, message))

    def _join(self, name: tuple[int, int, int, int]) -> None:
        self._counter += 1
        self._rank[name] = (1, self._counter)

    def begin_again(
        self,
        number: int,
        queue: NaiveQueue,
        now: int,
        offered: Callable[[int, Message], bool],
        comes_back: Callable[[Message, Life], bool],
        groups: Iterable[int],
    ) -> None:
        """The index was built anew: all that is ready stands in the row by its place, but for what `comes_back`."""
        for message in sorted(queue.messages(), key=lambda m: seniority(queue, m)):
            for group in groups:
                life = message.lives[group]
                name = (number, group, message.partition, message.offset)
                self._rank.pop(name, None)
                if message.deliverable(group, now) and offered(group, message):
                    if life.attempt or life.redriven or comes_back(message, life):
                        self._rank[name] = (0, seniority(queue, message))
                    else:
                        self._join(name)

    def left(self, number: int, partition: int, offset: int) -> bool:
        """Moved to another time: wherever it stood, it joins again. True if it stood in the row."""
        names = [name for name in self._rank if (name[0], *name[2:]) == (number, partition, offset)]
        stood = [self._rank.pop(name)[0] for name in names]
        return 1 in stood

    def in_order(self, number: int, queue: NaiveQueue, group: int, messages: Iterable[Message]) -> list[Message]:
        """The row, with all messages that came back before the first in it that is younger."""

        def rank(message: Message) -> tuple[int, object]:
            return self._rank[number, group, message.partition, message.offset]

        ranked = sorted(messages, key=rank)
        back, row = [m for m in ranked if rank(m)[0] == 0], [m for m in ranked if rank(m)[0] == 1]
        line: list[Message] = []
        while back or row:
            first = back and (not row or seniority(queue, back[0]) < seniority(queue, row[0]))
            line.append((back if first else row).pop(0))
        return line


class Rounds:
    """What the lanes of one tenant (or of all of them) have left of their round."""

    def __init__(self, weights: Sequence[int]):
        self.weights = weights
        self.left = list(weights)

    def serve(self, lanes: list[list[Message]], since: list[int | None], now: int) -> Message | None:
        """The next message, taken out of its lane; None and a new round if there is none."""
        for lane in range(5):
            if not lanes[lane]:
                since[lane] = None
            elif since[lane] is None:
                since[lane] = now
        starving = [
            (waiting, lane)
            for lane, waiting in enumerate(since)
            if waiting is not None and waiting < now - BOOST_AFTER_MS
        ]
        able = [lane for lane in range(5) if lanes[lane] and self.left[lane] > 0]
        if starving:
            lane = min(starving)[1]
        elif able:
            lane = able[0]
        else:
            self.left = list(self.weights)
            if not any(lanes):
                return None
            lane = next(lane for lane in range(5) if lanes[lane])
        self.left[lane] -= 1
        message = lanes[lane].pop(0)
        since[lane] = now if lanes[lane] else None
        return message


class Row:
    """Tenants in the order of their turns; `turn` is what the first one may still have."""

    def __init__(self, tenants: Iterable[bytes], turn: int):
        self.tenants = list(tenants)
        self.turn = turn

    def serve(
        self, weights: dict[str, int], may_have: Callable[[bytes], bool], serve: Callable[[bytes], Message | None]
    ) -> Message | None:
        while self.tenants:
            tenant = self.tenants[0]
            if self.turn <= 0:
                self.turn = weights.get(tenant.decode(), 1)
            message = serve(tenant) if may_have(tenant) else None
            if message is None:
                self.tenants.pop(0)
                self.turn = 0
                continue
            self.turn -= 1
            if self.turn <= 0:
                self.tenants.append(self.tenants.pop(0))
            return message
        return None


def by_tenant(messages: Iterable[Message]) -> dict[bytes, list[Message]]:
    in_order = sorted(messages, key=lambda m: m.tenant)
    return {tenant: list(group) for tenant, group in groupby(in_order, key=lambda m: m.tenant)}
