"""Messages and batches whose calls block. Public as `penstock.sync`."""

from __future__ import annotations

from typing import Self, cast

from penstock.client.blocking.runtime import settling
from penstock.client.consume import messages as coroutines
from penstock.client.consume.messages import (
    TRACED_BY_WORKER,
    LeasedBatch,
    LeasedMessage,
    LeasedTransaction,
    Settleable,
)
from penstock.client.consume.session import MessageKinds
from penstock.client.messages.leased import LeasedRun
from penstock.client.messages.stored import MessageRun

_enter = settling(coroutines.SettlingCalls.__aenter__)
_enter_transaction = settling(coroutines.Transaction.__aenter__)


class BlockingSettling(Settleable):
    """The calls that a message and a batch have in common."""

    __slots__ = ()

    ack = settling(coroutines.SettlingCalls.ack)
    extend = settling(coroutines.SettlingCalls.extend)

    def transaction(self) -> BlockingTransaction:
        """`with message.transaction() as tx: tx.publish("out", …)`: published and acked together, or neither.

        When the block succeeds the transaction is made durable before it is left; StaleReceipt means that the lease
        was lost and nothing happened. When it raises, nothing is published and the message is nacked.
        """
        return BlockingTransaction(self)

    def __enter__(self) -> Self:
        _enter(self)
        return self

    __exit__ = settling(coroutines.SettlingCalls.__aexit__)


class BlockingTransaction(LeasedTransaction):
    """`penstock.Transaction` for `with`."""

    __slots__ = ()

    def __enter__(self) -> Self:
        _enter_transaction(self)
        return self

    __exit__ = settling(coroutines.Transaction.__aexit__)


class BlockingMessage(LeasedMessage, BlockingSettling):
    """A message that this consumer may handle until its lease ends.

    `with message:` acks it when the block succeeds and nacks it with the error's text when the block raises
    (the exception goes on to you). The lease is renewed meanwhile. The ack is handed over, not waited for: it travels
    with the consumer's next call, at most milliseconds later. To wait until it is durable, `message.ack()`.
    """

    __slots__ = ()

    nack = settling(coroutines.Message.nack)
    reject = settling(coroutines.Message.reject)
    __exit__ = settling(coroutines.Message.__aexit__)


class BlockingBatch(LeasedBatch[BlockingMessage], BlockingSettling):
    """Messages that were leased together: `len(batch)`, `batch[i]`, iteration, all decoded only when looked at.

    `batch.ack()` settles all that was not settled one by one, is durable on return, and brings the next batch
    along in the same round trip. `with batch:` acks or nacks the whole, as with a message.
    """

    __slots__ = ()

    nack = settling(coroutines.MessageBatch.nack)
    reject = settling(coroutines.MessageBatch.reject)

    def _message(self, run: MessageRun, row: int) -> BlockingMessage:
        return BlockingMessage(cast(LeasedRun, run), row, self._session)


KINDS = MessageKinds(BlockingMessage, BlockingBatch)


def for_thread(message: coroutines.Message) -> BlockingMessage:
    """The same message for a handler in a thread: its calls run in the event loop of the consumer."""
    blocking = BlockingMessage(message._run, message._row, message._session)
    blocking._work = TRACED_BY_WORKER
    return blocking
