"""Does anybody come while a commit is being written? It decides on which thread the next one is written.

With callers that come and go, the disk works in its own thread while the loop decides the next batch. Where all there
are wait for this very commit (there is one caller, say), the way to that thread and back is a third of the time of a
small commit and gains nothing. Nobody announces which it is, so it is found out: now and then a commit goes through
the thread, and if nobody came meanwhile, the next few are written on the spot. A disk that is not quick is always
left to its thread.
"""

from __future__ import annotations

ALONE_COMMITS = 15
"""Commits written on the spot before looking again."""
CROWDED_COMMITS = 64
"""Commits left to the thread after company was seen."""
SLOW_COMMITS = 4
"""Commits left to the thread after one that was not quick."""
QUICK_S = 0.002


class Solitude:
    __slots__ = ("_alone", "_crowded")

    def __init__(self) -> None:
        self._alone = 0
        self._crowded = 0

    def expected(self) -> bool:
        """True if the next commit probably has the loop to itself."""
        return self._alone > 0

    def observe(self, blocked: bool, came_meanwhile: int, took_s: float) -> None:
        """What the commit was like: written on the spot or not, how many came meanwhile, how long it took."""
        if came_meanwhile:
            self._alone, self._crowded = 0, CROWDED_COMMITS
        elif took_s > QUICK_S:
            self._alone, self._crowded = 0, max(self._crowded, SLOW_COMMITS)
        elif blocked:
            self._alone -= 1
        elif self._crowded:
            self._crowded -= 1
        else:
            self._alone = ALONE_COMMITS
