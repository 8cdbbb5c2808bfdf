"""Five lanes, 0 (critical) to 4 (background), that share by weight: deficit round robin with messages of one size.

In a round every lane may give as many messages as its weight says, 50/25/15/7/3 unless the queue says otherwise. The
lanes are asked in order, so critical goes first within a round, also when it arrives in the middle of one; but it
spends its share like the other lanes. The round is over when no lane with messages has share left, and when all lanes
are empty. With all lanes full, the deliveries converge to the weights exactly.

A lane that has been passed over for 30 seconds, because few messages are taken at all, is served once out of turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.order.fifo import Line, Valid

LANES = 5
NORMAL = 2
"""The lane of a message that is published without a priority. In journals of before it is in lane 0."""
BOOST_AFTER_MS = 30_000


class Lanes:
    __slots__ = ("_lines", "_share", "_since", "_weights")

    def __init__(self, weights: Sequence[int]):
        self._weights = weights
        self._lines = [Line() for _ in range(LANES)]
        self._share = list(weights)
        self._since: list[int | None] = [None] * LANES
        """When the lane was last served, or first seen waiting; None while it is empty."""

    def follow(self, weights: Sequence[int]) -> None:
        """Other weights from now on: a new round."""
        self._weights = weights
        self._share = list(weights)

    def push(self, place: int, priority: int, *, fresh: bool) -> None:
        # The edge lets no other priorities in; a record of one is still a fact, and must find a lane.
        self._lines[_lane(priority)].push(place, priority, fresh=fresh)

    def push_all(self, places: Sequence[int], priorities: Sequence[int]) -> None:
        for place, priority in zip(places, priorities, strict=True):
            self.push(place, priority, fresh=True)

    def pop(self, valid: Valid, now_ms: int) -> int | None:
        place = None
        while place is None and (lane := self._boosted(now_ms)) is not None:
            place = self._take(lane, valid, now_ms)
        while place is None and any(self._lines):
            for lane in range(LANES):
                if self._share[lane] > 0 and self._lines[lane]:
                    place = self._take(lane, valid, now_ms)
                    if place is not None:
                        break
            else:
                self._share = list(self._weights)
        if place is None:
            self._share = list(self._weights)
        return place

    def _take(self, lane: int, valid: Valid, now_ms: int) -> int | None:
        place = self._lines[lane].pop(valid)
        self._since[lane] = now_ms if self._lines[lane] else None
        if place is not None:
            self._share[lane] -= 1
        return place

    def _boosted(self, now_ms: int) -> int | None:
        """The lane that was passed over for too long, if there is one; the longest first."""
        chosen, longest = None, now_ms - BOOST_AFTER_MS
        for lane, line in enumerate(self._lines):
            if not line:
                self._since[lane] = None
                continue
            since = self._since[lane]
            if since is None:
                self._since[lane] = now_ms
            elif since < longest:
                chosen, longest = lane, since
        return chosen

    def sweep(self, valid: Valid) -> None:
        """Every lane has its turns, so what is no longer valid comes up by itself."""

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    def turns(self, valid: Valid, now_ms: int) -> Iterator[int]:
        """The places that one decision would pop, in order, without popping them: `pop`, again and again, on copies."""
        rows = [iter(line) for line in self._lines]
        left = [len(line) for line in self._lines]
        share = list(self._share)
        late = sorted(
            (since, lane)
            for lane, since in enumerate(self._since)
            if left[lane] and since is not None and since < now_ms - BOOST_AFTER_MS
        )

        def take(lane: int) -> int | None:
            while left[lane]:
                left[lane] -= 1
                place = next(rows[lane])
                if valid(place):
                    share[lane] -= 1
                    return place
            return None

        while any(left):
            place, lane = None, 0
            while place is None and late:
                place = take(late.pop(0)[1])
            while place is None and any(left):
                if lane == LANES:
                    lane, share = 0, list(self._weights)
                if share[lane] > 0 and left[lane]:
                    place = take(lane)
                    late = [entry for entry in late if entry[1] != lane]
                lane += 1
            if place is not None:
                yield place

    def served_before(self, priority: int) -> list[int]:
        """The lanes that come first because the share of this priority's lane is spent, and theirs is not."""
        if self._share[_lane(priority)] > 0:
            return []
        return [lane for lane in range(LANES) if self._share[lane] > 0 and self._lines[lane]]

    def __iter__(self) -> Iterator[int]:
        """Lane by lane. Which lanes take turns in between depends on when they are asked."""
        for line in self._lines:
            yield from line


def _lane(priority: int) -> int:
    return min(max(priority, 0), LANES - 1)
