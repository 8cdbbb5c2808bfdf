"""The circuit breaker of a webhook endpoint. Callers pass the time.

Consecutive failures open the circuit: requests stop for a while, so that an outage uses up few attempts of messages.
Then one request probes the endpoint. If it succeeds the circuit closes; if it fails the circuit stays open for twice as
long. A `Retry-After` header opens the circuit in the same way, and the endpoint is probed when that time is over.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

FAILURES_IN_A_ROW = 5
OPEN_S = 15.0
OPEN_S_MAX = 300.0

Circuit: TypeAlias = Literal["closed", "open", "probing"]


class CircuitBreaker:
    """The state of one endpoint. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._times_opened = 0
        """How often the circuit was opened since the last success."""
        self._until: float | None = None
        """No request is sent before this time; None while the circuit is closed."""

    def state(self, now: float) -> Circuit:
        if self._until is None:
            return "closed"
        return "open" if now < self._until else "probing"

    def free_slots(self, now: float, in_flight: int, concurrency: int) -> int:
        """How many more requests may start."""
        state = self.state(now)
        if state == "open":
            return 0
        most = 1 if state == "probing" else concurrency
        return max(0, most - in_flight)

    def wait_s(self, now: float) -> float | None:
        """The time until the next request may start; None if the circuit is not open."""
        return self._until - now if self._until is not None and now < self._until else None

    def succeeded(self) -> None:
        self._failures = self._times_opened = 0
        self._until = None

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """Count a failure. Requests that started before the circuit opened do not extend its time."""
        state = self.state(now)
        self._failures += 1
        if state == "probing" or (state == "closed" and self._failures >= FAILURES_IN_A_ROW):
            self._until = now + min(OPEN_S * 2**self._times_opened, OPEN_S_MAX)
            self._times_opened = min(self._times_opened + 1, 16)
        if retry_after_s:
            self._until = max(self._until or 0.0, now + retry_after_s)
