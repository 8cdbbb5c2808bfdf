"""Journals and blobs in PostgreSQL: the store of nodes that share it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from functools import partial

import asyncpg

from penstock.engines.postgres import schema
from penstock.engines.postgres.address import connect, parse
from penstock.engines.postgres.journal import PostgresJournal
from penstock.engines.postgres.safety import Findings, check_server, check_tables
from penstock.engines.postgres.session import LOST, Connection, Session, Sessions, bounded
from penstock.journal.port import EngineError, Misconfigured, StoreUnavailable

SESSIONS_MAX = 4
"""Besides one for each shard that is owned."""
WATCH_S = 30.0
"""Seconds between two looks at the settings of the server, and at the terms of the shards."""
PREPARE_S = 60.0
"""The tables are created, and the server is checked for the first time, within this time."""


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
        self.journals: set[PostgresJournal] = set()
        """Those that are open."""

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
                self._id = await bounded(connection, self._prepare(connection), PREPARE_S)
            except (*LOST, asyncpg.PostgresError) as error:
                text = f"{self.address.shown}: the store cannot be prepared: {error or 'no answer'}"
                raise StoreUnavailable(text) from error
            finally:
                connection.terminate()
            self._watching = asyncio.ensure_future(self._watch())

    async def _prepare(self, connection: Connection) -> bytes:
        await check_server(connection, self.address, self._findings)
        node_id = await schema.prepare(connection, self.address)
        await check_tables(connection, self.address)
        return node_id

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
                await self._compare_terms()

    async def _compare_terms(self) -> None:
        """An owner that does not write would not notice that its term has ended."""
        held = {journal: journal.term for journal in self.journals}
        terms = await self.sessions.run(partial(schema.terms_of, self.address))
        for journal, term in held.items():
            # A journal that begins a term itself has the next one.
            if terms.get(journal.shard, 0) > term == journal.term and not journal.resolving:
                journal.on_fenced(f"term {term} of shard {journal.shard} has ended: another owner took it over")

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
        self.journals.add(journal)
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
