"""Whether the next commit is written on the event loop's thread or in the engine's.

With several clients, the disk works in its own thread while the loop decides the next batch. With a single client,
which waits for this very commit, handing the frame to a thread and back takes a third of the time of a small commit
and gains nothing. The policy finds out which case it is: now and then a commit goes through the thread, and if no
command arrived meanwhile, the next few commits are written inline. A slow disk is always left to its thread.
"""

from __future__ import annotations

INLINE_COMMITS = 15
"""Commits written inline before the next one goes through the thread, to look for other clients."""
SHARED_COMMITS = 64
"""Commits that go through the thread after a commit during which commands arrived."""
SLOW_COMMITS = 4
"""Commits that go through the thread after one that took longer than `FAST_S`."""
FAST_S = 0.002


class InlineCommitPolicy:
    """Commit inline if no command arrived during recent commits."""

    __slots__ = ("_inline_left", "_threaded_left")

    def __init__(self) -> None:
        self._inline_left = 0
        self._threaded_left = 0

    def allows(self) -> bool:
        """True if no other command is expected during the next commit."""
        return self._inline_left > 0

    def observe(self, *, inline: bool, arrived: int, took_s: float) -> None:
        """Note one commit: written inline or not, the commands that arrived meanwhile, and its duration."""
        if arrived:
            self._inline_left, self._threaded_left = 0, SHARED_COMMITS
        elif took_s > FAST_S:
            self._inline_left, self._threaded_left = 0, max(self._threaded_left, SLOW_COMMITS)
        elif inline:
            self._inline_left -= 1
        elif self._threaded_left:
            self._threaded_left -= 1
        else:
            self._inline_left = INLINE_COMMITS
