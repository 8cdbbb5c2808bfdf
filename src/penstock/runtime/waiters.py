"""Consumers that wait for messages: one is served per message, the longest waiting first.

When something becomes ready, the first waiter is granted a lease of it; only if more is left is the second one tried.
A waiter whose caller goes away is removed at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from penstock import limits
from penstock.core.commands import Lease, LeaseScope
from penstock.errors import Unavailable
from penstock.pending import PendingReply

Grant = Callable[[Lease | LeaseScope, PendingReply[Any]], bool]
"""Lease for this command if something is ready; True if the pending reply will be completed."""


class Waiter:
    __slots__ = ("command", "pending", "timer")

    def __init__(self, command: Lease | LeaseScope, pending: PendingReply[Any], timer: asyncio.TimerHandle):
        self.command = command
        self.pending = pending
        self.timer = timer


class Waiters:
    """Waiting leases of one shard, by queue or scope, and then by group and member."""

    def __init__(self, complete_empty: Callable[[PendingReply[Any]], None]):
        """`complete_empty` completes a reply with an empty list, behind everything that was decided before."""
        self._complete_empty = complete_empty
        self._parked: dict[int | str, dict[tuple[str, str], deque[Waiter]]] = {}
        self.count = 0
        self.in_scopes = 0
        """How many of them wait for any queue of a scope."""

    def park(self, command: Lease | LeaseScope, wait_ms: int, pending: PendingReply[Any]) -> None:
        """Complete `pending` with a lease when there is one, or with an empty list when the wait is over."""
        if self.count >= limits.WAITERS_MAX:
            raise Unavailable(
                f"{limits.WAITERS_MAX} consumers are waiting already, which is the limit", retry_after_ms=1_000
            )
        waiter = Waiter(command, pending, None)  # type: ignore[arg-type]
        waiter.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._give_up, waiter)
        pending.on_cancel = partial(self._remove, waiter)
        pending.on_withdraw = partial(self._give_up, waiter)
        self._parked.setdefault(_place(command), {}).setdefault(_consumer(command), deque()).append(waiter)
        self.count += 1
        self.in_scopes += type(command) is LeaseScope

    def serve(self, place: int | str, grant: Grant, members: Collection[tuple[str, str]] | None = None) -> None:
        """Grant the messages of this queue or scope to its waiting leases, until one gets nothing.

        Of members of groups only `members` (group and member) are tried; None: all of them.
        """
        for consumer, waiting in list(self._parked.get(place, {}).items()):
            if members is not None and consumer[1] and consumer not in members:
                continue
            while waiting and grant(waiting[0].command, waiting[0].pending):
                # From now on the commit completes the reply, or returns the messages of a caller that has gone.
                self._detach(waiting[0])

    def recall(self, queue: int, should: Callable[[Lease], bool]) -> None:
        """Complete the waiting leases for which `should` holds with an empty list: their consumers should ask again."""
        for waiting in list(self._parked.get(queue, {}).values()):
            for waiter in list(waiting):
                if isinstance(waiter.command, Lease) and should(waiter.command):
                    self._give_up(waiter)

    def has(self, place: int | str) -> bool:
        return place in self._parked

    def count_of(self, place: int | str, group: str) -> int:
        """Consumers of one group that wait for this queue or scope, members of it or not."""
        return sum(
            len(waiting) for (its_group, _), waiting in self._parked.get(place, {}).items() if its_group == group
        )

    def dismiss(self, queue: int | None = None, error: Exception | None = None) -> None:
        """Complete all waiting leases, or those of one queue, with an empty list or with an error."""
        for place in [queue] if queue is not None else list(self._parked):
            for waiting in list(self._parked.get(place, {}).values()):
                for waiter in list(waiting):
                    self._give_up(waiter, error)

    def _give_up(self, waiter: Waiter, error: Exception | None = None) -> None:
        """Complete a waiter that gets no lease. Not from inside of this call: a completion runs its caller's callback,
        which may submit the next command."""
        self._detach(waiter)
        if error is None:
            self._complete_empty(waiter.pending)
        else:
            asyncio.get_running_loop().call_soon(waiter.pending.fail, error)

    def _detach(self, waiter: Waiter) -> None:
        waiter.pending.on_cancel = waiter.pending.on_withdraw = None
        self._remove(waiter)

    def _remove(self, waiter: Waiter) -> None:
        waiter.timer.cancel()
        self.count -= 1
        self.in_scopes -= type(waiter.command) is LeaseScope
        place, consumer = _place(waiter.command), _consumer(waiter.command)
        groups = self._parked[place]
        waiting = groups[consumer]
        waiting.remove(waiter)  # mostly the first one, so the search is short
        if not waiting:
            del groups[consumer]
            if not groups:
                del self._parked[place]


def _place(command: Lease | LeaseScope) -> int | str:
    return command.queue if type(command) is Lease else command.scope  # type: ignore[union-attr]


def _consumer(command: Lease | LeaseScope) -> tuple[str, str]:
    return command.group, command.member if isinstance(command, Lease) else ""
