"""Consumers that wait for messages: one is woken per message there is, the longest waiting first.

There is no herd: when something becomes ready, the first waiter is given a lease of it; only if more is left is the
second one looked at. A waiter whose caller went away leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from penstock import limits
from penstock.core.commands import Lease, LeaseScope
from penstock.errors import Unavailable


class Waiter:
    __slots__ = ("command", "future", "timer")

    def __init__(self, command: Lease | LeaseScope, future: asyncio.Future[Any]):
        self.command = command
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class Waiters:
    """Parked leases of one shard, by queue or scope, and by group and member: what is for one is not for another."""

    def __init__(self) -> None:
        self._parked: dict[int | str, dict[tuple[str, str], deque[Waiter]]] = {}
        self.count = 0
        self.in_scopes = 0
        """How many of them wait for any queue of a scope."""

    def park(self, command: Lease | LeaseScope, wait_ms: int) -> asyncio.Future[Any]:
        """A future that gets a lease, or an empty answer when the wait is over."""
        if self.count >= limits.WAITERS_MAX:
            raise Unavailable(
                f"{limits.WAITERS_MAX} consumers are waiting already, which is the limit", retry_after_ms=1_000
            )
        loop = asyncio.get_running_loop()
        waiter = Waiter(command, loop.create_future())
        waiter.timer = loop.call_later(wait_ms / 1000, _give_up, waiter)
        self._parked.setdefault(_place(command), {}).setdefault(_who(command), deque()).append(waiter)
        self.count += 1
        self.in_scopes += type(command) is LeaseScope
        waiter.future.add_done_callback(lambda _: self._left(waiter))
        return waiter.future

    def serve(
        self,
        place: int | str,
        grant: Callable[[Lease | LeaseScope, asyncio.Future[Any]], bool],
        members: Collection[tuple[str, str]] | None = None,
    ) -> None:
        """Offer what is ready in this queue or scope; `grant` says whether the waiter got something.

        Of those who wait as members of a group, only `members` (group and member) are asked; None: all of them.
        """
        for who, waiting in list(self._parked.get(place, {}).items()):
            if members is not None and who[1] and who not in members:
                continue
            while waiting:
                waiter = waiting[0]
                if waiter.future.done():
                    waiting.popleft()
                    continue
                if not grant(waiter.command, waiter.future):
                    break
                waiting.popleft()
                self._settled(waiter)

    def recall(self, queue: int, should: Callable[[Lease], bool]) -> None:
        """Give an empty answer to those who had better ask again."""
        for waiting in list(self._parked.get(queue, {}).values()):
            for waiter in list(waiting):
                if isinstance(waiter.command, Lease) and not waiter.future.done() and should(waiter.command):
                    waiter.future.set_result([])

    def has(self, place: int | str) -> bool:
        return place in self._parked

    def count_of(self, place: int | str, group: str) -> int:
        """Consumers of one group that still wait for this queue or scope, members of it or not."""
        return sum(
            not waiter.future.done()
            for (theirs, _), waiting in self._parked.get(place, {}).items()
            if theirs == group
            for waiter in waiting
        )

    def dismiss(self, queue: int | None = None, error: Exception | None = None) -> None:
        """Answer everyone (or everyone of one queue): empty, or with an error."""
        for number in [queue] if queue is not None else list(self._parked):
            for waiting in self._parked.get(number, {}).values():
                for waiter in list(waiting):
                    if not waiter.future.done():
                        if error is None:
                            waiter.future.set_result([])
                        else:
                            waiter.future.set_exception(error)
            self._parked.pop(number, None)

    def _settled(self, waiter: Waiter) -> None:
        """The waiter has its lease; the future is only waiting for the disk now."""
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
            self.count -= 1
            self.in_scopes -= type(waiter.command) is LeaseScope

    def _left(self, waiter: Waiter) -> None:
        place, who = _place(waiter.command), _who(waiter.command)
        groups = self._parked.get(place)
        waiting = groups.get(who) if groups else None
        if waiter.timer is not None:
            self._settled(waiter)
            # Whoever gave up is mostly the one who waited longest, so the search is short.
            if waiting is not None and waiter in waiting:
                waiting.remove(waiter)
        if groups is not None and waiting is not None and not waiting:
            del groups[who]
            if not groups:
                del self._parked[place]


def _place(command: Lease | LeaseScope) -> int | str:
    return command.queue if type(command) is Lease else command.scope  # type: ignore[union-attr]


def _who(command: Lease | LeaseScope) -> tuple[str, str]:
    return command.group, command.member if isinstance(command, Lease) else ""


def _give_up(waiter: Waiter) -> None:
    if not waiter.future.done():
        waiter.future.set_result([])
