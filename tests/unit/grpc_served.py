"""A gRPC server on a free port with an in-memory broker, and a client for it."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import grpc
from at_once import at_once
from google.rpc import status_pb2
from patience import until

from penstock.clock import SystemClock
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.grpc import GrpcServer
from penstock.transports.http import HttpApp
from penstock.transports.metrics import Metrics
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc

WITHIN_S = 20


class Served:
    """Use `served`."""

    def __init__(self, box: InProcess, server: GrpcServer, metrics: Metrics, channel: grpc.aio.Channel):
        self.box = box
        self.broker = box.broker
        self.server = server
        self.metrics = metrics
        self.channel = channel
        self.stub = broker_pb2_grpc.BrokerStub(channel)
        self.target = f"127.0.0.1:{server.port}"

    async def publish(self, queue: str, *payloads: bytes, **fields: Any) -> pb.PublishReply:
        messages = [pb.NewMessage(payload=payload, **fields) for payload in payloads]
        return await self.stub.Publish(pb.PublishRequest(queue=queue, messages=messages))

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)

    def ready(self, queue: str) -> int:
        """Messages that the group `default` can lease now."""
        return at_once(self.broker.stats.queue(f"default/default/{queue}"))["ready"]

    def leased(self, queue: str) -> int:
        return at_once(self.broker.stats.queue(f"default/default/{queue}"))["leased"]


@asynccontextmanager
async def served(
    prepare: Callable[[InProcess, HttpApp], object] = lambda *_: None, **options: Any
) -> AsyncIterator[Served]:
    """`prepare` is called before the server starts."""
    async with asyncio.timeout(WITHIN_S * 3), in_process(clock=SystemClock(), **options) as box:
        server, app = GrpcServer("127.0.0.1:0"), HttpApp(box.broker, box.clock)
        prepare(box, app)
        await server.start(app)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                yield Served(box, server, app.metrics, channel)
        finally:
            await server.drain()
            await server.stop(0)


@cache
def _runner() -> asyncio.Runner:
    """Run on one shared event loop, because `grpc.aio` supports one loop per process."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def run(story: Callable[[Served], Any], **options: Any) -> Any:
    async def whole() -> Any:
        async with served(**options) as here:
            return await story(here)

    return run_once(whole())


def run_once(story: Coroutine[Any, Any, Any]) -> Any:
    return _runner().run(story)


class Refused:
    """The status and error of a refused call."""

    def __init__(self, error: grpc.aio.AioRpcError):
        self.status = error.code().name
        self.text = error.details()
        metadata = dict(error.trailing_metadata() or ())
        self.code = metadata.get("penstock-code")
        self.error = pb.Error()
        self.details: dict[str, Any] = {}
        self.kinds: list[str] = []
        if "grpc-status-details-bin" in metadata:
            rich = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
            assert (rich.code, rich.message) == (error.code().value[0], self.text)
            self.kinds = [each.type_url.rpartition(".")[2] for each in rich.details]
            for each in rich.details:
                each.Unpack(self.error)
            assert (self.error.code, self.error.message) == (self.code, self.text)
            self.details = dict(self.error.details)


async def refusal(call: Any) -> Refused:
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return Refused(error)
    raise AssertionError(f"not refused: {answer}")
