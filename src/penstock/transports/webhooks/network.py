"""Where names become addresses and addresses become connections, and the guard is asked at each of these steps.

A name is resolved once, all its addresses are judged, and the connection goes to one of those that were judged: between
the check and the connect there is no second look at a name that could answer otherwise. The socket is judged when it is
made, and once more when it is connected, before a byte of the request is written.

Lookups run on threads of their own that do not outlive the process: a name server that does not answer must hold up
neither the journal nor a shutdown.
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

from penstock.transports.webhooks.guard import Guard, Refused

LOOKUPS_MAX = 16
"""At the same time; the others wait, within the time of their attempt."""

Lookup: TypeAlias = Callable[[str, int], list[tuple[Any, ...]]]
"""Host and port -> what `socket.getaddrinfo` gives. Blocks."""


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
        """Every address of the host. Raises Refused if one of them may not be sent to, OSError if there is none."""
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

        def tell(result: list[tuple[Any, ...]] | BaseException) -> None:
            if found.done():
                return
            if isinstance(result, BaseException):
                found.set_exception(result)
            else:
                found.set_result(result)

        def look() -> None:
            result: list[tuple[Any, ...]] | BaseException
            try:
                result = self._lookup(host, port)
            except UnicodeError:
                result = OSError("not a name")
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, result)

        threading.Thread(target=look, name="webhook-lookup", daemon=True).start()
        return await found


class GuardedConnector(aiohttp.TCPConnector):
    """Connections to addresses that the guard has passed, and to no others: also to those that stand in the URL."""

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
                raise Refused("the connection does not say where it leads")
            self._guard.check_address(ipaddress.ip_address(peer[0]), peer[1])
        except Refused:
            connection.close()
            raise
        return connection
