"""A server from its first line to its last: listen, say that it is ready, serve, drain, stop.

Draining on SIGTERM or SIGINT, in this order: readiness probes are told no; the listening socket closes; the broker
closes, which answers parked long polls empty, makes everything durable and releases the journals; connections end
when their request is answered; the process leaves with 0. A second signal ends it at once: what was acknowledged is
durable, so nothing is lost by that but the answers in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn
import uvloop

from penstock import limits
from penstock.server.compose import Node, open_node
from penstock.server.config import Address, ConfigError, Settings
from penstock.transports.http.protocol import HttpProtocol

_log = structlog.get_logger("penstock.server")


def run(settings: Settings) -> None:
    """Serve until told to stop. Raises ConfigError if it cannot even start."""
    # Whatever this process creates is nobody else's to read.
    os.umask(0o077)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    listener = bind(settings.listen_address)
    try:
        node = await open_node(settings)
    except BaseException:
        listener.close()
        raise
    server = _Server(node, settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stop)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await _first_of(server.accepting.wait(), serving)
        if server.accepting.is_set():
            _announce(Address(*listener.getsockname()[:2]))
        await _first_of(stop.wait(), serving)
        _log.info("draining", grace_s=settings.shutdown_grace_s)
        node.app.drain()
        server.should_exit = True
    finally:
        await node.broker.close()
    await serving
    _log.info("stopped")


def bind(address: Address) -> socket.socket:
    """A listening socket, before anything else is opened: a taken port must not cost a recovery."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"listen: cannot listen on {address}: {error.strerror or error}") from None
    return listener


class _Server(uvicorn.Server):
    """Uvicorn inside our own process: signals are ours, and we want to know when it accepts."""

    def __init__(self, node: Node, settings: Settings):
        super().__init__(
            uvicorn.Config(
                node.app,
                http=HttpProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_config=None,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                limit_concurrency=limits.CONNECTIONS_MAX,
                timeout_keep_alive=limits.KEEP_ALIVE_MS // 1000,
                timeout_graceful_shutdown=settings.shutdown_grace_s,
            )
        )
        self.accepting = asyncio.Event()
        node.app.metrics.count_connections = lambda: len(self.server_state.connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[override]
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


async def _first_of(event: object, serving: asyncio.Task[None]) -> None:
    """Waits for the event, or for the server to end, which it only does early if it failed."""
    waiting = asyncio.ensure_future(event)  # type: ignore[arg-type]
    await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _announce(address: Address) -> None:
    """The one line on standard output. Programs that start a server wait for it."""
    sys.stdout.write(f"ready http=http://{address} grpc=-\n")
    sys.stdout.flush()


def _on_signal(number: int, stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(128 + number)
    stop.set()
