"""Is there one caller, or are there many? It decides on which thread a commit is written.

With many callers the disk works in its own thread while the loop decides the next batch. With one, who waits for the
answer anyway, the way to that thread and back is a third of the time of a small commit. Nobody announces how many
there are, so it is found out: now and then a commit goes through the thread, and if nobody else came meanwhile, the
next few are written on the spot. A disk that is not quick is always left to its thread.
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

    def expected(self, commands: int) -> bool:
        """True if the next commit, of this many commands, has the loop to itself."""
        return commands == 1 and self._alone > 0

    def observe(self, blocked: bool, commands: int, came_meanwhile: int, took_s: float) -> None:
        """What the commit was like: written on the spot or not, how large, how many came while it was written."""
        if commands > 1 or came_meanwhile:
            self._alone, self._crowded = 0, CROWDED_COMMITS
        elif took_s > QUICK_S:
            self._alone, self._crowded = 0, max(self._crowded, SLOW_COMMITS)
        elif blocked:
            self._alone -= 1
        elif self._crowded:
            self._crowded -= 1
        else:
            self._alone = ALONE_COMMITS
