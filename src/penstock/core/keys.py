"""Ordered keys: of the messages with one key, one at a time is let through; the others wait behind it in order.

Let through means: ready to be leased, leased, or waiting for its next attempt. So a message that failed holds back its
own key and nothing else. The next one follows when it is done: acked, expired, cancelled or given up. A key that is
parked lets nobody follow.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.line import Line, Valid


class KeyGate:
    """The keys of one group. Messages without a key (0) are nobody's business here."""

    __slots__ = ("_behind", "_parked", "_through")

    def __init__(self) -> None:
        self._through: dict[int, int] = {}
        """Key -> the place that is let through."""
        self._behind: dict[int, Line] = {}
        """Key -> those who wait; only for keys where somebody does."""
        self._parked: dict[int, set[int]] = {}
        """Key -> the places that were given up and for which it waits."""

    @property
    def blocked(self) -> int:
        """Keys with messages that wait behind another one."""
        return len(self._behind)

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
        line = self._behind.get(key)
        if line is None:
            line = self._behind[key] = Line()
        line.push(place, 0, fresh=fresh)
        return False

    def leave(self, key: int, place: int, valid: Valid) -> int | None:
        """This one is done; the next one with its key, which is let through in its stead."""
        if not key or self._through.get(key) != place:
            return None
        del self._through[key]
        return self._next(key, valid)

    def _next(self, key: int, valid: Valid) -> int | None:
        if key in self._parked or key in self._through:
            return None
        line = self._behind.get(key)
        following = line.pop(valid) if line is not None else None
        if following is not None:
            self._through[key] = following
        if not line:
            self._behind.pop(key, None)
        return following

    def seize(self, key: int, place: int) -> None:
        """This one was delivered, or given up and brought back: it is let through, and whoever was before it waits."""
        if key:
            before = self._through.get(key)
            self._through[key] = place
            if before is not None and before != place:
                self.enter(key, before, fresh=False)
            self._forgive(key, place)

    def park(self, key: int, place: int) -> None:
        """This one was given up, and its key stays blocked until `unpark`."""
        self._parked.setdefault(key, set()).add(place)
        if self._through.get(key) == place:
            del self._through[key]

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
        return True

    def lets(self, key: int, place: int) -> bool:
        """True if this one is let through."""
        return not key or self._through.get(key) == place

    def holder(self, key: int) -> int | None:
        """The place that is let through, or None."""
        return self._through.get(key)

    def waiting(self, key: int) -> Iterator[int]:
        """Those who wait behind the one that is let through, in order; some may have ended since."""
        return iter(self._behind.get(key, ()))

    def parked_for(self, key: int) -> list[int]:
        """The places that were given up and for which this key waits, oldest first."""
        return sorted(self._parked.get(key, ()))
