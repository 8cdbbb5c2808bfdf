"""A webhook endpoint inside the event loop of the test: records deliveries, replies with `answer`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web


class Delivery(NamedTuple):
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


async def taken(_delivery: Delivery) -> web.Response:
    return web.Response(status=204)


def answering(*statuses: int, **headers: str) -> Callable[[Delivery], Awaitable[web.Response]]:
    """The statuses in turn; the last one repeats."""
    left = list(statuses)

    async def answer(_delivery: Delivery) -> web.Response:
        status = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=status, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return answer


class Endpoint:
    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.answer: Callable[[Delivery], Awaitable[web.StreamResponse]] = taken
        self.in_flight = self.in_flight_max = 0
        self.server_names: list[str | None] = []
        self.url = ""
        self.port = 0
        self._arrived = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        delivery = Delivery(request.path_qs, headers, await request.read())
        self.deliveries.append(delivery)
        self._arrived.set()
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight, self.in_flight_max)
        try:
            return await self.answer(delivery)
        finally:
            self.in_flight -= 1

    async def wait_for(self, count: int) -> list[Delivery]:
        while len(self.deliveries) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.deliveries


@asynccontextmanager
async def endpoint(tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    here = Endpoint()
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: here.server_names.append(name)
    runner = web.AppRunner(_app(here), shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    here.port = runner.addresses[0][1]
    here.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{here.port}/hook"
    try:
        yield here
    finally:
        await runner.cleanup()


def _app(here: Endpoint) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", here.handle)
    return app
