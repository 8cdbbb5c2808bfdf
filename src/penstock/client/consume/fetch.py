"""A lease call that is under way."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.client.calls.call import Call
from penstock.client.calls.delivery import LeaseResult
from penstock.client.runtime import Future, Runtime
from penstock.client.transport.retry import RetryState


class Fetch:
    __slots__ = ("_ended", "_failed", "_runtime", "behind", "call", "has_failed", "most", "retry", "task")

    def __init__(self, call: Call[LeaseResult], most: int, retry: RetryState, behind: Fetch | None, runtime: Runtime):
        self.call = call
        self.behind = behind
        """The call that this one was sent behind, if any."""
        self.has_failed = False
        """The first attempt has failed."""
        self.most = most
        """Messages that it may bring."""
        self.retry = retry
        self.task: asyncio.Task[None] | None = None
        self._ended: Future[None] | None = None
        self._failed: Future[None] | None = None
        self._runtime = runtime

    @property
    def is_long_poll(self) -> bool:
        return self.call.wait_ms > 0

    def fail(self) -> None:
        self.has_failed = True
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(None)

    def end(self) -> None:
        self.behind = None  # otherwise each would keep all before it
        if self._ended is not None:
            self._ended.set_result(None)

    async def over(self, timeout_s: float | None = None) -> None:
        """Until it has ended, or for so many seconds."""
        await self._runtime.wait([self._end()], timeout_s)

    async def over_or_failed(self) -> None:
        """Until it has ended, or its first attempt has failed."""
        if not self.has_failed:
            self._failed = self._failed or self._runtime.future()
            await self._runtime.wait([self._end(), self._failed], until_first=True)

    def _end(self) -> Future[Any]:
        # A task that is cancelled before it has begun never calls `end`.
        if self.task is not None:
            return self.task
        self._ended = self._ended or self._runtime.future()
        return self._ended
