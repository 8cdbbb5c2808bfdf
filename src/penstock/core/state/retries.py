"""Messages that failed: what is remembered about them until they are done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, starmap

import msgspec
from sortedcontainers import SortedList

from penstock.core.offsets.ranges import within


class Retry(msgspec.Struct, gc=False, omit_defaults=True):
    """The state of a message that failed, until it is done."""

    attempt: int
    """The delivery that failed last; 0 for a dead letter that was redriven."""
    due: int
    first_at: int
    last_at: int
    error: str
    consumer: str
    budget: int = -1
    """Of a redriven message with a `max_retries` of its own: the partition may have forgotten it."""
    redriven: int = 0
    """How often it was redriven."""


class Retries(dict[int, Retry]):
    """By offset, of one group in one partition. They come in by `retries[offset] = retry` and no other way."""

    __slots__ = ("_dues", "highest")

    def __init__(self, retries: Iterable[tuple[int, Retry]] = ()):
        super().__init__(retries)
        self._dues = SortedList([retry.due for retry in self.values()]) if self else None
        """Due times, to count those that are ahead. None as long as no message has failed."""
        self.highest = max(self, default=-1)
        """No offset in here is above this one."""

    def __setitem__(self, offset: int, retry: Retry) -> None:
        if self._dues is None:
            self._dues = SortedList()
        known = self.get(offset)
        if known is not None:
            self._dues.remove(known.due)
        self._dues.add(retry.due)
        super().__setitem__(offset, retry)
        self.highest = max(self.highest, offset)

    def forget(self, ranges: Sequence[tuple[int, int]]) -> None:
        """These are not tried any more, if they ever failed: most of what is done never did."""
        if self and self._may_hold(ranges):
            for first, stop in ranges:
                for offset in within(self, first, stop):
                    assert self._dues is not None
                    self._dues.remove(self.pop(offset).due)
            if not self:
                self.highest = -1

    def waiting(self, now_ms: int) -> int:
        """The number of messages whose next attempt is not due yet. None of them is leased: only due ones are."""
        return 0 if self._dues is None else len(self._dues) - int(self._dues.bisect_right(now_ms))

    def _may_hold(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """False if none of these is in here, as far as that is quickly seen."""
        if all(first > self.highest for first, _ in ranges):
            return False
        if sum([stop - first for first, stop in ranges]) > len(self):
            return True
        return not self.keys().isdisjoint(chain.from_iterable(starmap(range, ranges)))
