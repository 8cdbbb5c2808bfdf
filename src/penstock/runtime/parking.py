"""Consumers that wait for messages: one is woken per message there is, the longest waiting first.

There is no herd: when something becomes ready, the first waiter is given a lease of it; only if more is left is the
second one looked at. A waiter whose caller went away leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.core.commands import Lease
from penstock.errors import Unavailable


class Waiter:
    __slots__ = ("command", "future", "timer")

    def __init__(self, command: Lease, future: asyncio.Future[Any]):
        self.command = command
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class Waiters:
    """Parked leases of one shard, by queue and group."""

    def __init__(self) -> None:
        self._parked: dict[int, dict[str, deque[Waiter]]] = {}
        self.count = 0

    def park(self, command: Lease, wait_ms: int) -> asyncio.Future[Any]:
        """A future that gets a lease, or an empty answer when the wait is over."""
        if self.count >= limits.WAITERS_MAX:
            raise Unavailable(
                f"{limits.WAITERS_MAX} consumers are waiting already, which is the limit", retry_after_ms=1_000
            )
        loop = asyncio.get_running_loop()
        waiter = Waiter(command, loop.create_future())
        waiter.timer = loop.call_later(wait_ms / 1000, _give_up, waiter)
        self._parked.setdefault(command.queue, {}).setdefault(command.group, deque()).append(waiter)
        self.count += 1
        waiter.future.add_done_callback(lambda _: self._left(waiter))
        return waiter.future

    def serve(self, queue: int, grant: Callable[[Lease, asyncio.Future[Any]], bool]) -> None:
        """Offer what is ready in this queue; `grant` says whether the waiter got something."""
        for waiting in list(self._parked.get(queue, {}).values()):
            while waiting:
                waiter = waiting[0]
                if waiter.future.done():
                    waiting.popleft()
                    continue
                if not grant(waiter.command, waiter.future):
                    break
                waiting.popleft()
                self._settled(waiter)

    def has(self, queue: int) -> bool:
        return queue in self._parked

    def count_of(self, queue: int, group: str) -> int:
        """Consumers of one group that still wait."""
        return sum(not waiter.future.done() for waiter in self._parked.get(queue, {}).get(group, ()))

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

    def _left(self, waiter: Waiter) -> None:
        groups = self._parked.get(waiter.command.queue)
        waiting = groups.get(waiter.command.group) if groups else None
        if waiter.timer is not None:
            self._settled(waiter)
            # Whoever gave up is mostly the one who waited longest, so the search is short.
            if waiting is not None and waiter in waiting:
                waiting.remove(waiter)
        if groups is not None and waiting is not None and not waiting:
            del groups[waiter.command.group]
            if not groups:
                del self._parked[waiter.command.queue]


def _give_up(waiter: Waiter) -> None:
    if not waiter.future.done():
        waiter.future.set_result([])
