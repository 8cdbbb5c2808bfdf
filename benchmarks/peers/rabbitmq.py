"""RabbitMQ with quorum queues, which confirm a publish after their write-ahead log is synced.

Publishes wait for their confirms by the batch, deliveries come by prefetch. Acks are `multiple` acks, as its users
send them for batches: nothing comes back. Only where server and client are installed (Debian: `rabbitmq-server`;
PyPI: `aio-pika`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import package_versions
from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.process import ServerProcess, free_port

try:
    import aio_pika
except ImportError as _error:
    _missing: ImportError | None = _error
else:
    _missing = None

_DEBIAN_SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The program behind Debian's command, which would change the user and lose the process id."""


class RabbitMq(Peer):
    name = "rabbitmq"
    promise = "on disk; acks unconfirmed"

    async def start(self, directory: Path) -> None:
        script = shutil.which(_DEBIAN_SCRIPT) or shutil.which("rabbitmq-server")
        port_mapper = shutil.which("epmd")
        if not script or not port_mapper:
            raise NotInstalled("not installed: rabbitmq-server")
        if _missing:
            raise NotInstalled(f"not installed: {_missing.name}")
        port, mapper_port = free_port(), free_port()
        # Erlang would leave a port mapper daemon running; this one is stopped at the end.
        mapper = ServerProcess([port_mapper, "-address", "127.0.0.1", "-port", str(mapper_port)], directory)
        self._closing.callback(mapper.stop)
        mapper.wait_for_port(mapper_port)
        self.server = ServerProcess(
            [script], directory,
            env={
                **os.environ,
                "HOME": str(directory),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "ERL_EPMD_PORT": str(mapper_port),
                "RABBITMQ_NODENAME": f"benchmarks-{port}@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
                "RABBITMQ_LOG_BASE": str(directory / "log"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
                "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
                "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            },
        )  # fmt: skip
        self._closing.callback(self.server.stop)
        self.server.wait_for_port(port)
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        self._closing.push_async_callback(connection.close)
        self._channel = await connection.channel(publisher_confirms=True)
        self._version = str(connection.transport.connection.server_properties["version"])
        self._queues: dict[str, aio_pika.abc.AbstractQueue] = {}

    def versions(self) -> dict[str, str]:
        return {"rabbitmq": self._version, **package_versions("aio-pika")}

    async def create(self, queue: str) -> None:
        quorum = {"x-queue-type": "quorum"}
        self._queues[queue] = await self._channel.declare_queue(queue, durable=True, arguments=quorum)

    async def drop(self, queue: str) -> None:
        await self._queues.pop(queue).delete(if_unused=False, if_empty=False)

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        await asyncio.gather(*(self.publish_one(queue, content) for content in payloads))

    async def publish_one(self, queue: str, content: bytes) -> None:
        message = aio_pika.Message(content, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, routing_key=queue)

    async def drain(self, queue: str, batch: int, count: int) -> None:
        await self._consume(queue, batch, count, len)

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        await self._consume(queue, 1, count, arrived)

    async def _consume(self, queue: str, batch: int, count: int, arrived: Callable[[bytes], object]) -> None:
        """One ack for every `batch` messages; two batches may be in flight, so that the server does not wait."""
        await self._channel.set_qos(prefetch_count=2 * batch)
        done = asyncio.Event()
        taken = 0

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal taken
            arrived(message.body)
            taken += 1
            if taken % batch == 0 or taken == count:
                await message.ack(multiple=True)
            if taken == count:
                done.set()

        tag = await self._queues[queue].consume(take)
        await done.wait()
        await self._queues[queue].cancel(tag)
