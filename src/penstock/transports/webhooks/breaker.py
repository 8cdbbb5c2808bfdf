"""When to leave an endpoint alone: a circuit breaker, without a clock of its own.

Failures in a row open the circuit: nothing is sent for a while, so that an outage costs messages few of their attempts.
Then one message is let through to probe. If it arrives the circuit is closed, if not it is open for twice as long. An
endpoint that asks for patience (`Retry-After`) gets it in the same way, and is probed when the time is over.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

FAILURES_IN_A_ROW = 5
REST_S = 15.0
REST_S_MAX = 300.0

Circuit: TypeAlias = Literal["closed", "open", "probing"]


class Breaker:
    """Of one endpoint. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._rests = 0
        """Times that it was opened, one after the other."""
        self._until: float | None = None
        """Nothing is sent before; None while the circuit is closed."""

    def state(self, now: float) -> Circuit:
        if self._until is None:
            return "closed"
        return "open" if now < self._until else "probing"

    def room(self, now: float, in_flight: int, concurrency: int) -> int:
        """How many more requests may be begun."""
        state = self.state(now)
        if state == "open":
            return 0
        most = 1 if state == "probing" else concurrency
        return max(0, most - in_flight)

    def wait_s(self, now: float) -> float | None:
        """How long until something may be sent; None if time alone changes nothing."""
        return self._until - now if self._until is not None and now < self._until else None

    def succeeded(self) -> None:
        self._failures = self._rests = 0
        self._until = None

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """Failures of what was sent before the circuit opened do not open it again."""
        state = self.state(now)
        self._failures += 1
        if state == "probing" or (state == "closed" and self._failures >= FAILURES_IN_A_ROW):
            self._until = now + min(REST_S * 2**self._rests, REST_S_MAX)
            self._rests = min(self._rests + 1, 16)
        if retry_after_s:
            self._until = max(self._until or 0.0, now + retry_after_s)
