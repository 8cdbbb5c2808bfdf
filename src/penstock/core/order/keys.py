"""Ordered keys: of the messages with one key, one at a time is let through; the others wait behind it in order.

Let through means: ready to be leased, leased, or waiting for its next attempt. So a message that failed holds back its
own key and nothing else. The next one follows when it is done: acked, expired, cancelled or given up. A key that is
parked lets no message through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.core.order.fifo import Line, Valid


class KeyGate:
    """The keys of one group. Messages without a key (0) are ignored."""

    __slots__ = ("_behind", "_parked", "_stuck", "_through")

    def __init__(self) -> None:
        self._through: dict[int, int] = {}
        """Key -> the place that is let through; its complement, a negative number, while that one waits for its next
        attempt. Most never do, and whether one does costs no look at anything else."""
        self._behind: dict[int, Line] = {}
        """Key -> the messages that wait; only for keys with waiting messages."""
        self._parked: dict[int, set[int]] = {}
        """Key -> the places that were given up and for which it waits."""
        self._stuck: set[int] = set()
        """Keys that are parked, or whose message waits for a retry, while other messages wait behind."""

    @property
    def blocked(self) -> int:
        """Keys with messages that wait behind one that failed or was given up. Behind one that is ready or leased they
        wait their turn, and nothing is wrong."""
        return len(self._stuck)

    def enter(self, key: int, place: int, *, fresh: bool) -> bool:
        """True if this one is let through now; otherwise it waits until `leave` or `unpark` names it."""
        if not key:
            return True
        holder = self._through.get(key)
        if holder is None and key not in self._parked:
            self._through[key] = place
            return True
        if holder == place:
            return True
        if holder == ~place:
            self._through[key] = place
            self._judge(key)
            return True
        line = self._behind.get(key)
        if line is None:
            line = self._behind[key] = Line()
            self._judge(key)
        line.push(place, 0, fresh=fresh)
        return False

    def enter_all(self, keys: Sequence[int], places: Sequence[int]) -> list[int]:
        """`enter` for many fresh ones, one after the other; those that are let through."""
        through, parked = self._through, self._parked
        passed = []
        for key, place in zip(keys, places, strict=True):
            if key:
                if key in through or key in parked:
                    if not self.enter(key, place, fresh=True):
                        continue
                else:
                    through[key] = place
            passed.append(place)
        return passed

    def wait(self, key: int, place: int) -> None:
        """This one failed, and cannot be given out until it enters again. If it is let through, its key waits."""
        if key and self._through.get(key) == place:
            self._through[key] = ~place
            if key in self._behind:
                self._stuck.add(key)

    def _judge(self, key: int) -> None:
        """Whether this key is stuck; asked when something about that has changed."""
        if key in self._behind and (key in self._parked or self._through.get(key, 0) < 0):
            self._stuck.add(key)
        else:
            self._stuck.discard(key)

    def leave(self, key: int, place: int, valid: Valid) -> int | None:
        """This one is done; the next one with its key, which is let through in its stead."""
        following = self.leave_all(((key, place),), valid)
        return following[0] if following else None

    def leave_all(self, keyed: Iterable[tuple[int, int]], valid: Valid) -> list[int]:
        """These, each with its key, are done; the next ones with their keys, which are let through in their stead."""
        through, behind, parked = self._through, self._behind, self._parked
        following = []
        for key, place in keyed:
            holder = through.get(key) if key else None
            waited = holder == ~place
            if not waited and holder != place:
                continue
            line = behind.get(key)
            if line is None or (parked and key in parked):
                del through[key]
                continue
            # As `_next`, with fewer lookups: this happens to every message that is done. A key that is not parked
            # is stuck only while its message waits.
            successor = line.pop(valid)
            if successor is not None:
                through[key] = successor
                following.append(successor)
            else:
                del through[key]
            if not line:
                del behind[key]
            if waited:
                self._judge(key)
        return following

    def _next(self, key: int, valid: Valid) -> int | None:
        if key in self._parked or key in self._through:
            self._judge(key)
            return None
        line = self._behind.get(key)
        following = line.pop(valid) if line is not None else None
        if following is not None:
            self._through[key] = following
        if not line:
            self._behind.pop(key, None)
        if key in self._stuck:
            self._judge(key)
        return following

    def seize(self, key: int, place: int) -> None:
        """This message was delivered, or redriven: it is let through, and the one that was let through before waits."""
        if key:
            before = self._through.get(key)
            self._through[key] = place
            if before is not None and before != place:
                other = before if before >= 0 else ~before
                if other != place:
                    self.enter(key, other, fresh=False)
                if before < 0:
                    self._judge(key)
            if self._parked:
                self._forgive(key, place)

    def park(self, key: int, place: int) -> None:
        """This one was given up, and its key stays blocked until `unpark`."""
        self._parked.setdefault(key, set()).add(place)
        if self.lets(key, place):
            del self._through[key]
        self._judge(key)

    def unpark(self, key: int, place: int, valid: Valid) -> int | None:
        """Its key need not wait for this one any longer; the next one with the key, if it waits for no other."""
        return self._next(key, valid) if self._forgive(key, place) else None

    def _forgive(self, key: int, place: int) -> bool:
        """The key no longer waits for this one. True if it did."""
        parked = self._parked.get(key)
        if parked is None or place not in parked:
            return False
        parked.remove(place)
        if not parked:
            del self._parked[key]
            self._judge(key)
        return True

    def lets(self, key: int, place: int) -> bool:
        """True if this one is let through."""
        return not key or (holder := self._through.get(key)) == place or holder == ~place

    def holder(self, key: int) -> int | None:
        """The place that is let through, or None."""
        holder = self._through.get(key)
        return ~holder if holder is not None and holder < 0 else holder

    def keys_behind(self) -> Iterator[int]:
        """Keys with waiting messages."""
        return iter(self._behind)

    def waiting(self, key: int) -> Iterator[int]:
        """The messages that wait behind the one that is let through, in order; some may have ended since."""
        return iter(self._behind.get(key, ()))

    def parked_for(self, key: int) -> list[int]:
        """The places that were given up and for which this key waits, oldest first."""
        return sorted(self._parked.get(key, ()))
