"""PublishStream: requests are begun in the order in which they come, and answered in it, each when it is durable.

While one is being synced the next ones are decided, so that a single client fills the group commit by itself. What came
in whole is published even if the client is gone by then: it may have been, for all that the client knows.
"""

from __future__ import annotations

import asyncio

import grpc

from penstock import limits
from penstock.errors import PenstockError, Unavailable
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.edge import Edge
from penstock.transports.grpc.publish import publish
from penstock.transports.grpc.refusal import error_message
from penstock.transports.grpc.shapes import check_known, parse
from penstock.v1 import broker_pb2 as pb


async def publish_stream(edge: Edge, context: Context) -> None:
    await PublishStream(edge, context).run()


class PublishStream:
    """One stream."""

    def __init__(self, edge: Edge, context: Context):
        self._edge = edge
        self._context = context
        self._replies: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        """In the order of the requests; None at the end."""
        self._slots = asyncio.Semaphore(limits.STREAM_REQUESTS_MAX)
        self._bytes = 0
        """Of requests that are not answered yet."""
        self._room = asyncio.Event()

    async def run(self) -> None:
        reading = asyncio.ensure_future(self._read_requests())
        writing = asyncio.ensure_future(self._write_replies())
        stopping = asyncio.ensure_future(self._edge.draining.wait())
        try:
            await asyncio.wait((reading, writing, stopping), return_when=asyncio.FIRST_COMPLETED)
            # When the server stops, what came in is still answered. What did not is the client's to send elsewhere.
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
            request = parse(pb.PublishStreamRequest, data).publish
            check_known(request)
            reply = pb.PublishStreamReply(published=await publish(self._edge, request, self._context))
        except PenstockError as error:
            reply = pb.PublishStreamReply(error=error_message(error))
        self._bytes -= len(data)
        self._room.set()
        return reply.SerializeToString()

    async def _write_replies(self) -> None:
        while (reply := await self._replies.get()) is not None:
            await self._context.write(await reply)
            self._slots.release()
