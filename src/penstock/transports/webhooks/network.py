"""The resolver and the connector of webhook requests. Both ask the guard.

The resolver resolves a name once and checks all its addresses; the connection goes to one of the checked addresses. No
second lookup happens between check and connect, so DNS rebinding has no effect. The connector checks the address when
it creates the socket and the peer after it is connected, before a byte of the request is written.

Lookups run on daemon threads: a name server that does not answer delays neither the journal nor a shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from penstock.transports.webhooks.guard import AddressRefused, Guard

LOOKUPS_MAX = 16
"""Concurrent lookups. Further lookups wait, within the timeout of their attempt."""

Lookup: TypeAlias = Callable[[str, int], list[tuple[Any, ...]]]
"""Host and port -> the result of `socket.getaddrinfo`. Blocks."""


def system_lookup(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class GuardedResolver(AbstractResolver):
    def __init__(self, guard: Guard, lookup: Lookup = system_lookup):
        self._guard = guard
        self._lookup = lookup
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """All addresses of the host. Raises AddressRefused if one is not allowed, OSError if there is none."""
        async with self._lookups:
            found = await self._in_thread(host, port)
        results: list[ResolveResult] = []
        for kind, _, proto, _, where in found:
            if kind in (socket.AF_INET, socket.AF_INET6) and family in (kind, socket.AF_UNSPEC):
                self._guard.check_address(ipaddress.ip_address(where[0]), port)
                results.append(
                    ResolveResult(
                        hostname=host, host=where[0], port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST
                    )
                )
        if not results:
            raise OSError("the name has no address")
        return results

    async def close(self) -> None:
        pass

    async def _in_thread(self, host: str, port: int) -> list[tuple[Any, ...]]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

        def set_result(result: list[tuple[Any, ...]] | BaseException) -> None:
            if found.done():
                return
            if isinstance(result, BaseException):
                found.set_exception(result)
            else:
                found.set_result(result)

        def run_lookup() -> None:
            result: list[tuple[Any, ...]] | BaseException
            try:
                result = self._lookup(host, port)
            except UnicodeError:
                result = OSError("not a host name")
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(set_result, result)

        threading.Thread(target=run_lookup, name="webhook-lookup", daemon=True).start()
        return await found


class GuardedConnector(aiohttp.TCPConnector):
    """Connects only to addresses that the guard allows, including addresses that are written in the URL."""

    def __init__(self, guard: Guard, resolver: AbstractResolver, **options: Any):
        super().__init__(resolver=resolver, use_dns_cache=False, socket_factory=self._socket, **options)
        self._guard = guard

    def _socket(self, info: Any) -> socket.socket:
        family, kind, proto, _, where = info
        self._guard.check_address(ipaddress.ip_address(where[0]), where[1])
        return socket.socket(family, kind, proto)

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109  the library's own
        connection = await super().connect(req, traces, timeout)
        try:
            peer = connection.transport.get_extra_info("peername") if connection.transport is not None else None
            if peer is None:
                raise AddressRefused("the address of the peer is unknown")
            self._guard.check_address(ipaddress.ip_address(peer[0]), peer[1])
        except AddressRefused:
            connection.close()
            raise
        return connection
