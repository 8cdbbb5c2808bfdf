"""PublishStream: requests are started and answered in the order of arrival, each when it is durable.

Requests are decided while earlier ones are synced, so that one client fills a group commit. A request that was received
completely is published even if the client has disconnected, because the client cannot know its outcome.
"""

from __future__ import annotations

import asyncio

import grpc

from penstock import limits
from penstock.errors import PenstockError, Unavailable
from penstock.transports.grpc.calls import Context, StreamCredential, renewed
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.error_status import error_message
from penstock.transports.grpc.publish import publish
from penstock.transports.grpc.shapes import check_known, parse
from penstock.v1 import broker_pb2 as pb


async def publish_stream(edge: GrpcEdge, context: Context, credential: StreamCredential | None) -> None:
    await PublishStream(edge, context, credential).run()


class PublishStream:
    """One stream."""

    def __init__(self, edge: GrpcEdge, context: Context, credential: StreamCredential | None):
        self._edge = edge
        self._credential = credential
        self._context = context
        self._replies: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        """Replies in the order of the requests; None at the end."""
        self._slots = asyncio.Semaphore(limits.STREAM_REQUESTS_MAX)
        self._bytes = 0
        """The bytes of unanswered requests."""
        self._room = asyncio.Event()

    async def run(self) -> None:
        reading = asyncio.ensure_future(self._read_requests())
        writing = asyncio.ensure_future(self._write_replies())
        stopping = asyncio.ensure_future(self._edge.draining.wait())
        try:
            await asyncio.wait((reading, writing, stopping), return_when=asyncio.FIRST_COMPLETED)
            # When the server stops, received requests are still answered; the client sends the others elsewhere.
            if reading.done():
                reading.result()
            else:
                reading.cancel()
            self._replies.put_nowait(None)
            await writing
        finally:
            for task in (reading, writing, stopping):
                task.cancel()
        if self._edge.draining.is_set():
            raise Unavailable("the server is shutting down", retry_after_ms=1_000)

    async def _read_requests(self) -> None:
        while True:
            await self._slots.acquire()
            data = await self._context.read()
            if data is grpc.aio.EOF:
                return
            while self._bytes and self._bytes + len(data) > limits.STREAM_BYTES_MAX:
                self._room.clear()
                await self._room.wait()
            self._bytes += len(data)
            self._replies.put_nowait(asyncio.ensure_future(self._answer(data)))

    async def _answer(self, data: bytes) -> bytes:
        try:
            asked = parse(pb.PublishStreamRequest, data)
            if asked.HasField("credential"):
                reply = pb.PublishStreamReply(renewed=renewed(self._credential, asked.credential))
            else:
                if self._credential is not None:
                    self._credential.charge()
                check_known(asked.publish)
                reply = pb.PublishStreamReply(published=await publish(self._edge, asked.publish, self._context))
        except PenstockError as error:
            reply = pb.PublishStreamReply(error=error_message(error))
        self._bytes -= len(data)
        self._room.set()
        return reply.SerializeToString()

    async def _write_replies(self) -> None:
        while (reply := await self._replies.get()) is not None:
            await self._context.write(await reply)
            self._slots.release()
