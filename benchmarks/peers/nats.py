"""NATS JetStream: a file stream with work-queue retention, publishes with many acknowledgements outstanding, pulls.

Acks are plain acks, as its users send them: they have no reply, so a drain is confirmed by a flush of the connection.
This is less than the guarantee of the other peers, and in JetStream's favour.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import package_versions
from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.process import ServerProcess, free_port

try:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy
except ImportError as _error:
    _missing: ImportError | None = _error
else:
    _missing = None

_DURABLE = "workers"


class Nats(Peer):
    def __init__(self, sync_always: bool):
        super().__init__()
        self.name = "nats-always" if sync_always else "nats"
        self.promise = "on disk; acks unconfirmed" if sync_always else "on disk within 2 min; acks unconfirmed"
        self._sync_always = sync_always

    async def start(self, directory: Path) -> None:
        # The package installs its binary beside the interpreter, which may not be on the PATH.
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        if _missing or not binary:
            raise NotInstalled(f"not installed: {_missing.name if _missing else 'nats-server'}")
        port = free_port()
        config = directory / "nats.conf"
        sync = "sync_interval: always" if self._sync_always else ""
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "{directory / "store"}"\n  {sync}\n}}\n'
        )
        self.server = ServerProcess([binary, "-c", str(config)], directory)
        self._closing.callback(self.server.stop)
        self.server.wait_for_line("Server is ready")
        self._connection = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
        self._closing.push_async_callback(self._connection.close)
        self._stream = self._connection.jetstream(timeout=30)

    def versions(self) -> dict[str, str]:
        return {"nats-server": self._connection._server_info["version"], **package_versions("nats-py")}

    async def create(self, queue: str) -> None:
        await self._stream.add_stream(name=queue, subjects=[queue], retention=RetentionPolicy.WORK_QUEUE)

    async def drop(self, queue: str) -> None:
        await self._stream.delete_stream(queue)

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        await asyncio.gather(*[await self._stream.publish_async(queue, content) for content in payloads])

    async def publish_one(self, queue: str, content: bytes) -> None:
        await self._stream.publish(queue, content)

    async def drain(self, queue: str, batch: int, count: int) -> None:
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10 * batch)
        pulling = await self._stream.pull_subscribe(queue, durable=_DURABLE, config=config)
        taken = 0
        while taken < count:
            messages = await pulling.fetch(batch, timeout=10)
            taken += len([message.data for message in messages])
            for message in messages:
                await message.ack()
        await self._connection.flush()
        await pulling.unsubscribe()

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        pushed = await self._stream.subscribe(queue, durable=_DURABLE, manual_ack=True)
        for _ in range(count):
            message = await pushed.next_msg(timeout=10)
            arrived(message.data)
            await message.ack()
        await pushed.unsubscribe()
