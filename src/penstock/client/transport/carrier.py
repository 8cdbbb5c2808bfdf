"""The asyncio shell's way from a call to its result: send, read, and try again as long as that makes sense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from penstock.client.calls import api as calls
from penstock.client.calls.api import Call
from penstock.client.publish.frames import Frame
from penstock.client.publish.transactions import Transacted, judged, transacted
from penstock.client.tracing import Tracing
from penstock.client.transport.open import Transport
from penstock.client.transport.retry import Policy, Retry
from penstock.errors import PenstockError, StaleReceipt

T = TypeVar("T")


class Carrier:
    """What queues, lanes and sessions of a client share."""

    def __init__(self, transport: Transport, policy: Policy):
        self._transport = transport
        self._policy = policy
        self.tracing: Tracing | None = None
        """Whoever watches."""
        self.kept: Frame | None = None
        """The last frame that was sent (`KEPT_BYTES_MAX`)."""

    @property
    def sends_at_once(self) -> bool:
        """True if a request that is begun now is on its way before it first waits."""
        return self._transport.sends_at_once

    async def request(
        self,
        call: Call[T],
        retry: Retry | None = None,
        *,
        behind: Call[Any] | None = None,
        turn: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """The call's result, or the error that remains. Pass a `retry` to learn afterwards what its attempts met.

        `behind`: a call that is under way; the first attempt follows it, to be handled after it.
        `turn`: to be awaited before any further attempt.
        """
        while True:
            try:
                if behind is None:
                    return call.result(await self._transport.exchange(call))
                before, behind = behind, None
                return call.result(await self._transport.exchange_behind(call, before))
            except PenstockError as error:
                retry = retry or self.new_retry()
                now = asyncio.get_running_loop().time()
                delay = retry.delay_after(error, now, reached_before=self._transport.reached)
                if delay is None:
                    raise
            if turn is not None:
                await turn()
            await asyncio.sleep(delay)

    def can_follow(self, before: Call[Any]) -> bool:
        """True if another call can be sent behind one that is under way, to be handled when that is."""
        return self._transport.can_follow(before)

    def recall(self, call: Call[Any]) -> bool:
        """True if a call that waits at the server is answered now; False: cancel whoever awaits it."""
        return self._transport.recall(call)

    async def transact(self, receipts: Sequence[str], items: Sequence[dict[str, Any]]) -> Transacted:
        """Raises StaleReceipt only if it surely did not happen."""
        retry, begun = self.new_retry(), asyncio.get_running_loop().time()
        try:
            return transacted(await self.request(calls.transact(receipts, items), retry))
        except StaleReceipt as error:
            raise judged(error, retry, asyncio.get_running_loop().time() - begun) from None

    def new_retry(self, *, within_s: float | None = None) -> Retry:
        """For one call; `within_s` is for one that is not worth the client's whole patience."""
        return Retry(self._policy if within_s is None else self._policy.within(within_s))

    async def close(self) -> None:
        await self._transport.close()
