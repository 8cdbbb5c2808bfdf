"""Penstock over gRPC streams: frames in, frames out, one asyncio client with one channel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import package_versions
from benchmarks.peers.penstock_server import PenstockServer
from benchmarks.peers.port import NotInstalled, Peer
from penstock.batch import Batch, build, layout
from penstock.wire.protobuf import bytes_field

try:
    import grpc

    from penstock.v1 import broker_pb2 as pb
except ImportError as _error:
    _missing: ImportError | None = _error
else:
    _missing = None

_PIPELINED = 8
"""Batches in flight before the first one is answered."""
_SERVICE = "/penstock.v1.Broker"


class PenstockGrpc(Peer):
    promise = "on disk"
    server: PenstockServer
    name = "penstock-grpc"

    async def start(self, directory: Path) -> None:
        if _missing:
            raise NotInstalled(f"not installed: {_missing.name}")
        self.server = PenstockServer(directory)
        self._closing.callback(self.server.stop)
        self._channel: Any = grpc.aio.insecure_channel(self.server.grpc)
        self._closing.push_async_callback(self._channel.close)
        # Replies are parsed here and not by the generated stub, and requests with frames are built here: one copy less.
        self._publishing = self._channel.stream_stream(
            f"{_SERVICE}/PublishStream", response_deserializer=pb.PublishStreamReply.FromString
        )()
        self._leasing = self._channel.stream_stream(
            f"{_SERVICE}/LeaseStream",
            request_serializer=pb.LeaseStreamRequest.SerializeToString,
            response_deserializer=pb.LeaseStreamReply.FromString,
        )

    def versions(self) -> dict[str, str]:
        return package_versions("penstock", "grpcio", "protobuf")

    async def create(self, queue: str) -> None:
        self.server.create_queue(queue)

    async def drop(self, queue: str) -> None:
        self.server.delete_queue(queue)

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        await self.publish_pipelined(queue, payloads, 1)

    async def publish_pipelined(self, queue: str, payloads: Sequence[bytes], batches: int) -> None:
        """Publish the same batch `count` times, with up to `_PIPELINED` in flight. Returns when all are confirmed."""
        frames = asyncio.Semaphore(_PIPELINED)

        async def confirm() -> None:
            for _ in range(batches):
                reply = await self._publishing.read()
                assert reply.published.durable, reply
                frames.release()

        confirming = asyncio.ensure_future(confirm())
        for _ in range(batches):
            await frames.acquire()
            await self._publishing.write(_publish_request(queue, build(payloads, kind=layout.KIND_BYTES)))
        await confirming

    async def drain(self, queue: str, batch: int, count: int) -> None:
        stream = self._leasing()
        opening = pb.LeaseStreamOpen(queue=queue, form=pb.FRAMES, max=batch)
        await stream.write(pb.LeaseStreamRequest(open=opening, credits=4 * batch))
        taken = settled = 0
        while settled < count:
            reply = await stream.read()
            receipts, fresh = [], 0
            for run in reply.runs:
                fresh += len(Batch.open(run.batch).payloads())
                receipts.append(f"{run.receipt}{run.offset}-{run.offset + run.count - 1}")
            taken += fresh
            for request in reply.settled:
                assert not request.HasField("error"), request
                settled += request.number
            if receipts:
                # The results carry the number of the request: here it is the count of messages that the request acks.
                more = fresh if taken < count else 0
                await stream.write(
                    pb.LeaseStreamRequest(ack=pb.AckRequest(receipts=receipts), number=fresh, credits=more)
                )
        await stream.done_writing()


def _publish_request(queue: str, frame: bytes) -> bytes:
    """A PublishStreamRequest. The protobuf library would copy a large frame several times."""
    head = pb.PublishRequest(queue=queue).SerializeToString()
    tag, data = bytes_field(pb.PublishRequest.BATCH_FIELD_NUMBER, frame)
    inner = b"".join((head, tag, data))
    return b"".join(bytes_field(pb.PublishStreamRequest.PUBLISH_FIELD_NUMBER, inner))
