"""Rates of the last minute: how fast messages arrive, and how fast each group finishes them.

Records are counted as they are made, at a cost per record, into rings of time buckets of fixed size. A rate is
therefore known at any moment, without polling.
"""

from __future__ import annotations

from array import array

from penstock.runtime.latencies import Latencies

BUCKET_MS = 5_000
BUCKETS = 13
"""Twelve whole buckets, a minute, and the one that is being filled."""


class Ring:
    """Sums by bucket of time, in a few columns, which lie side by side."""

    __slots__ = ("_latest", "_sums")

    def __init__(self, columns: int):
        self._latest = 0
        self._sums = array("q", bytes(8 * BUCKETS * columns))

    def add(self, at_ms: int, column: int, amount: int) -> None:
        if at_ms // BUCKET_MS > self._latest:
            self._roll(at_ms // BUCKET_MS)
        self._sums[column * BUCKETS + self._latest % BUCKETS] += amount

    def total(self, now_ms: int, column: int) -> int:
        """The sum of the last minute, up to `now_ms`."""
        self._roll(now_ms // BUCKET_MS)
        return sum(self._sums[column * BUCKETS : (column + 1) * BUCKETS])

    def _roll(self, bucket: int) -> None:
        for passed in range(max(self._latest, bucket - BUCKETS) + 1, bucket + 1):
            for at in range(passed % BUCKETS, len(self._sums), BUCKETS):
                self._sums[at] = 0
        self._latest = max(self._latest, bucket)


def covered_ms(now_ms: int, began_ms: int) -> int:
    """The time that the sums of a ring cover, if counting began at `began_ms`; at least a second."""
    return max(1_000, min(now_ms - began_ms, (BUCKETS - 1) * BUCKET_MS + now_ms % BUCKET_MS))


class Work:
    """The work of one group of a queue: messages under lease per worker, messages finished, and their duration.

    A worker is a consumer name; each lease without a name counts as one worker.
    """

    __slots__ = ("_held", "_ring", "_since_ms", "finished", "latencies", "served_ms")

    def __init__(self, now_ms: int) -> None:
        self._ring = Ring(3)
        self._held: dict[str | int, int] = {}
        """Worker -> messages under lease."""
        self._since_ms = now_ms
        """The time up to which the time of busy workers was added up."""
        self.finished = 0
        self.served_ms = 0
        """From lease to end, summed over all finished messages."""
        self.latencies: Latencies | None = None
        """From lease to end, of the messages that ended in the last minutes."""

    def held(self) -> dict[str | int, int]:
        """Worker -> messages under lease. A worker without a name is the number of its lease."""
        return self._held

    @property
    def busy(self) -> int:
        """The number of workers that hold messages."""
        return len(self._held)

    def took(self, at_ms: int, worker: str | int, count: int) -> None:
        self._pass_time(at_ms)
        self._held[worker] = self._held.get(worker, 0) + count

    def let_go(self, at_ms: int, worker: str | int, count: int) -> None:
        self._pass_time(at_ms)
        left = self._held.get(worker, 0) - count
        if left > 0:
            self._held[worker] = left
        else:
            self._held.pop(worker, None)

    def done(self, at_ms: int, count: int, served_ms: int) -> None:
        """Count `count` messages, each of which ended after `served_ms` under lease."""
        self.finished += count
        self.served_ms += count * served_ms
        self._ring.add(at_ms, 0, count)
        self._ring.add(at_ms, 1, count * served_ms)
        if self.latencies is None:
            self.latencies = Latencies()
        self.latencies.observe(served_ms, count)

    def forget_held(self, at_ms: int) -> None:
        self._pass_time(at_ms)
        self._held = {}

    def recent(self, now_ms: int) -> tuple[int, int, int]:
        """In the last minute: messages finished, their milliseconds under lease, milliseconds of busy workers."""
        self._pass_time(now_ms)
        finished, served_ms, busy_ms = (self._ring.total(now_ms, column) for column in range(3))
        return finished, served_ms, busy_ms

    def _pass_time(self, now_ms: int) -> None:
        """Add the time of busy workers since the last call, split over the buckets that it spans."""
        at_ms, busy = self._since_ms, len(self._held)
        if now_ms <= at_ms:
            return
        self._since_ms = now_ms
        if busy:
            at_ms = max(at_ms, now_ms - BUCKETS * BUCKET_MS)
            while at_ms < now_ms:
                until_ms = min(now_ms, (at_ms // BUCKET_MS + 1) * BUCKET_MS)
                self._ring.add(at_ms, 2, busy * (until_ms - at_ms))
                at_ms = until_ms
