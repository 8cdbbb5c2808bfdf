"""Settings and conditions of a server under which an acknowledged message could be lost. Each is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg

from penstock.engines.postgres.address import Address
from penstock.engines.postgres.schema import TABLES
from penstock.journal.port import Misconfigured

VERSION_MIN = 140_000
_SAFE = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply"),
    "default_transaction_read_only": ("off",),
    "transaction_read_only": ("off",),
    "zero_damaged_pages": ("off",),
    "ignore_checksum_failure": ("off",),
    "ignore_invalid_pages": ("off",),
    "session_replication_role": ("origin",),
    "default_transaction_isolation": ("read committed",),
    "ignore_system_indexes": ("off",),
}
_SETTINGS = """
select current_setting('server_version_num')::int as version, pg_is_in_recovery() as in_recovery,
    pg_backend_pid() as pid, current_setting('synchronous_standby_names') as standby_names,
    (select system_identifier from pg_control_system()) as system,
    array(select name || '=' || setting from pg_settings where name = any($1)) as settings
"""
_STANDBYS = """
select count(*) filter (where sync_state in ('sync', 'quorum')) as synchronous, current_user::text as role,
    pg_has_role('pg_read_all_stats', 'usage') as may_see
from pg_stat_replication
"""
_RELATIONS = """
select c.relname as name, c.relpersistence::text as persistence, c.relhasrules as rules, c.relrowsecurity as secured,
    exists (select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal) as triggers,
    exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indisvalid) as keyed,
    c.relkind::text as kind,
    has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
        and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete') as allowed
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any($2)
"""


class Findings:
    """The last look at the server."""

    def __init__(self) -> None:
        self.system: int | None = None
        """The identity of the database cluster that was found first."""
        self.replicated = False


async def check_server(connection: asyncpg.Connection[Any], address: Address, found: Findings) -> None:
    """Raise Misconfigured with the first unsafe setting or condition."""
    row = await connection.fetchrow(_SETTINGS, list(_SAFE))
    assert row is not None
    for problem in _problems(row):
        raise Misconfigured(f"{address.shown}: {problem}")
    if row["pid"] != await connection.fetchval("select pg_backend_pid()"):
        raise Misconfigured(
            f"{address.shown}: statements of one connection reach different backends: a transaction pooler; connect to "
            "PostgreSQL itself, or to a pooler in session mode"
        )
    if found.system is not None and found.system != row["system"]:
        raise Misconfigured(
            f"{address.shown}: this is another database cluster ({row['system']} instead of {found.system})"
        )
    found.system = row["system"]
    standbys = await connection.fetchrow(_STANDBYS)
    assert standbys is not None
    found.replicated = bool(row["standby_names"]) and standbys["synchronous"] > 0
    if address.needs_standby and not standbys["may_see"]:
        raise Misconfigured(
            f"{address.shown}: role {standbys['role']} may not see whether a standby is synchronous, and ha=required: "
            f"grant pg_read_all_stats to {standbys['role']}"
        )
    if address.needs_standby and not row["standby_names"]:
        raise Misconfigured(f"{address.shown}: synchronous_standby_names is empty, and ha=required")
    if address.needs_standby and not standbys["synchronous"]:
        raise Misconfigured(f"{address.shown}: no standby is synchronous (pg_stat_replication), and ha=required")


def _problems(row: Any) -> Iterator[str]:
    if row["version"] < VERSION_MIN:
        yield f"server_version is {row['version'] // 10_000}; PostgreSQL {VERSION_MIN // 10_000} or newer is needed"
    if row["in_recovery"]:
        yield "the server is in recovery: a standby cannot store messages"
    for setting in sorted(row["settings"]):
        name, _, value = setting.partition("=")
        if value not in _SAFE[name]:
            yield f"{name} is {value}, and must be {' or '.join(_SAFE[name])}"


async def check_tables(connection: asyncpg.Connection[Any], address: Address) -> None:
    """Raise Misconfigured if a table is not the one that was created."""
    rows = {row["name"]: row for row in await connection.fetch(_RELATIONS, address.schema, list(TABLES))}
    for table in TABLES:
        name = f"{address.schema}.{table}"
        row = rows.get(table)
        problem = f"table {name} is missing" if row is None else _table_problem(name, row)
        if problem is not None:
            raise Misconfigured(f"{address.shown}: {problem}")


def _table_problem(name: str, row: Any) -> str | None:
    problems = (
        (row["kind"] != "r", f"{name} is not an ordinary table"),
        (row["persistence"] != "p", f"table {name} is unlogged or temporary: a crash would empty it"),
        (not row["keyed"], f"table {name} has no valid primary key: owners could not be fenced"),
        (row["triggers"], f"table {name} has a trigger"),
        (row["rules"], f"table {name} has a rule"),
        (row["secured"], f"table {name} has row level security"),
        (not row["allowed"], f"the role may not select, insert, update and delete in table {name}"),
    )
    return next((text for found, text in problems if found), None)
