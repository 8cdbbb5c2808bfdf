"""The tables of a store, their version and their creation. Format: docs/formats/postgres.md."""

from __future__ import annotations

import secrets
import time
from typing import Any

import asyncpg

from penstock.engines.postgres.address import Address
from penstock.journal.port import Misconfigured

VERSION = 1
TABLES = ("meta", "shard", "frame", "blob")
PART_BYTES = 256 * 1024

_CREATE = """
create table {schema}.meta (
    singleton boolean primary key default true check (singleton),
    version integer not null,
    id bytea not null
);
create table {schema}.shard (
    shard integer primary key,
    term bigint not null,
    owner bytea not null,
    claim bytea not null,
    session text not null,
    engine text not null,
    snapshot text collate "C",
    snapshot_index bigint
);
create table {schema}.frame (
    shard integer,
    idx bigint,
    term bigint not null,
    body bytea not null,
    primary key (shard, idx)
);
create table {schema}.blob (
    shard integer,
    name text collate "C",
    part integer,
    data bytea not null,
    primary key (shard, name, part)
);
alter table {schema}.frame alter body set storage external;
alter table {schema}.blob alter data set storage external;
"""


async def terms_of(address: Address, connection: asyncpg.Connection[Any]) -> dict[int, int]:
    """Shard -> term."""
    rows = await connection.fetch(f"select shard, term from {address.schema}.shard")  # noqa: S608  # nosec B608
    return {row["shard"]: row["term"] for row in rows}


async def prepare(connection: asyncpg.Connection[Any], address: Address) -> bytes:
    """Create the tables if there are none; returns the id of the store. Raises Misconfigured."""
    schema = address.schema
    try:
        async with connection.transaction():
            # Nodes that start at the same time create it once.
            await connection.execute("select pg_advisory_xact_lock(hashtext('penstock:' || $1))", schema)
            if await connection.fetchval("select to_regclass($1 || '.meta')", schema) is None:
                await _create(connection, schema)
            row = await connection.fetchrow(f"select version, id from {schema}.meta")  # noqa: S608  # nosec B608
    except asyncpg.InsufficientPrivilegeError as error:
        user = await connection.fetchval("select current_user")
        raise Misconfigured(
            f"{address.shown}: role {user} may not use or create schema {schema} ({error}); run `penstock store init` "
            f"as a role that may, and grant all on schema {schema} and its tables to {user}"
        ) from error
    if row is None:
        raise Misconfigured(f"{address.shown}: table {schema}.meta is empty: this is not a store of Penstock")
    if row["version"] != VERSION:
        raise Misconfigured(
            f"{address.shown}: schema {schema} has version {row['version']}, and this version of Penstock knows "
            f"{VERSION}: use the version of Penstock that wrote it, or a newer one"
        )
    return bytes(row["id"])


async def _create(connection: asyncpg.Connection[Any], schema: str) -> None:
    if not await connection.fetchval("select exists (select from pg_namespace where nspname = $1)", schema):
        await connection.execute(f"create schema {schema}")
    await connection.execute(_CREATE.format(schema=schema))
    fresh = (int(time.time() * 1000) << 80 | secrets.randbits(80)).to_bytes(16, "big")
    await connection.execute(f"insert into {schema}.meta (version, id) values ($1, $2)", VERSION, fresh)  # noqa: S608  # nosec B608
