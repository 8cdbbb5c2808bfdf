"""The URL of a PostgreSQL store, and connections to it.

    postgres://user:password@host1,host2:5433/database?schema=penstock&ha=required

`schema` and `ha` are Penstock's; all other parameters are those of libpq. With several hosts, the one that accepts
writes is used. They are tried one after the other, each for a bounded time, the last one that worked first.
"""

from __future__ import annotations

import re
import socket
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from penstock.errors import InvalidRequest
from penstock.journal.port import Misconfigured, StoreUnavailable

CONNECT_S = 5.0
"""A host that does not answer within this time is passed over."""
OWN_SETTINGS = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
    # Backends of a machine that is gone end by themselves, and with them their locks.
    "tcp_user_timeout": "10s",
    "client_connection_check_interval": "2s",
}
_REFUSALS = ("28", "3D", "42501")
"""SQLSTATEs that another attempt would meet again: authorization, no such database, no permission."""


class Address(NamedTuple):
    dsn: str
    schema: str
    needs_standby: bool
    hosts: list[str]
    """A URL for each host, in the order in which they are tried."""

    @property
    def shown(self) -> str:
        """The URL without the password."""
        parts = urlsplit(self.dsn)
        user = parts.username or ""
        hosts = parts.netloc.rpartition("@")[2]
        return f"postgres://{user}{'@' if user else ''}{hosts}{parts.path}"


def parse(url: str) -> Address:
    """Raises InvalidRequest."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise InvalidRequest(f"store: this is not a URL of PostgreSQL: {error}", details={"field": "store"}) from None
    schema, ha = options.pop("schema", "penstock"), options.pop("ha", "optional")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise InvalidRequest(
            f"store: schema {schema[:64]!r} is not a name of small letters, digits and _", details={"field": "store"}
        )
    if ha not in ("optional", "required"):
        raise InvalidRequest(f"store: ha is optional or required, not {ha[:32]!r}", details={"field": "store"})
    rest = urlunsplit(("postgres", parts.netloc, parts.path, urlencode(options), ""))
    return Address(rest, schema, ha == "required", _each_host(rest))


def _each_host(dsn: str) -> list[str]:
    """Hosts are named before the path, or by the parameters `host` and `port` of libpq."""
    parts = urlsplit(dsn)
    login, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]
    options = dict(parse_qsl(parts.query))
    named, ports = options.get("host", "").split(","), options.get("port", "").split(",")
    if len(named) == 1 or len(ports) not in (1, len(named)):
        return [dsn]  # also a mistake, which connecting reports
    each = zip(named, ports * len(named) if len(ports) == 1 else ports, strict=True)
    return [
        urlunsplit(parts._replace(query=urlencode({**options, "host": host, **({"port": port} if port else {})})))
        for host, port in each
    ]


async def connect(address: Address, name: str) -> asyncpg.Connection[Any]:
    """A session under this application name, with the first host that accepts writes. Raises Misconfigured if every
    host refuses for a reason that stays, else StoreUnavailable."""
    problems: list[Misconfigured | StoreUnavailable] = []
    for dsn in list(address.hosts):
        try:
            connection = await _connect_to(dsn, address.shown, name)
        except (Misconfigured, StoreUnavailable) as error:
            problems.append(error)
            continue
        if problems:
            address.hosts.remove(dsn)
            address.hosts.insert(0, dsn)
        return connection
    if len(problems) == 1:
        raise problems[0]
    kind = Misconfigured if all(isinstance(each, Misconfigured) for each in problems) else StoreUnavailable
    raise kind("; ".join(dict.fromkeys(map(str, problems)))) from problems[0]


async def _connect_to(dsn: str, shown: str, name: str) -> asyncpg.Connection[Any]:
    try:
        return await asyncpg.connect(
            dsn, timeout=CONNECT_S, target_session_attrs=SessionAttribute.read_write,
            server_settings={**OWN_SETTINGS, "application_name": name},
        )  # fmt: skip
    except asyncpg.PostgresError as error:
        text = f"{shown}: {error}"
        if error.sqlstate is not None and error.sqlstate.startswith(_REFUSALS):
            raise Misconfigured(text) from error
        raise StoreUnavailable(text) from error
    except socket.gaierror as error:
        raise Misconfigured(f"{shown}: the host is not known: {error.strerror}") from error
    except (asyncpg.ClientConfigurationError, ValueError) as error:
        raise Misconfigured(f"{shown}: {error}") from error
    except asyncpg.exceptions.TargetServerAttributeNotMatched as error:
        raise StoreUnavailable(
            f"{shown}: no host accepts writes: each is a standby, or default_transaction_read_only is on"
        ) from error
    except (OSError, TimeoutError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"{shown}: cannot connect: {error or 'no answer'}") from error
