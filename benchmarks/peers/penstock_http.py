"""Penstock over JSON and HTTP on one keep-alive connection, with a client of thirty lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.machine import package_versions
from benchmarks.peers.http_client import HttpConnection
from benchmarks.peers.penstock_server import PenstockServer
from benchmarks.peers.port import Peer


class _Leased(msgspec.Struct):
    receipt: str
    payload: msgspec.Raw


class _LeaseAnswer(msgspec.Struct):
    messages: list[_Leased]


class _Result(msgspec.Struct):
    id: str


class _PublishAnswer(msgspec.Struct):
    messages: list[_Result]


_encode = msgspec.json.Encoder().encode
_decode_lease = msgspec.json.Decoder(_LeaseAnswer).decode
_decode_published = msgspec.json.Decoder(_PublishAnswer).decode
_LISTEN_MAX = 500


class PenstockHttp(Peer):
    """`ack_in_lease`: each lease call has the receipts of the batch before it, so a batch is one round trip."""

    promise = "on disk"
    server: PenstockServer

    def __init__(self, ack_in_lease: bool, *flags: str):
        super().__init__()
        self._flags = flags
        self.name = "penstock-http-ack-in-lease" if ack_in_lease else "penstock-http"
        self._ack_in_lease = ack_in_lease

    async def start(self, directory: Path) -> None:
        self._directory = directory
        self.server = PenstockServer(directory, *self._flags)
        self._closing.callback(self.server.stop)
        self._connection = HttpConnection(self.server.url)
        self._closing.callback(self._connection.close)

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
        messages = [{"payload": msgspec.Raw(content)} for content in payloads]
        self._connection.post(b"/v1/publish", _encode({"queue": queue, "messages": messages}))

    async def publish_one(self, queue: str, content: bytes) -> None:
        await self.publish(queue, [content])

    async def publish_at(self, queue: str, payloads: Sequence[bytes], deliver_at_ms: Sequence[int]) -> list[str]:
        """Like `publish`, each message with its own due time and key (`k<due>`); returns their ids."""
        pairs = zip(payloads, deliver_at_ms, strict=True)
        messages = [{"payload": msgspec.Raw(content), "deliver_at_ms": due, "key": f"k{due}"} for content, due in pairs]
        answer = self._connection.post(b"/v1/publish", _encode({"queue": queue, "messages": messages}))
        return [result.id for result in _decode_published(answer).messages]

    async def cancel(self, queue: str, *, ids: Sequence[str] | None = None, key: str | None = None) -> int:
        """The number of cancelled messages."""
        which = {"ids": ids} if ids is not None else {"key": key}
        answer = self._connection.post(b"/v1/cancel", _encode({"queue": queue, **which}))
        return int(msgspec.json.decode(answer)["cancelled"])

    async def drain(self, queue: str, batch: int, count: int) -> None:
        self._consume(self._connection, queue, batch, count)

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        def wait_and_take() -> None:
            connection = HttpConnection(self.server.url)
            self._consume(connection, queue, _LISTEN_MAX, count, arrived)
            connection.close()

        await asyncio.to_thread(wait_and_take)

    def _consume(
        self,
        connection: HttpConnection,
        queue: str,
        batch: int,
        count: int,
        arrived: Callable[[bytes], None] | None = None,
    ) -> None:
        taken = 0
        receipts: list[str] = []
        while taken < count:
            lease: dict[str, object] = {"queue": queue, "max": batch, "wait_ms": 10_000}
            if self._ack_in_lease and receipts:
                lease["ack"] = receipts
            leased = _decode_lease(connection.post(b"/v1/lease", _encode(lease))).messages
            contents = [bytes(message.payload) for message in leased]
            if arrived:
                for content in contents:
                    arrived(content)
            receipts = [message.receipt for message in leased]
            taken += len(contents)
            if receipts and not (self._ack_in_lease and taken < count):
                connection.post(b"/v1/ack", _encode({"receipts": receipts}))
