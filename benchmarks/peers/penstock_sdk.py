"""Penstock through its SDK: binary batches, joined publishes of concurrent callers, acks in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import penstock
from benchmarks.machine import package_versions
from benchmarks.peers.penstock_server import PenstockServer
from benchmarks.peers.port import Peer


class PenstockSdk(Peer):
    """`batches`: the consumer takes batches (`consume_batches`) instead of messages (`consume`).

    `grpc`: the same client at the server's gRPC address.
    """

    promise = "on disk"
    server: PenstockServer

    def __init__(self, batches: bool, *, grpc: bool = False):
        super().__init__()
        self.name = "penstock-sdk" + "-batches" * batches + "-grpc" * grpc
        self._batches = batches
        self._grpc = grpc

    async def start(self, directory: Path) -> None:
        self._directory = directory
        self.server = PenstockServer(directory)
        self._closing.callback(self.server.stop)
        url = f"grpc://{self.server.grpc}" if self._grpc else self.server.url
        self._client = await self._closing.enter_async_context(penstock.Client(url))

    async def restart(self, *, kill: bool) -> tuple[float, float]:
        """Seconds until the old process ended, and from then until the new one was ready with the same data."""
        began = time.perf_counter()
        if kill:
            self.server.kill()
        await self.stop()
        gone = time.perf_counter()
        await self.start(self._directory)
        return gone - began, time.perf_counter() - gone

    def versions(self) -> dict[str, str]:
        return package_versions("penstock")

    async def create(self, queue: str) -> None:
        self.server.create_queue(queue)

    async def drop(self, queue: str) -> None:
        self.server.delete_queue(queue)

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        await self._client.queue(queue).publish_many(payloads)

    async def publish_one(self, queue: str, content: bytes) -> None:
        await self._client.queue(queue).publish(content)

    async def drain(self, queue: str, batch: int, count: int) -> None:
        taken = 0
        if self._batches:
            async with self._client.queue(queue).consume_batches(max=batch) as batches:
                async for leased in batches:
                    async with leased:
                        taken += len(leased.payloads())
                    if taken >= count:
                        return
        else:
            # Leaving the consumer waits for the last acks: they are durable then.
            async with self._client.queue(queue).consume(prefetch=2 * batch) as messages:
                async for message in messages:
                    async with message:
                        taken += bool(message.payload)
                    if taken == count:
                        return

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        taken = 0
        async with self._client.queue(queue).consume() as messages:
            async for message in messages:
                async with message:
                    arrived(message.payload)
                taken += 1
                if taken == count:
                    return
