"""The messages and batches that a consumer hands out, as users see them."""

from __future__ import annotations

from types import TracebackType
from typing import Self, cast

from penstock.client.consume.settling import LeasedBatch, LeasedMessage, LeasedTransaction, Settleable
from penstock.client.messages.leased import LeasedRun
from penstock.client.messages.stored import MessageRun
from penstock.wire.delivery import Settled


class SettlingCalls(Settleable):
    """The public calls that a message and a batch have in common."""

    __slots__ = ()

    async def ack(self) -> None:
        """Done: never deliver it again. Durable on return; nothing happens to what is settled already.

        Raises StaleReceipt if the lease had ended. After any other error it is unsettled still and may be acked again.
        """
        await self._ack()

    async def extend(self, lease: float | None = None) -> None:
        """Hold it for `lease` more seconds from now (default: as long as its lease was at first).

        Raises StaleReceipt if the lease was lost.
        """
        await self._extend(lease)

    def transaction(self) -> Transaction:
        """`async with message.transaction() as tx: tx.publish("out", …)`: published and acked together, or neither.

        When the block succeeds the transaction is made durable before it is left; StaleReceipt means that the lease
        was lost and nothing happened. When it raises, nothing is published and the message is nacked.
        """
        return Transaction(self)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)


class Transaction(LeasedTransaction):
    """Messages that are published in the same moment in which the message or batch that they come of is acked."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        self._source._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._source._leave(error)
            return
        try:
            self.result = await self._source._transact(self.items)
        except BaseException as problem:
            self._source._end_work(problem)
            raise
        self._source._end_work(None)


class Message(LeasedMessage, SettlingCalls):
    """A message that this consumer may handle until its lease ends.

    `async with message:` acks it when the block succeeds and nacks it with the error's text when the block raises
    (the exception goes on to you). The lease is renewed meanwhile. The ack is handed over, not waited for: it travels
    with the consumer's next call, at most milliseconds later. To wait until it is durable, `await message.ack()`.
    """

    __slots__ = ()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._leave_done()
        else:
            await self._leave(error)

    async def nack(self, *, delay: float | None = None, error: str = "") -> str:
        """Failed: deliver it again after `delay` seconds (default: the queue's backoff), or give it up.

        Returns "retrying" or "dead_lettered". Raises like `ack`.
        """
        return _status(await self._nack(delay, error))

    async def reject(self, error: str = "") -> str:
        """Hopeless: move it to the dead letters now. Returns "dead_lettered". Raises like `ack`."""
        return _status(await self._reject(error))


class MessageBatch(LeasedBatch[Message], SettlingCalls):
    """Messages that were leased together: `len(batch)`, `batch[i]`, iteration, all decoded only when looked at.

    `await batch.ack()` settles all that was not settled one by one, is durable on return, and brings the next batch
    along in the same round trip. `async with batch:` acks or nacks the whole, as with a message.
    """

    __slots__ = ()

    async def nack(self, *, delay: float | None = None, error: str = "") -> list[Settled]:
        """Failed, all that is not settled: deliver again after `delay` seconds (default: the queue's backoff).

        Returns one entry per group of neighbours with the same outcome. Raises like `ack`.
        """
        return await self._nack(delay, error)

    async def reject(self, error: str = "") -> list[Settled]:
        """Hopeless, all that is not settled: move to the dead letters now. Returns and raises like `nack`."""
        return await self._reject(error)

    def _message(self, run: MessageRun, row: int) -> Message:
        return Message(cast(LeasedRun, run), row, self._session)


def _status(results: list[Settled]) -> str:
    return results[0].status if results else "settled"
