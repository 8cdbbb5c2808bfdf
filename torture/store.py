"""Faults of a PostgreSQL under a broker: the server is killed, sessions are ended, waits for the standby are cancelled.

The broker lives through all of them. At the end everything that was answered must be in the log, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg

from tests.contract.postgres_server import PostgresServer
from torture.broker import Broker, BrokerGone
from torture.oracle import Oracle
from torture.workload import Clients, check, create_queue, drain

OURS = "application_name like 'penstock%' and pid <> pg_backend_pid()"
BETWEEN_S = (0.2, 0.8)
SERVING_S = 60.0
"""A broker that refuses for longer than this after a fault has not come back."""


class StoreFaults:
    def __init__(self, root: Path, seed: int):
        self._rng = random.Random(seed)
        self._root = root
        self._oracle = Oracle()
        self._primary = PostgresServer()
        self._standby: PostgresServer | None = None
        self.faults: Counter[str] = Counter()
        self._back_s: list[float] = []
        """Seconds from the moment at which the store is whole again until the broker is ready."""

    def run(self, count: int, seconds: float) -> dict[str, object]:
        deadline = time.monotonic() + seconds
        broker = None
        try:
            self._primary.start()
            self._standby = PostgresServer(copy_of=self._primary)
            self._standby.start()
            asyncio.run(self._ask("alter system set synchronous_standby_names = 'standby'", "select pg_reload_conf()"))
            broker = Broker(self._root / "data", self._root / "log", store=self._primary.url())
            assert broker.ready, (self._root / "log").read_text()[-2000:]
            with contextlib.closing(broker.connect()) as connection:
                create_queue(connection)
            clients = Clients(broker, self._oracle, 1)
            try:
                while self.faults.total() < count and time.monotonic() < deadline and not self._oracle.violations:
                    time.sleep(self._rng.uniform(*BETWEEN_S))
                    kind = self._rng.choice(("kill", "kill", "terminate", "cancel", "cancel in the wait"))
                    self.faults[kind] += self._strike(kind)
                    self._wait_until_serving(broker)
            finally:
                clients.join()
            with contextlib.closing(broker.connect()) as connection:
                check(connection, self._oracle)
                drain(connection, self._oracle)
        finally:
            if broker is not None:
                broker.kill()
            for server in (self._standby, self._primary):
                if server is not None:
                    server.close()
        back = sorted(self._back_s)
        return {
            "faults": self.faults.total(), "kinds": dict(sorted(self.faults.items())),
            "ready_again_s": {"p50": round(back[len(back) // 2], 2), "max": round(back[-1], 2)} if back else {},
            **self._oracle.counts, "violations": self._oracle.violations,
        }  # fmt: skip

    def _strike(self, kind: str) -> int:
        if kind == "kill":
            self._primary.kill()
            self._primary.start()
            return 1
        if kind == "terminate":
            return (
                len(asyncio.run(self._ask(f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}"))) > 0
            )
        if kind == "cancel":
            return len(asyncio.run(self._ask(f"select pg_cancel_backend(pid) from pg_stat_activity where {OURS}"))) > 0
        return asyncio.run(self._cancel_in_the_wait())

    async def _cancel_in_the_wait(self) -> int:
        """With the standby stopped, commits wait for it; those waits are cancelled, and it goes on."""
        assert self._standby is not None
        pids = self._standby.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(100):
                cancelled = await self._ask(
                    f"select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and {OURS}"
                )
                if cancelled:
                    return 1
                await asyncio.sleep(0.02)
            return 0
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    async def _ask(self, *statements: str) -> list[Any]:
        connection = await asyncpg.connect(self._primary.dsn)
        try:
            found: list[Any] = []
            for statement in statements:
                found = await connection.fetch(statement)
            return found
        finally:
            await connection.close()

    def _wait_until_serving(self, broker: Broker) -> None:
        began = time.monotonic()
        while time.monotonic() - began < SERVING_S:
            with contextlib.closing(broker.connect()) as connection, contextlib.suppress(BrokerGone):
                if connection.ask("GET", "/readyz")[0] == 200:
                    self._back_s.append(time.monotonic() - began)
                    return
            time.sleep(0.02)
        self._oracle.violations.append("the broker does not serve although the store is back")
