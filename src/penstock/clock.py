"""The clock interface, which tests and the simulator replace.

Leases, delays and expiries use journal time. It starts at the wall clock and then follows the monotonic clock, so that
setting the wall clock never ends a lease early. If the two clocks differ (a stepped clock, a suspended machine),
journal time runs at most a tenth faster or slower than real time until they agree.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Journal time and monotonic time. `core` must not call a clock: commands carry the time."""

    def now_ms(self) -> int:
        """Journal time in UTC epoch milliseconds; never goes backwards within one process."""

    def advance_to_ms(self, floor_ms: int) -> None:
        """Raise journal time to at least this: an opened journal may hold later times than the machine's clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, for measuring durations."""


class Machine(Protocol):
    """The clocks of a machine; the module `time` is one."""

    def monotonic_ns(self) -> int: ...
    def time_ns(self) -> int: ...
    def monotonic(self) -> float: ...


class SystemClock:
    """Journal time of a real process."""

    SLEW_DIVISOR = 10

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine: Machine = machine or time
        self.monotonic = self._machine.monotonic
        self._last_real_ns = self._machine.monotonic_ns()
        self._journal_ns = self._machine.time_ns()

    def now_ms(self) -> int:
        real_ns = self._machine.monotonic_ns()
        elapsed_ns = real_ns - self._last_real_ns
        self._last_real_ns = real_ns
        ahead_ns = self._journal_ns + elapsed_ns - self._machine.time_ns()
        # The common case: journal time is at most 5 ms behind the wall clock and is not corrected. A lead is reduced at
        # once, because a message that is due by journal time must be due by the wall clock too.
        if -5_000_000 < ahead_ns <= 0:
            self._journal_ns += elapsed_ns
        else:
            slew_ns = min(abs(ahead_ns), elapsed_ns // self.SLEW_DIVISOR)
            self._journal_ns += elapsed_ns - slew_ns if ahead_ns > 0 else elapsed_ns + slew_ns
        return self._journal_ns // 1_000_000

    def advance_to_ms(self, floor_ms: int) -> None:
        self._journal_ns = max(self._journal_ns, floor_ms * 1_000_000)
