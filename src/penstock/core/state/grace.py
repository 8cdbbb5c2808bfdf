"""Deadlines that elapsed while the broker's process was stalled are extended.

While the process was stalled, leases and sessions ran out whose renewals were not read yet. A deadline is a minimum, so
it may be put off: no message is delivered twice by it.
"""

from __future__ import annotations

from typing import NamedTuple

CATCH_UP_MS = 250
"""At least so long after it goes on, to read what was sent meanwhile."""
CATCH_UP_MS_MAX = 5_000
"""As long as the stall, but not longer than this: for clients that gave up and retry after a while."""


class Grace(NamedTuple):
    """Deadlines up to `until_ms` count as `more_ms` later. Soft: what it leads to are facts."""

    until_ms: int = 0
    more_ms: int = 0

    def end_of(self, deadline_ms: int) -> int:
        return deadline_ms + self.more_ms if deadline_ms <= self.until_ms else deadline_ms

    def after(self, now_ms: int, lost_ms: int) -> Grace:
        """The process was stalled for `lost_ms`, until now. An earlier grace stays granted, but does not add up:
        otherwise a process that is always late would never let a deadline pass."""
        more_ms = lost_ms + min(max(lost_ms, CATCH_UP_MS), CATCH_UP_MS_MAX)
        if self.until_ms + self.more_ms > now_ms:
            more_ms = max(more_ms, self.more_ms)
        # Also what runs out in the next moment: it is read as late as the others.
        return Grace(now_ms + CATCH_UP_MS, more_ms)
