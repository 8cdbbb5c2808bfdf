"""When to repeat a call. Without a clock.

Every call of this SDK may be repeated. A publish carries a sequence number that the server recognises; acks and their
like change nothing the second time; a lease whose answer was lost runs out by itself. The only difference is the
meaning of a *stale* receipt after an answer was lost, so a `RetryState` remembers whether one was.
"""

from __future__ import annotations

import errno
import random
from typing import NamedTuple

from penstock.errors import PenstockError, RateLimited, Unavailable

BACKOFF_FIRST_S = 0.05
BACKOFF_FACTOR = 2.0
BACKOFF_MAX_S = 2.0


class Unreachable(Unavailable):
    """No connection was made, so the request has certainly not been seen."""


class AnswerLost(Unavailable):
    """The request was sent and no answer came: the server may have acted on it or not."""


def timed_out(url: str, seconds: float) -> Unreachable:
    return Unreachable(f"cannot reach {url}: no connection within {seconds:g} s")


def unreachable(url: str, error: OSError) -> Unreachable:
    """The error of a connection that failed with `error`."""
    # A name with several addresses gives one error for all of them, of which only the text is known.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return Unreachable(f"cannot reach {url}: is `penstock serve` running?")
    return Unreachable(f"cannot reach {url}: {error.strerror or error}")


def is_transport_failure(error: PenstockError) -> bool:
    """True if the server itself has not answered."""
    return isinstance(error, Unreachable | AnswerLost)


class RetryPolicy(NamedTuple):
    retry_for_s: float
    """How long to keep trying, counted from the first failure; 0 never tries again, infinity never stops."""

    def within(self, seconds: float) -> RetryPolicy:
        return RetryPolicy(min(self.retry_for_s, seconds))


class RetryState:
    """The attempts of one call. Time is passed in; `random` only spreads clients that failed together."""

    __slots__ = ("_deadline", "_next_s", "_policy", "uncertain", "withdrawn")

    def __init__(self, policy: RetryPolicy):
        self._policy = policy
        self._deadline: float | None = None
        self._next_s = BACKOFF_FIRST_S
        self.uncertain = False
        """True once a failed attempt may nevertheless have been carried out."""
        self.withdrawn = False
        """The caller does not want the result any more: the attempt that is under way is the last one."""

    def delay_after(self, error: PenstockError, now: float, *, reached_before: bool) -> float | None:
        """Seconds to wait before the next attempt, or None: give up and raise `error`.

        `reached_before` says whether this client ever had an answer. If not, an unreachable server is most likely a
        wrong address or a server that was not started, and saying so at once helps more than trying for long.
        """
        if self.withdrawn or not error.retryable or (isinstance(error, Unreachable) and not reached_before):
            return None
        if not isinstance(error, Unreachable | RateLimited):
            self.uncertain = True
        if self._deadline is None:
            self._deadline = now + self._policy.retry_for_s
        delay = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        self._next_s = min(self._next_s * BACKOFF_FACTOR, BACKOFF_MAX_S)
        if error.retry_after_ms is not None:
            delay = max(delay, error.retry_after_ms / 1000)
        return delay if now + delay < self._deadline else None
