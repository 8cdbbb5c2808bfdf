"""Clocks for tests: a journal clock that is advanced manually, and a machine with adjustable clock errors."""

from __future__ import annotations

from collections.abc import Callable


class ManualClock:
    """A `penstock.clock.Clock` that stands still until `advance`."""

    def __init__(self, now_ms: int = 1_760_000_000_000):
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def advance(self, ms: int) -> None:
        assert ms >= 0, "journal time never goes back"
        self._now_ms += ms
        self._elapsed_ms += ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance_to_ms(self, floor_ms: int) -> None:
        self._now_ms = max(self._now_ms, floor_ms)

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000


class SimulatedMachine:
    """Two clocks of a machine, derived from simulated seconds. `SystemClock(machine)` derives journal time from
    them.

    The monotonic clock is the simulation's own. The wall clock can be stepped, and can run faster or slower.
    """

    def __init__(self, seconds: Callable[[], float], epoch_ms: int = 1_760_000_000_000):
        self._seconds = seconds
        self._since = seconds()
        self._wall_ns = epoch_ms * 1_000_000
        self._drift = 0.0

    def step(self, ms: int) -> None:
        """Set the wall clock forward, or back."""
        self._settle()
        self._wall_ns = max(0, self._wall_ns + ms * 1_000_000)

    def set_drift(self, drift: float) -> None:
        """Let the wall clock gain this fraction of a second per second from now on."""
        self._settle()
        self._drift = drift

    def monotonic_ns(self) -> int:
        return round(self._seconds() * 1e9)

    def monotonic(self) -> float:
        return self._seconds()

    def time_ns(self) -> int:
        return self._wall_ns + round((self._seconds() - self._since) * (1 + self._drift) * 1e9)

    def _settle(self) -> None:
        self._wall_ns = self.time_ns()
        self._since = self._seconds()
