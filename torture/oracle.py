"""The rules of a campaign: no answered publish is lost, no acked message comes back, no message has two leases."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any


class Oracle:
    """All that clients were told, over all lives of the broker. Messages are numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._asked: set[int] = set()
        """Published; the answer came or not."""
        self._stored: set[int] = set()
        self._acked: set[int] = set()
        self._ack_unknown: Counter[int] = Counter()
        """Acks without an answer, or without one yet."""
        self._held: dict[int, int] = {}
        """Message -> the time until which its lease was promised, by the broker's clock."""
        self.deliveries = 0
        self.violations: list[str] = []

    def take_numbers(self, count: int) -> list[int]:
        with self._lock:
            numbers = list(range(self._next, self._next + count))
            self._next += count
            self._asked.update(numbers)
            return numbers

    def stored(self, numbers: list[int]) -> None:
        with self._lock:
            self._stored.update(numbers)

    def delivered(self, messages: list[dict[str, Any]], lease_ms: int) -> None:
        with self._lock:
            for message in messages:
                number, until = message["payload"]["n"], message["deadline_at_ms"]
                self.deliveries += 1
                if number not in self._asked:
                    self._report(f"message {number} was never published")
                if number in self._acked:
                    self._report(f"message {number} was acked and is delivered again")
                if self._held.get(number, 0) > until - lease_ms:
                    self._report(f"message {number} is leased twice: until {self._held[number]} and {until}")
                self._held[number] = until
                self._stored.add(number)

    def asks_ack(self, numbers: list[int]) -> None:
        with self._lock:
            self._ack_unknown.update(numbers)

    def ack_answered(self, numbers: list[int], acked: list[int]) -> None:
        with self._lock:
            self._ack_unknown.subtract(numbers)
            self._acked.update(acked)

    def asks_nack(self, numbers: list[int]) -> None:
        with self._lock:
            for number in numbers:
                self._held.pop(number, None)

    def needed(self) -> set[int]:
        """Messages that must be there."""
        with self._lock:
            return self._stored - self._acked - {number for number, count in self._ack_unknown.items() if count}

    def check_present(self, found: set[int]) -> None:
        lost = self.needed() - found
        with self._lock:
            for number in sorted(lost)[:10]:
                self._report(f"message {number} is lost")

    @property
    def counts(self) -> dict[str, int]:
        return {"published": len(self._stored), "acked": len(self._acked), "deliveries": self.deliveries}

    def _report(self, text: str) -> None:
        self.violations.append(text)
