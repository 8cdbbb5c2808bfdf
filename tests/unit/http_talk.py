"""A connection to the real HTTP protocol and application over a fake broker."""

from __future__ import annotations

import asyncio
import contextlib
import json

import uvicorn
from http_fake import FakeBroker
from patience import until
from uvicorn.server import ServerState

from penstock.clock import SystemClock
from penstock.transports.http import HttpApp
from penstock.transports.http.protocol import HttpProtocol


class Talk:
    """Both ends of one connection."""

    def __init__(self, app, state, reader, writer) -> None:
        self.app, self.broker, self.state = app, app.edge.broker, state
        self.reader, self.writer = reader, writer

    def send(self, method: str, path: str, body=b"", *headers: str) -> None:
        self.writer.write(request(method, path, body, *headers))

    async def answer(self, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        headers = dict(each.lower().split(": ", 1) for each in lines)
        size = int(headers.get("content-length", 0)) if body else 0
        return int(line.split()[1]), headers, await self.reader.readexactly(size)


def request(method: str, path: str, body=b"", *headers: str) -> bytes:
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.asynccontextmanager
async def serve(keep_alive_s: int = 75, connections: int = 1):
    """`connections`: the number of open connections that the server counts."""
    app = HttpApp(FakeBroker(), SystemClock())
    app.metrics.count_connections = lambda: connections
    config = uvicorn.Config(app, http=HttpProtocol, log_config=None, timeout_keep_alive=keep_alive_s)
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: HttpProtocol(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        async with asyncio.timeout(20):
            yield Talk(app, state, reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await until(lambda: not state.connections)


def talk(story, keep_alive_s: int = 75, connections: int = 1):
    """Run a story with a connection."""

    async def run():
        async with serve(keep_alive_s, connections) as served:
            await story(served)

    asyncio.run(run())
