"""Consuming: the iterators of users around a session, and the sessions of a client that are in use."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from penstock.client.consume.messages import Message, MessageBatch
from penstock.client.consume.options import Assigned, ConsumeOptions, consume_options
from penstock.client.consume.session import ConsumerSession, MessageKinds
from penstock.client.transport.carrier import Carrier
from penstock.client.units import Duration
from penstock.errors import PenstockError

KINDS = MessageKinds(Message, MessageBatch)


class SessionIterator:
    """The part that the two iterators share. Dropping one closes its session."""

    def __init__(self, session: ConsumerSession[Message, MessageBatch]):
        self._session = session

    async def aclose(self) -> None:
        """Stop: messages that were not handed out go back to the queue, and every ack is sent before this returns.

        Messages that go back are delivered to others at once, and no attempt is counted.
        """
        await self._session.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.aclose(interrupted=isinstance(error, KeyboardInterrupt | SystemExit))

    def __aiter__(self) -> Self:
        return self

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._session.close_soon()


class Consumer(SessionIterator):
    """Async iterator of messages; made by `Queue.consume`."""

    async def __anext__(self) -> Message:
        message = self._session.take_message()
        if message is not None:
            return message
        try:
            message = await self._session.next_message()
        except PenstockError:
            await self._session.aclose()
            raise
        if message is None:
            await self._session.aclose()
            raise StopAsyncIteration
        return message


class BatchConsumer(SessionIterator):
    """Async iterator of batches; made by `Queue.consume_batches`."""

    async def __anext__(self) -> MessageBatch:
        try:
            batch = await self._session.next_batch()
        except PenstockError:
            await self._session.aclose()
            raise
        if batch is None:
            await self._session.aclose()
            raise StopAsyncIteration
        return batch


class Consumers:
    """Opens consumers, and closes those that are still in use: by a loop, by a message, by an ack on its way."""

    def __init__(self, carrier: Carrier, kinds: MessageKinds[Any, Any]):
        self._carrier = carrier
        self._kinds = kinds
        self._sessions: WeakSet[ConsumerSession[Any, Any]] = WeakSet()

    def of_messages(self, options: ConsumeOptions) -> Consumer:
        return Consumer(self._open(options, low_water=options.size // 2 if options.size > 1 else -1))

    def of_batches(self, options: ConsumeOptions) -> BatchConsumer:
        return BatchConsumer(self._open(options, low_water=-1))

    def _open(self, options: ConsumeOptions, *, low_water: int) -> ConsumerSession[Any, Any]:
        session = ConsumerSession(self._carrier, options, self._kinds, low_water=low_water)
        self._sessions.add(session)
        return session

    async def aclose(self) -> None:
        """Give back messages that were leased ahead and send every ack, of all consumers at the same time."""
        closing = self._carrier.runtime().jobs()
        for session in list(self._sessions):
            closing.start(session.aclose(), "penstock close")
        await closing.drain()

    def stop(self) -> None:
        """After `aclose`: there are no more calls."""
        for session in list(self._sessions):
            session.stop()


class MessageSource:
    """A queue or a scope: messages can be consumed from it."""

    _source: str
    """The path."""
    _consumers: Consumers
    _in_scope = False

    def consume(
        self, group: str = "default", *, prefetch: int = 100, lease: Duration | None = None,
        wait: Duration | None = None, consumer: str = "", assigned: bool | Assigned = False,
    ) -> Consumer:  # fmt: skip
        """Iterate over messages, each leased to you until it is settled; see `Message`.

        Up to `prefetch` messages wait in a local buffer, which is refilled when half of it is used (in the blocking
        client, when it is empty); with `prefetch=1` nothing is leased before you ask for it. `lease` is how long the
        server waits for a consumer that died, by default the `lease_ms` of the queue; while the consumer lives the
        lease is renewed. With `wait` the iteration ends when nothing came for that long. `consumer` is a name that
        shows up where the queue is inspected; default: the host and the process id.

        With `assigned` the consumer joins the group as a member: it gets a share of the partitions, keeps it as others
        come and go, and hands over what moves; see `Assigned`, which may be given instead of True. Not of a scope.
        """
        options = consume_options(
            self._source, group=group, size=("prefetch", prefetch), lease=lease, wait=wait, consumer=consumer,
            assigned=assigned, in_scope=self._in_scope,
        )  # fmt: skip
        return self._consumers.of_messages(options)

    def consume_batches(
        self, group: str = "default", *, max: int = 1000, lease: Duration | None = None, wait: Duration | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> BatchConsumer:  # fmt: skip
        """Iterate over batches of up to `max` messages; the fastest way to consume. See `MessageBatch`.

        A consumer that handles batches within 50 ms, in `async with`, has up to two more leased while it handles one.
        A batch of a scope may have messages of several queues.
        """
        options = consume_options(
            self._source, group=group, size=("max", max), lease=lease, wait=wait, consumer=consumer, assigned=assigned,
            in_scope=self._in_scope,
        )  # fmt: skip
        return self._consumers.of_batches(options)


class Scope(MessageSource):
    """A namespace (`"email"`), or a task of it (`"email/notifications"`); made by `Client.scope`.

    Queues with a higher `queue_priority` are drained first; among equals the one with the oldest message is next.
    Queues that are created later count too. Each message names its queue. Messages in the local buffer were leased
    before more urgent ones came: a small `prefetch` follows priorities more closely.
    """

    _in_scope = True

    def __init__(self, path: str, consumers: Consumers):
        self._consumers = consumers
        self.path = self._source = path

    def __repr__(self) -> str:
        return f"<Scope {self.path}>"
