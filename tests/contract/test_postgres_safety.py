"""Settings and conditions of PostgreSQL that could lose messages are refused, each by its name."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from patience import until
from postgres_server import PostgresServer

from penstock.engines.postgres import safety
from penstock.engines.postgres.address import parse
from penstock.engines.postgres.engine import PostgresEngine
from penstock.engines.postgres.safety import Findings, check_server
from penstock.errors import InvalidRequest
from penstock.journal.port import Misconfigured, StoreUnavailable
from penstock.testing.check_engine import opened

SETTINGS = [
    ("fsync", "off"), ("full_page_writes", "off"), ("zero_damaged_pages", "on"), ("ignore_checksum_failure", "on"),
    ("synchronous_standby_names", ""),
]  # fmt: skip
"""Of the server."""

OF_SESSIONS = [
    ("synchronous_commit", "off"), ("synchronous_commit", "local"), ("synchronous_commit", "remote_write"),
    ("default_transaction_read_only", "on"), ("transaction_read_only", "on"), ("session_replication_role", "replica"),
    ("default_transaction_isolation", "serializable"), ("default_transaction_isolation", "repeatable read"),
    ("zero_damaged_pages", "on"), ("ignore_checksum_failure", "on"),
]  # fmt: skip

OF_TABLES = {
    "table {s}.frame is unlogged": "alter table {s}.frame set unlogged",
    "table {s}.blob is unlogged": "alter table {s}.blob set unlogged",
    "table {s}.shard is unlogged": "alter table {s}.shard set unlogged",
    "table {s}.meta is unlogged": "alter table {s}.meta set unlogged",
    "table {s}.frame has no valid primary key": "alter table {s}.frame drop constraint frame_pkey",
    "table {s}.shard has no valid primary key": "alter table {s}.shard drop constraint shard_pkey",
    "table {s}.frame has a rule": "create rule quiet as on insert to {s}.frame do instead nothing",
    "table {s}.frame has row level security": "alter table {s}.frame enable row level security",
    "table {s}.frame has a trigger": "create function {s}.no() returns trigger language plpgsql as 'begin return null; "
    "end'; create trigger no before insert on {s}.frame for each row execute function {s}.no()",
    "table {s}.blob is missing": "drop table {s}.blob",
    "has version 7": "update {s}.meta set version = 7",
    "is empty": "delete from {s}.meta",
}


async def with_admin(server: PostgresServer, *statements: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def refusal(url: str) -> str:
    engine = PostgresEngine(url)
    try:
        await engine.check()
    except (Misconfigured, StoreUnavailable) as error:
        return str(error)
    finally:
        await engine.close()
    return ""


@pytest.mark.parametrize(("name", "value"), OF_SESSIONS)
def test_unsafe_session_is_refused_by_name(postgres, name, value):
    async def run() -> None:
        address = parse(postgres.url())
        connection = await asyncpg.connect(address.dsn)
        try:
            await check_server(connection, address, Findings())
            if name == "transaction_read_only":
                await connection.execute("begin")
            await connection.execute(f"set {name} = '{value}'")
            with pytest.raises(Misconfigured, match=f"{name} is {value}"):
                await check_server(connection, address, Findings())
        finally:
            await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("expected", OF_TABLES)
def test_changed_tables_are_refused_by_name(postgres, expected):
    async def run() -> None:
        url = postgres.url()
        assert await refusal(url) == ""
        schema = parse(url).schema
        await with_admin(postgres, OF_TABLES[expected].format(s=schema))
        assert expected.format(s=schema) in await refusal(url)

    asyncio.run(run())


@pytest.fixture(scope="module")
def unsafe_server():
    """A server whose settings may change: other tests share none of it."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_unsafe_server_is_refused_at_open_and_noticed_later(unsafe_server, name, value):
    async def run() -> None:
        url = unsafe_server.url(**({"ha": "required"} if name == "synchronous_standby_names" else {}))
        if name == "synchronous_standby_names":
            assert f"{name} is empty" in await refusal(url)
            await with_admin(unsafe_server, f"alter system set {name} = 'nobody'", "select pg_reload_conf()")
            text = ""
            while "no standby is synchronous" not in text:
                text = await refusal(url)
            await with_admin(unsafe_server, f"alter system reset {name}", "select pg_reload_conf()")
            return
        engine = PostgresEngine(url, watch_s=0.05)
        owner = await opened(engine)
        await owner.append([b"safe"])
        await with_admin(unsafe_server, f"alter system set {name} = {value}", "select pg_reload_conf()")
        await until(lambda: engine.missing() is not None)
        assert f"{name} is {value}" in (engine.missing() or "")
        with pytest.raises(StoreUnavailable, match=f"{name} is {value}"):
            await owner.append([b"unsafe"])
        assert f"{name} is {value}" in await refusal(url)
        await with_admin(unsafe_server, f"alter system reset {name}", "select pg_reload_conf()")
        await until(lambda: engine.missing() is None)
        await owner.journal.close()
        await engine.close()

    asyncio.run(run())


def test_an_old_server_and_a_pooler_are_refused(postgres, monkeypatch):
    async def run() -> None:
        address = parse(postgres.url())
        monkeypatch.setattr(safety, "VERSION_MIN", 990_000)
        assert "PostgreSQL 99 or newer is needed" in await refusal(postgres.url())
        monkeypatch.undo()
        connections = [await asyncpg.connect(address.dsn) for _ in range(2)]

        class Pooler:
            """Gives each statement another backend, as a pooler in transaction mode may."""

            async def fetchrow(self, *arguments):
                return await connections[0].fetchrow(*arguments)

            async def fetchval(self, *arguments):
                return await connections[1].fetchval(*arguments)

        with pytest.raises(Misconfigured, match="transaction pooler"):
            await check_server(Pooler(), address, Findings())
        other = Findings()
        other.system = 1
        with pytest.raises(Misconfigured, match="another database cluster"):
            await check_server(connections[0], address, other)
        for connection in connections:
            await connection.close()

    asyncio.run(run())


def test_a_standby_is_refused(unsafe_server):
    async def run() -> None:
        standby = PostgresServer(copy_of=unsafe_server)
        try:
            standby.start()
            assert "no host accepts writes" in await refusal(standby.url())
        finally:
            standby.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("statement", "change", "expected"),
    [
        ("", ("postgres@", "nobody_known@"), "nobody_known"),
        ("", ("/postgres?", "/no_such_database?"), "no_such_database"),
        ("create role poor login", ("postgres@", "poor@"), "role poor may not use or create schema"),
    ],
)
def test_wrong_access_is_one_sentence(postgres, statement, change, expected):
    async def run() -> None:
        if statement:
            await with_admin(postgres, statement)
        text = await refusal(postgres.url().replace(*change))
        assert expected in text and "\n" not in text

    asyncio.run(run())


@pytest.mark.parametrize(
    "url", ["postgres://h/d?schema=Bad-Name", "postgres://h/d?ha=maybe", "postgres://h/d?schema", "postgres://[h/d"]
)
def test_a_wrong_url_is_refused(url):
    with pytest.raises(InvalidRequest, match="store"):
        PostgresEngine(url)
