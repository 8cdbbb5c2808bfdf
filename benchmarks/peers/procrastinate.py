"""Procrastinate on a PostgreSQL that is running: jobs are deferred in batches and finished by its worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import package_versions
from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.process import ServerProcess

try:
    import procrastinate
except ImportError as _error:
    _missing: ImportError | None = _error
else:
    _missing = None

CONCURRENCY = 20
"""Jobs of its worker at a time: more are not faster."""


class Procrastinate(Peer):
    name = "procrastinate"
    promise = "on disk"

    def __init__(self, dsn: str, server: ServerProcess):
        super().__init__()
        self._dsn = dsn
        self.server = server

    async def start(self, directory: Path) -> None:  # noqa: ARG002  the server is running
        if _missing:
            raise NotInstalled(f"not installed: {_missing.name}")
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=self._dsn, max_size=CONCURRENCY)
        )
        await self._closing.enter_async_context(self._app.open_async())
        await self._app.schema_manager.apply_schema_async()

        @self._app.task(name="bench")
        async def bench(content: str) -> None:
            len(content)

        self._task = bench

    def versions(self) -> dict[str, str]:
        return package_versions("procrastinate")

    async def create(self, queue: str) -> None: ...

    async def drop(self, queue: str) -> None:
        await self._app.connector.execute_query_async(
            "delete from procrastinate_jobs where queue_name = %(queue)s", queue=queue
        )

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        await self._task.configure(queue=queue).batch_defer_async(*[{"content": each.decode()} for each in payloads])

    async def drain(self, queue: str, batch: int, count: int) -> None:  # noqa: ARG002  it takes what there is
        await self._app.run_worker_async(
            queues=[queue], wait=False, concurrency=CONCURRENCY, install_signal_handlers=False, listen_notify=False,
            delete_jobs="always",
        )  # fmt: skip
