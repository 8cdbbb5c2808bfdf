"""Time enters through this door, so that tests and the simulator can hold it still.

Journal time is what leases, delays and expiries are judged by. It starts at the wall clock and from then on
follows the monotonic clock, so that a wall clock that is set back or forward never ends a lease early. When the two
drift apart (a clock that was stepped, a suspended machine) journal time closes the gap slowly: it runs at most a
tenth faster or slower than real time until they agree again.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two faces of time. Neither may be asked inside `core`: the machine is told what time it is."""

    def now_ms(self) -> int:
        """Journal time in UTC epoch milliseconds; never goes backwards within one process."""

    def advance_to_ms(self, floor_ms: int) -> None:
        """Never answer less than this: a journal that is opened may carry later times than the machine's clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, for measuring how long something took."""


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
        self._last_real_ns = self._machine.monotonic_ns()
        self._journal_ns = self._machine.time_ns()

    def now_ms(self) -> int:
        real_ns = self._machine.monotonic_ns()
        elapsed_ns = real_ns - self._last_real_ns
        self._last_real_ns = real_ns
        ahead_ns = self._journal_ns + elapsed_ns - self._machine.time_ns()
        # Most calls land here: the clocks agree and there is nothing to mend. Being ahead is mended at once, because a
        # message that is due by our clock must be due by everybody's.
        if -5_000_000 < ahead_ns <= 0:
            self._journal_ns += elapsed_ns
        else:
            slew_ns = min(abs(ahead_ns), elapsed_ns // self.SLEW_DIVISOR)
            self._journal_ns += elapsed_ns - slew_ns if ahead_ns > 0 else elapsed_ns + slew_ns
        return self._journal_ns // 1_000_000

    def advance_to_ms(self, floor_ms: int) -> None:
        self._journal_ns = max(self._journal_ns, floor_ms * 1_000_000)

    def monotonic(self) -> float:
        return self._machine.monotonic()
