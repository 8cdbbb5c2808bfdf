"""One bound for the bytes that all connections hold together: bodies that are coming in and answers that are not read.

Each connection has bounds of its own, but their sum grows with the number of connections. When the budget is used up,
large bodies and calls with large answers are refused with 503 until some of it is free again; small requests, such as
acks, are still handled, because they free memory.
"""

from __future__ import annotations

from penstock import limits
from penstock.errors import Unavailable

SMALL_BYTES = 16 * limits.KIB
"""Bodies up to this size are accepted when the budget is used up, and connections that hold less are not counted."""


class MemoryBudget:
    """Shared by all connections of the server."""

    def __init__(self, bytes_max: int = limits.CONNECTIONS_BYTES_MAX):
        self._bytes_max = bytes_max
        self.used = 0

    @property
    def is_full(self) -> bool:
        return self.used >= self._bytes_max

    def refusal(self) -> Unavailable:
        return Unavailable(
            f"the connections of this server hold {self._bytes_max // limits.MIB} MiB of requests and answers already",
            retry_after_ms=1_000,
        )


class BudgetShare:
    """The bytes that one connection holds."""

    __slots__ = ("_budget", "counted")

    def __init__(self, budget: MemoryBudget):
        self._budget = budget
        self.counted = 0

    def set(self, held: int) -> None:
        """Count `held` bytes for this connection from now on."""
        counted = held if held > SMALL_BYTES else 0
        if counted != self.counted:
            self._budget.used += counted - self.counted
            self.counted = counted
