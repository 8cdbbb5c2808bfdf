"""LeaseStream: the client grants credits, the server sends up to as many leased messages, settlements flow back.

Three things go on at once. Requests are read, and what they settle is begun in their order. Messages are leased, as
long as there are credits. Replies are written, in the order in which they were promised; what is ready together leaves
together, because encoded messages can be joined.

However the stream ends, the messages that its client had and did not settle are given back at once. A client that
wants to keep its messages keeps its stream. Where the client closed its side or cancelled the stream, where the server
ends the stream with an error, and where the server stops, they are released as if they had not been delivered. A
stream that is lost with its connection may have been taken down by one of its messages, so for those that had been sent
it is a failed attempt: otherwise such a message would be delivered for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.protobuf.message import Message

from penstock import limits
from penstock.broker.types import DeliveredRun, LeaseReply
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.transports import translate
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.delivery import encoded, receipts_of, replies, settled
from penstock.transports.grpc.edge import Edge
from penstock.transports.grpc.lease import settlement
from penstock.transports.grpc.refusal import error_message
from penstock.transports.grpc.shapes import check_known, convert, in_frames, parse, values_of
from penstock.transports.outstanding import OutstandingLeases
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import Settled
from penstock.wire.messages import AckRequest, ExtendRequest, LeaseRequest, NackRequest, RejectRequest

if TYPE_CHECKING:
    from penstock.broker.service import Broker

MAX_DEFAULT = 1_000
LOST = "the connection of the stream was lost"
_DELIVERIES_AHEAD = 2
"""Replies with messages that wait to be written: one on its way, one ready."""


async def lease_stream(edge: Edge, context: Context) -> None:
    stream = LeaseStream(edge, context)
    lost = False
    try:
        await stream.run()
    except PenstockError:
        raise  # the client is there, and is told
    except BaseException:
        lost = not edge.draining.is_set() and not stream.ended_by_client()
        raise
    finally:
        edge.afterwards(partial(stream.give_back, lost=lost))


class _Reply(NamedTuple):
    """Ready to be written."""

    data: bytes
    slot: asyncio.Semaphore | None = None
    """Freed when it has been written."""


class LeaseStream:
    """One stream."""

    def __init__(self, edge: Edge, context: Context):
        self._edge = edge
        self._context = context
        self._peer = context.peer()  # gRPC may have forgotten it when the stream has ended
        self._held = OutstandingLeases()
        self._closed_by_client = False
        self._credits = 0
        self._generation: int | None = None
        """The one that the client goes by, if it is a member of a group; and the newest that it was told of."""
        self._told = 0
        self._changed = asyncio.Event()
        """Credits, the generation, or what is held."""
        self._outgoing: deque[_Reply | asyncio.Task[_Reply] | None] = deque()
        """Replies, and those that will be one when they are durable; None at the end."""
        self._promised = asyncio.Event()
        """There is something in `_outgoing`."""
        self._unsent: deque[list[DeliveredRun]] = deque()
        """Of what is held: what no reply that was begun to be written has."""
        self._settling: set[asyncio.Task[_Reply]] = set()
        self._requests = asyncio.Semaphore(limits.STREAM_REQUESTS_MAX)
        self._deliveries = asyncio.Semaphore(_DELIVERIES_AHEAD)

    async def run(self) -> None:
        first = await self._read()
        if first is None:
            return
        if not first.HasField("open"):
            raise InvalidRequest("the first request of a stream has to open it", details={"field": "open"})
        asked, frames = _opened(first.open)
        take = translate.lease(self._edge.broker, asked)
        self._generation = asked.generation
        await self._note(first)
        reading = asyncio.ensure_future(self._read_requests())
        leasing = asyncio.ensure_future(self._lease(take, asked.max, frames))
        writing = asyncio.ensure_future(self._write_replies())
        stopping = asyncio.ensure_future(self._edge.draining.wait())
        tasks: tuple[asyncio.Future[Any], ...] = (reading, leasing, writing, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            leasing.cancel()
            if stopping.done() and not reading.done():
                await self._let_finish(reading)
            is_closed = reading.done()
            reading.cancel()
            # Whoever has ended early may have an error to tell; what was settled before it is told first.
            self._promise(None)
            await writing
            if is_closed and self._held and not self._closed_by_client and not self._edge.draining.is_set():
                await self._make_sure()
            for ended in (reading, leasing):
                if ended.done() and not ended.cancelled():
                    ended.result()
        finally:
            for task in tasks:
                task.cancel()
        if stopping.done() and not is_closed:
            raise Unavailable("the server is shutting down", retry_after_ms=1_000)

    async def _make_sure(self) -> None:
        """A client that is gone and one that closed its side look alike to a reader; the call is cancelled later.

        An empty reply, which says nothing: when it has been written, or cannot be, gRPC knows whether the client is
        there.
        """
        await self._context.write(b"")

    def ended_by_client(self) -> bool:
        """True for a stream that its client has closed or cancelled, False for one that was lost with its connection.

        A client that cancels and closes its connection at the same moment may be taken for one that has died.
        """
        return self._closed_by_client or self._edge.peers.connected(self._peer)

    async def give_back(self, *, lost: bool) -> None:
        """The stream has ended. What its client settled last comes first."""
        if self._settling:
            await asyncio.wait(self._settling)
        broker = self._edge.broker
        receipts = self._held.receipts()
        if receipts and not lost:
            await broker.release(receipts)
        elif receipts:
            if unsent := receipts_of(run for each in self._unsent for run in each):
                await broker.release(unsent)
            # Of everything: what was just released is stale by now.
            await broker.nack(receipts, error=LOST)

    async def _let_finish(self, reading: asyncio.Future[None]) -> None:
        """The server stops: the client is told, and has a moment to settle what it holds and to close."""
        self._promise(_Reply(pb.LeaseStreamReply(draining=True).SerializeToString()))
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.STREAM_DRAIN_MS / 1000):
                while not reading.done() and (len(self._held) or self._settling):
                    changed = asyncio.ensure_future(self._wait_for_change())
                    try:
                        await asyncio.wait([reading, changed], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        changed.cancel()

    # -- requests -------------------------------------------------------------------------------------------------

    async def _read(self) -> pb.LeaseStreamRequest | None:
        data = await self._context.read()
        if data is grpc.aio.EOF:
            # Asked as early as possible: a connection that is closed behind its last stream is soon gone.
            self._closed_by_client = self._edge.peers.connected(self._peer)
            return None
        return parse(pb.LeaseStreamRequest, data)

    async def _read_requests(self) -> None:
        while (request := await self._read()) is not None:
            if request.HasField("open"):
                raise InvalidRequest("the stream is open already", details={"field": "open"})
            await self._note(request)

    async def _note(self, request: pb.LeaseStreamRequest) -> None:
        """Begin what is asked for, after all of it was checked; waits if too much of the same is under way."""
        wanted = _settlements(request)
        credits = self._credits + request.credits
        if request.credits < 0 or credits > limits.STREAM_CREDITS_MAX:
            raise InvalidRequest(
                f"credits: {request.credits} more make {credits}; a stream has 0 to {limits.STREAM_CREDITS_MAX}",
                details={"field": "credits"},
            )
        if request.HasField("generation"):
            if self._generation is None or request.generation < 1:
                raise InvalidRequest(
                    "generation: the one that a member goes by, on a stream that it opened as one",
                    details={"field": "generation"},
                )
            self._generation = request.generation
        self._credits = credits
        self._changed.set()
        if wanted:
            await self._requests.acquire()
            task = asyncio.ensure_future(self._settle(request.number, wanted))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            self._promise(task)

    async def _settle(self, number: int, wanted: Sequence[Callable[[Broker], Awaitable[Sequence[Settled]]]]) -> _Reply:
        async def outcome_of(settle: Callable[[Broker], Awaitable[Sequence[Settled]]]) -> Sequence[Settled]:
            return await settle(self._edge.broker)

        told = pb.StreamSettled(number=number)
        for outcome in await asyncio.gather(*map(outcome_of, wanted), return_exceptions=True):
            if isinstance(outcome, PenstockError):
                told.error.CopyFrom(error_message(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._held.settle(outcome)
                told.results.extend(settled(outcome))
        self._changed.set()
        return _Reply(pb.LeaseStreamReply(settled=[told]).SerializeToString(), self._requests)

    # -- messages -------------------------------------------------------------------------------------------------

    async def _lease(self, take: Callable[..., Awaitable[LeaseReply]], most: int, frames: bool) -> None:
        while not self._edge.draining.is_set():
            if not self._credits:
                await self._wait_for_change()
                continue
            generation = self._generation
            more = {} if generation is None else {"generation": generation}
            try:
                reply = await take(max=min(self._credits, most), wait_ms=limits.WAIT_MS_MAX, **more)
            except PenstockError as error:
                if not error.retryable or not self._edge.broker.ready or self._edge.draining.is_set():
                    raise
                # Nothing to be had now is no reason to end a stream: it only waits longer.
                await asyncio.sleep((error.retry_after_ms or 1_000) / 1000)
                continue
            if reply.runs:
                await self._deliver(reply.runs, frames)
            if generation is not None and reply.generation is not None and reply.generation > generation:
                await self._tell_generation(reply.generation, has_more=bool(reply.runs))

    async def _deliver(self, runs: list[DeliveredRun], frames: bool) -> None:
        now_ms = self._edge.clock.now_ms()
        self._credits -= sum(run.count for run in runs)
        self._held.add(runs, now_ms)
        self._edge.metrics.delivered(runs, now_ms)
        parts = list(replies(runs))
        self._unsent.extend(parts)
        for each in parts:
            await self._deliveries.acquire()
            self._promise(_Reply(encoded(each, frames=frames), self._deliveries))

    async def _tell_generation(self, generation: int, *, has_more: bool) -> None:
        """The member's partitions have changed: a heartbeat tells how."""
        if self._told < generation:
            self._told = generation
            self._promise(_Reply(pb.LeaseStreamReply(generation=generation).SerializeToString()))
        if not has_more and self._generation is not None and self._generation < generation:
            # Whoever goes by an old generation is not made to wait for messages, so there would be no end of asking.
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- replies --------------------------------------------------------------------------------------------------

    def _promise(self, reply: _Reply | asyncio.Task[_Reply] | None) -> None:
        self._outgoing.append(reply)
        self._promised.set()

    async def _write_replies(self) -> None:
        while True:
            while not self._outgoing:
                self._promised.clear()
                await self._promised.wait()
            if self._outgoing[0] is None:
                return
            ready = await self._ready()
            await self._context.write(b"".join([reply.data for reply in ready]))
            for reply in ready:
                if reply.slot is not None:
                    reply.slot.release()

    async def _ready(self) -> list[_Reply]:
        """At least one reply, and what else is ready and fits into the same message."""
        ready: list[_Reply] = []
        room = limits.GRPC_REPLY_BYTES_MAX
        while self._outgoing:
            promised = self._outgoing[0]
            if promised is None or (ready and isinstance(promised, asyncio.Task) and not promised.done()):
                break
            reply = await promised if isinstance(promised, asyncio.Task) else promised
            if ready and len(reply.data) > room:
                break
            self._outgoing.popleft()
            if reply.slot is self._deliveries:
                self._unsent.popleft()
            ready.append(reply)
            room -= len(reply.data)
        return ready


def _settlements(request: pb.LeaseStreamRequest) -> list[Callable[[Broker], Awaitable[Sequence[Settled]]]]:
    """What the request settles, in order, checked and ready to begin."""
    wanted: list[Callable[[Broker], Awaitable[Sequence[Settled]]]] = []
    count = 0

    def add(settle: Any, message: Message, shape: Any) -> None:
        nonlocal count
        asked = settlement(message, shape)
        count += len(asked.receipts)
        wanted.append(partial(settle, asked=asked))

    if request.HasField("ack"):
        add(translate.ack, request.ack, AckRequest)
    for nack in request.nack:
        add(translate.nack, nack, NackRequest)
    for reject in request.reject:
        add(translate.reject, reject, RejectRequest)
    for extend in request.extend:
        add(translate.extend, extend, ExtendRequest)
    if request.HasField("release"):
        add(translate.release, request.release, AckRequest)
    if count > limits.RECEIPTS_MAX:
        raise InvalidRequest(
            f"{count} receipts in one request are over the limit of {limits.RECEIPTS_MAX}",
            details={"field": "receipts"},
        )
    return wanted


def _opened(request: pb.LeaseStreamOpen) -> tuple[LeaseRequest, bool]:
    check_known(request)
    values = {"max": MAX_DEFAULT, **values_of(request)}
    frames = in_frames(values.pop("form"))
    return convert(values, LeaseRequest), frames
