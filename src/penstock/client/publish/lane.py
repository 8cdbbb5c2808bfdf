"""The publishing of one client to one queue: messages are stored in the order of the calls, and none is stored twice.

Calls to `publish` that arrive while a frame is under way wait together and become the next frame. No timer is
involved: an idle lane sends at once, a busy one collects for exactly as long as the server takes, so the batch grows
with the load. A client that wants fewer, larger frames at the price of latency asks for `linger`.

One frame is in flight at a time, because order is worth more than the little that a second would gain: the server
commits in groups anyway, and the next frame is built while this one travels.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from penstock import limits
from penstock.client.calls.delivery import ProducerSeq, publish
from penstock.client.publish.frames import FRAME_BYTES_TARGET, EncodedFrame, Row, frame_of_rows
from penstock.client.publish.published import PublishedMessage, messages_of
from penstock.client.publish.send_buffer import SendBuffer
from penstock.client.runtime import start_task
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.retry import AnswerLost
from penstock.errors import InvalidRequest, TooLarge
from penstock.ids import QueuePath
from penstock.wire.replies import PublishRunsReply

EPOCH = 1
"""A client's producer id is its own and random, so no earlier epoch of it can exist."""


def new_producer() -> str:
    return f"sdk-{secrets.token_hex(12)}"


class Sequencer:
    """Numbers of one producer in one queue. Every frame gets its own, and keeps them however often it is sent.

    The numbers of a frame that was refused are not used again: the server would take other content under them for a
    repetition and drop it. Gaps cost nothing. May be used from many threads.
    """

    __slots__ = ("_lock", "_next", "_producer")

    def __init__(self, producer: str):
        self._lock = threading.Lock()
        self._producer = producer
        self._next = 0

    def take(self, count: int) -> ProducerSeq:
        with self._lock:
            first = self._next
            self._next += count
        return ProducerSeq(self._producer, EPOCH, first)


class _OpenFrame:
    """A frame that still grows: rows of `publish` calls, each with its caller."""

    __slots__ = ("rows", "since", "size", "waiters")

    def __init__(self, since: float) -> None:
        self.since = since
        self.rows: list[Row] = []
        self.waiters: list[asyncio.Future[PublishedMessage]] = []
        self.size = 0

    def has_room(self, row: Row) -> bool:
        return len(self.rows) < limits.BATCH_MESSAGES_MAX and self.size + row.size <= FRAME_BYTES_TARGET

    def add(self, row: Row, waiter: asyncio.Future[PublishedMessage]) -> None:
        self.rows.append(row)
        self.waiters.append(waiter)
        self.size += row.size


class _PublishMany:
    """One `publish_many`. Its frames are stored in order or not at all: after a failure the later ones are not sent."""

    __slots__ = ("error", "sequence")

    def __init__(self, sequence: ProducerSeq | None):
        self.sequence = sequence
        self.error: Exception | None = None


class _SealedFrame:
    """A finished frame of a `publish_many`."""

    __slots__ = ("frame", "of", "sequence", "waiter")

    def __init__(self, frame: EncodedFrame, of: _PublishMany, waiter: asyncio.Future[PublishRunsReply]):
        self.frame = frame
        self.of = of
        self.sequence = of.sequence
        self.waiter = waiter


class Publisher(Protocol):
    """Publishes in one queue."""

    async def publish(self, row: Row) -> PublishedMessage: ...

    async def publish_frames(
        self, frames: Iterator[EncodedFrame], sequence: ProducerSeq | None
    ) -> list[PublishRunsReply]:  # fmt: skip
        """Send the frames one after the other; all durable on return.

        If one fails, the frames before it are stored and the ones after it are not.
        """

    async def drain(self) -> None:
        """Wait until all messages that were handed over so far are sent and answered."""


class Lane:
    """All publishing of one client to one queue, with asyncio."""

    def __init__(self, carrier: Carrier, queue: QueuePath, producer: str, buffer: SendBuffer, linger_s: float):
        self._queue = queue
        self._carrier = carrier
        self._buffer = buffer
        self._linger_s = linger_s
        self._enough = asyncio.Event()
        """Set when the next frame need not wait for more messages any longer."""
        self._sequencer = Sequencer(producer)
        self._entries: deque[_OpenFrame | _SealedFrame] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._sender_name = f"penstock publish {queue}"

    async def publish(self, row: Row) -> PublishedMessage:
        """Send one message with the next frame. Cancelling the caller does not take it back."""
        if not self._buffer.enter_now(1, row.size):
            await self._buffer.enter(1, row.size)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[PublishedMessage] = loop.create_future()
        entry = self._entries[-1] if self._entries else None
        if not isinstance(entry, _OpenFrame) or not entry.has_room(row):
            entry = _OpenFrame(loop.time())
            self._append(entry)
        entry.add(row, waiter)
        return await waiter

    async def publish_frames(
        self, frames: Iterator[EncodedFrame], sequence: ProducerSeq | None
    ) -> list[PublishRunsReply]:
        """Send the frames one after the other, each built while the one before travels; all durable on return.

        If one fails, the frames before it are stored and the ones after it are not.
        """
        many = _PublishMany(None if sequence is None else ProducerSeq(*sequence))
        replies: list[PublishRunsReply] = []
        before: asyncio.Future[PublishRunsReply] | None = None
        for frame in frames:
            if not self._buffer.enter_now(frame.rows, len(frame.data)):
                await self._buffer.enter(frame.rows, len(frame.data))
            waiter = self._add_sealed(frame, many)
            if before is not None:
                replies.append(await before)
            elif self._entries:
                await asyncio.sleep(0)  # the sender writes the first frame before the second is built
            before = waiter
        if before is not None:
            replies.append(await before)
        return replies

    def _add_sealed(self, frame: EncodedFrame, many: _PublishMany) -> asyncio.Future[PublishRunsReply]:
        waiter: asyncio.Future[PublishRunsReply] = asyncio.get_running_loop().create_future()
        self._carrier.kept = frame.kept
        self._append(_SealedFrame(frame, many, waiter))
        if many.sequence is not None:
            many.sequence = many.sequence._replace(seq=many.sequence.seq + frame.rows)
        return waiter

    def _append(self, entry: _OpenFrame | _SealedFrame) -> None:
        self._entries.append(entry)
        if self._sender is None or self._sender.done():
            self._start_sender(at_once=isinstance(entry, _SealedFrame) and self._carrier.transport.sends_at_once)
        elif len(self._entries) > 1:
            self._enough.set()  # the frame before will not grow any more

    def _start_sender(self, *, at_once: bool) -> None:
        """A frame that cannot grow may leave now; a task would begin when the caller next waits."""
        self._sender = start_task(self._run(), self._sender_name, at_once=at_once)

    async def drain(self) -> None:
        """Wait until everything handed over so far was sent and answered."""
        self._linger_s = 0.0
        self._enough.set()
        if self._entries and (self._sender is None or self._sender.done()):
            self._start_sender(at_once=False)  # the last one was cancelled, by an event loop that was shut down
        if self._sender is not None:
            await asyncio.wait({self._sender})

    async def _run(self) -> None:
        while self._entries:
            if self._linger_s:
                await self._linger()
            entry = self._entries.popleft()
            if isinstance(entry, _SealedFrame):
                rows, size = entry.frame.rows, len(entry.frame.data)
                work = self._send_sealed(entry)
                waiters: list[asyncio.Future[Any]] = [entry.waiter]
            else:
                rows, size = len(entry.rows), entry.size
                work, waiters = self._send_open(entry.rows, entry.waiters), list(entry.waiters)
            try:
                await work
            except (asyncio.CancelledError, GeneratorExit):
                # By an event loop that is shut down, and may be closed already.
                if isinstance(entry, _SealedFrame):
                    entry.of.error = AnswerLost("the client was cancelled while an earlier part was under way")
                for waiter in waiters:
                    if not waiter.get_loop().is_closed():
                        waiter.cancel()
                raise
            finally:
                self._buffer.leave(rows, size)

    async def _linger(self) -> None:
        """Let the frame that is next grow, until it is as old as the client allows or cannot grow any more."""
        entry = self._entries[0]
        self._enough.clear()
        if isinstance(entry, _OpenFrame) and len(self._entries) == 1:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(entry.since + self._linger_s):
                    await self._enough.wait()

    async def _send_sealed(self, entry: _SealedFrame) -> None:
        try:
            if entry.of.error is not None:
                raise entry.of.error
            reply = await self._send_frame(entry.frame, entry.sequence)
        except Exception as error:  # any error belongs to the caller; the lane goes on
            entry.of.error = error
            if not entry.waiter.done():
                entry.waiter.set_exception(error)
                # Looked at here, because a caller that failed with an earlier frame never looks at this one.
                entry.waiter.exception()
        else:
            if not entry.waiter.done():
                entry.waiter.set_result(reply)

    async def _send_open(self, rows: list[Row], waiters: list[asyncio.Future[PublishedMessage]]) -> None:
        """A frame is refused whole, but its callers know nothing of each other: only the refused message may fail."""
        while rows:
            try:
                messages = messages_of(await self._send_frame(frame_of_rows(rows), None))
            except (InvalidRequest, TooLarge) as error:
                blamed = error.details.get("row") if len(rows) > 1 else 0
                if isinstance(blamed, int) and 0 <= blamed < len(rows):
                    _fail([waiters[blamed]], error)
                    del rows[blamed], waiters[blamed]
                    continue
                for row, waiter in zip(rows, waiters, strict=True):
                    await self._send_open([row], [waiter])
            except Exception as error:  # any error belongs to the callers; the lane goes on
                _fail(waiters, error)
            else:
                for waiter, message in zip(waiters, messages, strict=True):
                    if not waiter.done():
                        waiter.set_result(message)
            return

    def _send_frame(self, frame: EncodedFrame, sequence: ProducerSeq | None) -> Awaitable[PublishRunsReply]:
        return self._carrier.request(publish(self._queue, frame.data, sequence or self._sequencer.take(frame.rows)))


def _fail(waiters: list[asyncio.Future[PublishedMessage]], error: Exception) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


class DirectLane:
    """The publishing of a blocking client to one queue. It sends at once, in the thread that calls.

    Order is kept per thread, and a blocked call is its own backpressure.
    """

    def __init__(self, carrier: Carrier, queue: QueuePath, producer: str):
        self._carrier = carrier
        self._queue = queue
        self._sequencer = Sequencer(producer)

    async def publish(self, row: Row) -> PublishedMessage:
        return messages_of(await self._send(frame_of_rows([row]), None))[0]

    async def publish_frames(
        self, frames: Iterator[EncodedFrame], sequence: ProducerSeq | None
    ) -> list[PublishRunsReply]:
        replies = []
        number = None if sequence is None else ProducerSeq(*sequence)
        for frame in frames:
            self._carrier.kept = frame.kept
            replies.append(await self._send(frame, number))
            if number is not None:
                number = number._replace(seq=number.seq + frame.rows)
        return replies

    async def drain(self) -> None:
        """Nothing is under way that no thread waits for."""

    async def _send(self, frame: EncodedFrame, sequence: ProducerSeq | None) -> PublishRunsReply:
        call = publish(self._queue, frame.data, sequence or self._sequencer.take(frame.rows))
        return await self._carrier.request(call)
