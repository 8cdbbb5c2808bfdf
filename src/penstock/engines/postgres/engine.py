"""Journals and blobs in PostgreSQL: the store of nodes that share it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from penstock.engines.postgres import schema
from penstock.engines.postgres.address import connect, parse
from penstock.engines.postgres.journal import PostgresJournal
from penstock.engines.postgres.safety import Findings, check_server, check_tables
from penstock.engines.postgres.session import Connection, Session, Sessions
from penstock.journal.port import EngineError, Misconfigured, StoreUnavailable

SESSIONS_MAX = 4
"""Besides one for each shard that is owned."""
WATCH_S = 30.0
"""Seconds between two looks at the settings of the server."""


class PostgresEngine:
    def __init__(self, url: str, *, watch_s: float = WATCH_S):
        self.address = parse(url)
        self.name = f"penstock {secrets.token_hex(8)}"
        """The application name of its sessions, but for those that append."""
        self.sessions = Sessions(lambda: self.new_session(self.name), SESSIONS_MAX)
        self._watch_s = watch_s
        self._watching: asyncio.Task[None] | None = None
        self._findings = Findings()
        self._unsafe: str | None = None
        self._id: bytes | None = None
        self._checking = asyncio.Lock()

    @property
    def replicated(self) -> bool:
        return self._findings.replicated

    def node_id(self, fresh: bytes) -> bytes:  # noqa: ARG002  the store has an id of its own
        assert self._id is not None, "the store has to be checked first"
        return self._id

    def shard_count(self, fresh: int) -> int:  # noqa: ARG002  the tables keep no other number yet
        return 1

    def missing(self) -> str | None:
        return self._unsafe

    async def check(self) -> None:
        async with self._checking:
            if self._id is not None:
                return
            connection = await connect(self.address, self.name)
            try:
                await check_server(connection, self.address, self._findings)
                self._id = await schema.prepare(connection, self.address)
                await check_tables(connection, self.address)
            finally:
                connection.terminate()
            self._watching = asyncio.ensure_future(self._watch())

    def new_session(self, name: str) -> Session:
        return Session(self.address, name, self._check_connection)

    async def _check_connection(self, connection: Connection) -> None:
        try:
            await check_server(connection, self.address, self._findings)
        except Misconfigured as error:
            # A setting can be corrected while the broker runs.
            self._unsafe = str(error)
            raise StoreUnavailable(str(error)) from error

    async def _watch(self) -> None:
        """Look again now and then: settings change while the server runs, and a failover brings those of another."""
        while True:
            await asyncio.sleep(self._watch_s)
            with contextlib.suppress(EngineError):
                self._unsafe = await self.sessions.run(self._look)

    async def _look(self, connection: Connection) -> str | None:
        try:
            await check_server(connection, self.address, self._findings)
            await check_tables(connection, self.address)
        except Misconfigured as error:
            return str(error)
        return None

    async def acquire(self, shard: int, owner: bytes) -> PostgresJournal:
        await self.check()
        journal = PostgresJournal(self, shard, owner)
        try:
            await journal.open()
        except BaseException:
            await journal.close()
            raise
        return journal

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.sessions.close()
