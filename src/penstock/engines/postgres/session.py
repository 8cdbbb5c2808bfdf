"""One session of PostgreSQL: errors become the outcomes of the port, and a warning makes every outcome unknown.

A commit whose wait for the synchronous standby is cancelled is reported as a success with a warning, although the
standby may not have it. So a statement counts only if no warning came with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import asyncpg

from penstock.engines.postgres.address import Address, connect
from penstock.journal.port import Ambiguous, EngineError, Misconfigured, OutOfSpace, StoreUnavailable

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[Any]"

STATEMENT_S = 15.0
"""A statement without an answer after this time has an unknown outcome."""
CHECK_S = 10.0
"""A server whose settings cannot be read within this time counts as unreachable."""
DISK_FULL = "53100"
LOST = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors of a connection, besides those that the server reports."""


async def bounded(connection: Connection, work: Awaitable[T], timeout_s: float) -> T:
    """The result of work on this connection. After `timeout_s` the connection is ended, and the work fails with it.

    Work that is cancelled instead would send a rollback and wait for the answer, and the server may never give one.
    """
    timer = asyncio.get_running_loop().call_later(timeout_s, connection.terminate)
    try:
        return await work
    finally:
        timer.cancel()


class Session:
    """Reconnects when it is used after its connection ended. One call at a time."""

    def __init__(self, address: Address, name: str, check: Callable[[Connection], Awaitable[None]]):
        self.name = name
        self._address = address
        self._check = check
        self._connection: Connection | None = None
        self._warning: str | None = None

    async def run(self, work: Callable[[Connection], Awaitable[T]], timeout_s: float = STATEMENT_S) -> T:
        """Do this work, which is one statement or one transaction.

        Raises StoreUnavailable if it was not done, OutOfSpace if there was no room for it, Ambiguous if it is unknown
        whether it was done.
        """
        connection = await self.connected()
        self._warning = None
        try:
            result = await bounded(connection, work(connection), timeout_s)
        except EngineError:
            raise
        except asyncpg.PostgresError as error:
            if _severity(error) != "ERROR":
                self.drop()
                raise Ambiguous(f"PostgreSQL ended the session: {error}") from error
            # The server has rolled the transaction back.
            if error.sqlstate == DISK_FULL:
                raise OutOfSpace(f"PostgreSQL has no space left: {error}") from error
            raise
        except LOST as error:
            self.drop()
            raise Ambiguous(f"the connection to PostgreSQL was lost: {error or 'no answer'}") from error
        except BaseException:
            self.drop()
            raise
        if self._warning is not None:
            self.drop()
            raise Ambiguous(f"PostgreSQL warned: {self._warning}")
        return result

    async def connected(self) -> Connection:
        """The connection, made again if it has ended. Raises StoreUnavailable."""
        connection = self._connection
        if connection is not None and not connection.is_closed():
            return connection
        self.drop()
        try:
            connection = await connect(self._address, self.name)
        except Misconfigured as error:  # it was right when the store was opened
            raise StoreUnavailable(str(error)) from error
        try:
            await bounded(connection, self._check(connection), CHECK_S)
        except (*LOST, asyncpg.PostgresError) as error:
            connection.terminate()
            raise StoreUnavailable(f"the settings of PostgreSQL cannot be read: {error or 'no answer'}") from error
        except BaseException:
            connection.terminate()
            raise
        connection.add_log_listener(self._listen)
        self._connection = connection
        return connection

    def _listen(self, _: Any, message: Any) -> None:
        if _severity(message) == "WARNING":
            self._warning = message.message

    def drop(self) -> None:
        """End the connection without waiting. A statement that runs in it may still be done."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=2.0)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()


class Sessions:
    """A bounded number of sessions for everything that is not an append."""

    def __init__(self, make: Callable[[], Session], most: int):
        self._make = make
        self._free: list[Session] = []
        self._slots = asyncio.Semaphore(most)
        self._all: list[Session] = []

    async def run(self, work: Callable[[Connection], Awaitable[T]], timeout_s: float = STATEMENT_S) -> T:
        """As `Session.run`; an error of the server that rolled the work back is StoreUnavailable."""
        async with self._slots:
            session = self.take()
            try:
                return await session.run(work, timeout_s)
            except asyncpg.PostgresError as error:
                raise StoreUnavailable(f"PostgreSQL refused: {error}") from error
            finally:
                self._free.append(session)

    def take(self) -> Session:
        if self._free:
            return self._free.pop()
        session = self._make()
        self._all.append(session)
        return session

    async def close(self) -> None:
        for session in self._all:
            await session.close()


def _severity(message: Any) -> str:
    """In English, whatever the language of the server is."""
    return str(getattr(message, "severity_en", None) or message.severity)
