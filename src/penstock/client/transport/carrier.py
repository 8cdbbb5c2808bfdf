"""From a call to its result: send, read, and repeat as long as that makes sense."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.calls.call import Call, operation
from penstock.client.publish.frames import EncodedFrame
from penstock.client.publish.transactions import Transacted, stale_or_unknown, transacted
from penstock.client.runtime import AsyncioRuntime, Runtime
from penstock.client.tracing import Tracing
from penstock.client.transport.base import Transport
from penstock.client.transport.retry import RetryPolicy, RetryState
from penstock.errors import PenstockError, StaleReceipt
from penstock.wire.replies import TransactReply

if TYPE_CHECKING:
    from penstock.client.protection import Protection

T = TypeVar("T")


class Carrier:
    """Shared by the queues and consumers of a client."""

    def __init__(
        self, transport: Transport, policy: RetryPolicy, runtime: Callable[[], Runtime] = AsyncioRuntime
    ):  # fmt: skip
        """`runtime` gives the runtime of the caller: that of the running event loop, or of a blocking client."""
        self.transport = transport
        self.runtime = runtime
        self._policy = policy
        self.tracing: Tracing | None = None
        self.protection: Protection | None = None
        """Encrypts and signs what is published; verifies and decrypts what is received."""
        self.kept: EncodedFrame | None = None
        """The last frame that was sent (`KEPT_BYTES_MAX`)."""

    async def request(
        self,
        call: Call[T],
        retry: RetryState | None = None,
        *,
        behind: Call[Any] | None = None,
        turn: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """The call's result, or the error that remains. Pass a `retry` to know afterwards what its attempts met.

        `behind`: a call that is under way; the first attempt follows it, to be handled after it.
        `turn`: is awaited before any further attempt.
        """
        while True:
            try:
                if behind is None:
                    return call.result(await self.transport.exchange(call))
                before, behind = behind, None
                return call.result(await self.transport.exchange_behind(call, before))
            except PenstockError as error:
                retry = retry or self.new_retry()
                runtime = self.runtime()
                delay = retry.delay_after(error, runtime.time(), reached_before=self.transport.reached)
                if delay is None:
                    raise
            if turn is not None:
                await turn()
            await runtime.sleep(delay)

    async def ask(self, name: str, kind: type[T], /, **fields: Any) -> T:
        """The answer of an operation; see `operation`."""
        return await self.request(operation(name, kind, **fields))

    async def transact(self, receipts: Sequence[str], items: Sequence[dict[str, Any]]) -> Transacted:
        """Raises StaleReceipt only if it surely did not happen."""
        if self.protection is not None:
            items = [self.protection.protect_item(item) for item in items]
        retry, runtime = self.new_retry(), self.runtime()
        begun = runtime.time()
        try:
            return transacted(
                await self.request(operation("transact", TransactReply, ack=receipts, publish=items), retry)
            )
        except StaleReceipt as error:
            raise stale_or_unknown(error, retry, runtime.time() - begun) from None

    def new_retry(self, *, within_s: float | None = None) -> RetryState:
        """For one call; `within_s` is for one that is not worth the client's whole patience."""
        return RetryState(self._policy if within_s is None else self._policy.within(within_s))
