"""LeaseStream: the client grants credits, the server sends up to as many leased messages, settlements flow back.

A stream has three tasks. One reads requests and starts their settlements in order. One leases messages while there are
credits. One writes replies in the order in which they were queued; replies that are ready at the same time are written
as one message, because encoded messages can be concatenated.

When the stream ends, its unsettled messages are returned at once. If the client closed or cancelled the stream, if the
server ended it with an error, or if the server stops, they are released and the attempt does not count. If the
connection was lost, one of the messages may have crashed the client: the messages that were sent are nacked, so that
such a message becomes a dead letter in the end.
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
from penstock.broker.outstanding import OutstandingLeases
from penstock.broker.types import DeliveredRun, LeaseReply
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.transports import translate
from penstock.transports.grpc.calls import Context, StreamCredential, renewed
from penstock.transports.grpc.delivery import encoded, receipts_of, replies, settled
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.error_status import error_message
from penstock.transports.grpc.lease import settlement
from penstock.transports.grpc.shapes import check_known, convert, in_frames, parse, values_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import Settled
from penstock.wire.messages import AckRequest, ExtendRequest, LeaseRequest, NackRequest, RejectRequest
from penstock.wire.parse import parse_queue

if TYPE_CHECKING:
    from penstock.broker.service import Broker

MAX_DEFAULT = 1_000
LOST = "the connection of the stream was lost"
_DELIVERIES_AHEAD = 2
"""Replies with messages that may wait to be written: one being written, one ready."""


async def lease_stream(edge: GrpcEdge, context: Context, credential: StreamCredential | None) -> None:
    stream = LeaseStream(edge, context, credential)
    lost = False
    try:
        await stream.run()
    except PenstockError:
        raise  # the client is connected and gets the status
    except BaseException:
        lost = not edge.draining.is_set() and not stream.ended_by_client()
        raise
    finally:
        stream.close_queue()
        edge.run_detached(partial(stream.return_leases, lost=lost))


class _Reply(NamedTuple):
    """An encoded reply."""

    data: bytes
    slot: asyncio.Semaphore | None = None
    """The semaphore to release after the write."""


class LeaseStream:
    """One stream."""

    def __init__(self, edge: GrpcEdge, context: Context, credential: StreamCredential | None):
        self._edge = edge
        self._credential = credential
        self.close_queue: Callable[[], None] = lambda: None
        """Ends the count of this stream for its queue."""
        self._context = context
        self._peer = context.peer()  # gRPC may not know the peer after the end of the stream
        self._held = OutstandingLeases()
        self._closed_by_client = False
        self._credits = 0
        self._generation: int | None = None
        """The generation that the client uses, if it is a member of a group."""
        self._announced_generation = 0
        """The newest generation that was sent to the client."""
        self._changed = asyncio.Event()
        """Set when credits, the generation or the outstanding leases change."""
        self._outgoing: deque[_Reply | asyncio.Task[_Reply] | None] = deque()
        """Replies, and tasks that return one when it is durable; None at the end."""
        self._reply_queued = asyncio.Event()
        """Set when `_outgoing` is not empty."""
        self._unsent: deque[list[DeliveredRun]] = deque()
        """Leased runs whose reply has not been passed to gRPC."""
        self._settling: set[asyncio.Task[_Reply]] = set()
        self._requests = asyncio.Semaphore(limits.STREAM_REQUESTS_MAX)
        self._deliveries = asyncio.Semaphore(_DELIVERIES_AHEAD)

    async def run(self) -> None:
        first = await self._read()
        if first is None:
            return
        if not first.HasField("open"):
            raise InvalidRequest("the first request of a stream must have `open`", details={"field": "open"})
        asked, frames = _opened(first.open)
        take = translate.lease_call(self._edge.broker, asked)
        self._generation = asked.generation
        if self._credential is not None and asked.queue is not None:
            self.close_queue = self._credential.open_queue(parse_queue(asked.queue))
        await self._handle_request(first)
        reading = asyncio.ensure_future(self._read_requests())
        leasing = asyncio.ensure_future(self._lease(take, asked.max, frames))
        writing = asyncio.ensure_future(self._write_replies())
        stopping = asyncio.ensure_future(self._edge.draining.wait())
        tasks: tuple[asyncio.Future[Any], ...] = (reading, leasing, writing, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            leasing.cancel()
            if stopping.done() and not reading.done():
                await self._drain_client(reading)
            is_closed = reading.done()
            reading.cancel()
            # A task that ended early may have raised an error; the replies to earlier settlements are written first.
            self._enqueue_reply(None)
            await writing
            if is_closed and self._held and not self._closed_by_client and not self._edge.draining.is_set():
                await self._probe_client()
            for ended in (reading, leasing):
                if ended.done() and not ended.cancelled():
                    ended.result()
        finally:
            for task in tasks:
                task.cancel()
        if stopping.done() and not is_closed:
            raise Unavailable("the server is shutting down", retry_after_ms=1_000)

    async def _probe_client(self) -> None:
        """Write an empty reply, to find out whether the client is connected.

        The end of requests is the same for a client that closed its side and for a lost connection. After a write gRPC
        knows whether the connection is lost, and cancels the call.
        """
        await self._context.write(b"")

    def ended_by_client(self) -> bool:
        """True if the client closed or cancelled the stream, False if the connection was lost.

        A client that cancels the stream and closes its connection at the same time may count as lost.
        """
        return self._closed_by_client or self._edge.peers.connected(self._peer)

    async def return_leases(self, *, lost: bool) -> None:
        """Return the unsettled messages of an ended stream, after its last settlements."""
        if self._settling:
            await asyncio.wait(self._settling)
        broker = self._edge.broker
        receipts = self._held.receipts()
        if receipts and not lost:
            await broker.messages.release(receipts)
        elif receipts:
            if unsent := receipts_of(run for each in self._unsent for run in each):
                await broker.messages.release(unsent)
            # The receipts cover the released messages too; these are stale now.
            await broker.messages.nack(receipts, error=LOST)

    async def _drain_client(self, reading: asyncio.Future[None]) -> None:
        """The server stops: send `draining` and wait a short time until the client has settled its messages."""
        self._enqueue_reply(_Reply(pb.LeaseStreamReply(draining=True).SerializeToString()))
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
            # Checked as early as possible, because the client may close the connection right after the stream.
            self._closed_by_client = self._edge.peers.connected(self._peer)
            return None
        return parse(pb.LeaseStreamRequest, data)

    async def _read_requests(self) -> None:
        while (request := await self._read()) is not None:
            if request.HasField("open"):
                raise InvalidRequest("the stream is already open", details={"field": "open"})
            await self._handle_request(request)

    async def _handle_request(self, request: pb.LeaseStreamRequest) -> None:
        """Check the request and start its settlements. Waits while too many settlements are running."""
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
                    "generation: allowed only on a stream that was opened with a generation, and at least 1",
                    details={"field": "generation"},
                )
            self._generation = request.generation
        self._credits = credits
        self._changed.set()
        if request.HasField("credential"):
            self._enqueue_reply(_Reply(self._renewed(request).SerializeToString()))
        if wanted:
            if self._credential is not None:
                self._credential.charge(settles=True)
            await self._requests.acquire()
            task = asyncio.ensure_future(self._settle(request.number, wanted))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            self._enqueue_reply(task)

    def _renewed(self, request: pb.LeaseStreamRequest) -> pb.LeaseStreamReply:
        try:
            return pb.LeaseStreamReply(renewed=renewed(self._credential, request.credential))
        except PenstockError as error:
            refused = pb.StreamSettled(number=request.number, error=error_message(error))
            return pb.LeaseStreamReply(settled=[refused])

    async def _settle(self, number: int, wanted: Sequence[Callable[[Broker], Awaitable[Sequence[Settled]]]]) -> _Reply:
        async def outcome_of(settle: Callable[[Broker], Awaitable[Sequence[Settled]]]) -> Sequence[Settled]:
            return await settle(self._edge.broker)

        reply = pb.StreamSettled(number=number)
        for outcome in await asyncio.gather(*map(outcome_of, wanted), return_exceptions=True):
            if isinstance(outcome, PenstockError):
                reply.error.CopyFrom(error_message(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._held.settle(outcome)
                reply.results.extend(settled(outcome))
        self._changed.set()
        return _Reply(pb.LeaseStreamReply(settled=[reply]).SerializeToString(), self._requests)

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
                # A retryable error does not end the stream.
                await asyncio.sleep((error.retry_after_ms or 1_000) / 1000)
                continue
            if reply.runs:
                await self._deliver(reply.runs, frames)
            if generation is not None and reply.generation is not None and reply.generation > generation:
                await self._announce_generation(reply.generation, has_more=bool(reply.runs))

    async def _deliver(self, runs: list[DeliveredRun], frames: bool) -> None:
        now_ms = self._edge.clock.now_ms()
        self._credits -= sum(run.count for run in runs)
        self._held.add(runs, now_ms)
        self._edge.metrics.delivered(runs, now_ms)
        parts = list(replies(runs))
        self._unsent.extend(parts)
        for each in parts:
            await self._deliveries.acquire()
            self._enqueue_reply(_Reply(encoded(each, frames=frames), self._deliveries))

    async def _announce_generation(self, generation: int, *, has_more: bool) -> None:
        """Send the new generation. The client gets its partitions with a heartbeat."""
        if self._announced_generation < generation:
            self._announced_generation = generation
            self._enqueue_reply(_Reply(pb.LeaseStreamReply(generation=generation).SerializeToString()))
        if not has_more and self._generation is not None and self._generation < generation:
            # A lease with an old generation returns at once, so the loop must wait for the client to change it.
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- replies --------------------------------------------------------------------------------------------------

    def _enqueue_reply(self, reply: _Reply | asyncio.Task[_Reply] | None) -> None:
        self._outgoing.append(reply)
        self._reply_queued.set()

    async def _write_replies(self) -> None:
        while True:
            while not self._outgoing:
                self._reply_queued.clear()
                await self._reply_queued.wait()
            if self._outgoing[0] is None:
                return
            ready = await self._ready()
            await self._context.write(b"".join([reply.data for reply in ready]))
            for reply in ready:
                if reply.slot is not None:
                    reply.slot.release()

    async def _ready(self) -> list[_Reply]:
        """Wait for one reply and return it with all further replies that are ready and fit."""
        ready: list[_Reply] = []
        room = limits.GRPC_REPLY_BYTES_MAX
        while self._outgoing:
            first = self._outgoing[0]
            if first is None or (ready and isinstance(first, asyncio.Task) and not first.done()):
                break
            reply = await first if isinstance(first, asyncio.Task) else first
            if ready and len(reply.data) > room:
                break
            self._outgoing.popleft()
            if reply.slot is self._deliveries:
                self._unsent.popleft()
            ready.append(reply)
            room -= len(reply.data)
        return ready


def _settlements(request: pb.LeaseStreamRequest) -> list[Callable[[Broker], Awaitable[Sequence[Settled]]]]:
    """The settlements of the request, in order and checked. Raises InvalidRequest."""
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
